"""Compiles the kernels ahead of time: `python -m rules_index.warm_up`.

Numba compiles a kernel for the types that it is first called with and caches the result on disk. An installation that
runs this once saves the first job on the machine those seconds.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa

from rules_index.compiling.compile import compile_rules
from rules_index.compiling.templates.clause_templates import LEAST
from rules_index.domains.list_edits import edited
from rules_index.domains.value_lists import value_list
from rules_index.implication.lint import lint
from rules_index.index.annotate import Annotate
from rules_index.index.compiled import Layers, dumps
from rules_index.index.loading import loads
from rules_index.index.pattern_groups import LEAST_PATTERNS
from rules_index.index.updated_index import numbers_of, overlaid
from rules_index.join.index import JoinIndex, Method
from rules_index.join.window_partners import Side
from rules_index.kernels.rows_by_rule import rows_by_rule
from rules_index.workers.encoded_chunks import EncodedChunks

_TYPES = {
    "tiny": pa.int8(),
    "small": pa.int16(),
    "whole": pa.int32(),
    "big": pa.int64(),
    "single": pa.float32(),
    "double": pa.float64(),
    "price": pa.decimal128(10, 2),
    "wide": pa.decimal128(38, 2),
    "text": pa.string(),
    "bytes": pa.binary(),
    "flag": pa.bool_(),
    "day": pa.date32(),
    "instant": pa.timestamp("us", tz="UTC"),
    "wall": pa.timestamp("us"),
}
_FAR = 1 << 40


def warm_up() -> int:
    """Matches a small batch with rules on columns of every type, joins and lints. Returns the number of results."""
    numbers = ("tiny", "small", "whole", "big", "single", "double", "price", "wide")
    rules = [(f"{name} in order", f"{name} > 1 AND {name} <> 3") for name in numbers]
    rules += [
        ("far", f"big > {-_FAR} AND big < {_FAR}"),
        ("text", "text = 'a' OR text > 'b' OR text IN ('x', 'y', 'z')"),
        ("pattern", "text LIKE '%a%b_' OR text ILIKE '%c%d'"),
        ("expression", "text RLIKE '^(a|b)+c$'"),
        ("bytes", "bytes = X'00' AND flag"),
        ("times", "day > DATE'2024-01-01' OR instant > TIMESTAMP'2024-01-01' OR wall > TIMESTAMP_NTZ'2024-01-01'"),
        ("computed", "whole + 1 < big"),
        ("decimals", "price / 3 + price > 1 AND CAST(double AS DECIMAL(10,2)) > 1 AND CAST(-price AS INT) < 1"),
        ("beyond 64 bits", "-wide < 1 OR price + 99999999999999999999.99 > 1 OR price / 99999999999 > 1"),
        ("sample", "hash(text, big) % 7 = 1 OR xxhash64(text, whole) > 1"),
        ("many", " AND ".join(f"(whole = {i} OR big = {i} OR tiny = {i})" for i in range(9))),
    ]
    schema = pa.schema(list(_TYPES.items()))
    compiled = loads(dumps(compile_rules(rules, schema)))
    batch = pa.table([pa.nulls(3, data_type) for data_type in _TYPES.values()], schema=schema)
    wide = pa.array([Decimal(10**30), None, None], _TYPES["wide"])
    batch = batch.set_column(schema.get_field_index("wide"), "wide", wide)
    layers = Layers(compiled, np.zeros(1, np.int64), compile_rules([("new", "whole > 5")], schema))
    updated = overlaid(layers, numbers_of(layers), compiled.rejects, "")
    matched = len(compiled.match(batch).flatten()) + len(updated.match(batch).flatten())
    matched += _warm_up_texts(schema) + _warm_up_lists() + _warm_up_events(schema)
    rows_by_rule(np.zeros(1, np.int32), np.ones(1, np.int32), np.zeros(3, np.int64), np.empty(1, np.int32))
    ids = pa.array(["a"]).dictionary_encode()
    EncodedChunks("none").add_known(0, pa.table({"": pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), ids)}))
    return matched + _warm_up_join() + _warm_up_lint(schema)


def _warm_up_texts(schema: pa.Schema) -> int:
    """Matches many patterns over a column at once, and annotates rows. Returns the number of results."""
    rules = [(number, f"contains(text, 'a{number}')") for number in range(LEAST_PATTERNS)]
    compiled = compile_rules(rules, schema, annotate=Annotate())
    batch = pa.table([pa.nulls(1, data_type) for data_type in _TYPES.values()], schema=schema)
    lists = compiled.match(batch)
    assert compiled.annotations is not None
    return len(lists.flatten()) + len(compiled.annotations.of_ids(lists))


def _warm_up_lists() -> int:
    """Matches rows by value lists, before and after an edit. Returns the number of results."""
    batch = pa.table({"text": ["a", "b"], "big": pa.array([0, _FAR])})
    lists = [value_list("text", batch["text"]), value_list("big", batch["big"])]
    rules = [(name, f"{name} IN LIST('{name}')") for name in batch.column_names]
    compiled = loads(dumps(compile_rules(rules, batch.schema, lists=lists)))
    gone = [edited(each, batch[name][:1], batch[name][:0], "") for name, each in compiled.lists.items()]
    updated = loads(dumps(compiled.update([], lists=[each for each in gone if each is not None])))
    return len(compiled.match(batch).flatten()) + len(updated.match(batch).flatten())


def _warm_up_events(schema: pa.Schema) -> int:
    """Matches single events with few and with many codes. Returns the number of results."""
    few = [("in", "whole IN (1, 5, 9) AND text > 'b'"), ("range", "whole > 3 AND big < 7"), ("always", "TRUE")]
    many = [(f"{number}", f"whole = {number} AND big > {number}") for number in range(300)]
    found = 0
    for rules in (few, many):
        compiled = compile_rules(rules, schema)
        found += len(compiled.match_one({"whole": 5, "big": 6, "text": "c"}))
        found += len(compiled.match_event("whole > 4 AND big IN (6, 8) AND text <> 'q'"))
    return found


def _warm_up_lint(schema: pa.Schema) -> int:
    """Lints rules that imply one another in each way. Returns the number of findings."""
    rules = [
        ("one", "whole > 1 AND text IN ('x', 'y')"),
        ("implied", "whole > 2 AND text = 'x'"),
        ("same", "text = 'x' AND whole > 2"),
        ("never", "whole > 2 AND whole < 1"),
        ("low", "whole < 5 OR whole IS NULL"),
        ("high", "whole >= 5 AND big < 9"),
        ("either", "whole >= 5 AND (double > 1.5 OR double > 2.5)"),
        ("by both", "whole > -7 AND big < 7"),
        ("not by both", "whole > -7 AND big < 11"),
    ]
    rules += [(f"of one shape, {number}", f"double < {number}.5 AND text = 'x'") for number in range(LEAST)]
    return len(lint(rules, schema))


def _warm_up_join() -> int:
    """Joins a few rows of two streams by rules on one stream, on both, and with a comparison across. Returns the number
    of joined rows."""
    columns = pa.struct([("x", pa.int32()), ("y", pa.string())])
    rules = [
        ("one", "a.x > 1"),
        ("both", "a.x > 1 AND b.y = 'p'"),
        ("either", "a.x = 3 OR b.x = 2"),
        ("across", "a.x < b.x"),
        ("always", "TRUE"),
    ]
    index = JoinIndex.of(loads(dumps(compile_rules(rules, pa.schema([("a", columns), ("b", columns)])))), ["a", "b"])
    rows = pa.table({"x": pa.array([1, 2, 3, 4], pa.int32()), "y": ["p", "q", "p", None]})
    times, flags = np.arange(4), np.ones(4, bool)
    side = Side(rows, np.array([0, 0, 1, -1]), times, flags, flags)
    methods: tuple[Method, ...] = ("batch", "pdfa")
    return sum(len(piece) for method in methods for piece in index.match([side, side], [2, 2], method=method))


if __name__ == "__main__":
    warm_up()
