"""What several tests need: columns, how many random cases they take, and where rules are TRUE by matching rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import rules_index as ri
from rules_index.engines.scan import Scan
from rules_index.implication.null_propagation import columns_needed
from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.language.scope import Scope
from rules_index.language.typed import Leaf
from tests import random_rows
from tests.cases import cases

CASES = cases(240, "DELTATAG_IMPLICATION_CASES")
"""Random cases of each kind."""
SCHEMA = pa.schema(
    [
        ("a", pa.int32()),
        ("b", pa.int64()),
        ("f", pa.float32()),
        ("s", pa.string()),
        ("c", pa.bool_()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("n", pa.struct([("x", pa.int32())])),
    ]
)


def with_derived(table: pa.Table, compiled: ri.CompiledRules, schema: pa.Schema, seed: int) -> pa.Table:
    """Rows with columns for what only Spark evaluates, drawn, but without a value where a needed column is NULL."""
    choice = np.random.default_rng(seed)
    if not table.num_columns:
        table = pa.table({"nothing": pa.nulls(table.num_rows)})
    for leaf in compiled.derived:
        missing = np.zeros(table.num_rows, bool)
        for column in columns_needed(leaf, Scope(schema)):
            missing |= np.asarray(_column(table, column).is_null())
        table = table.append_column(leaf.name, drawn(leaf.type, missing, choice))
    return table


def drawn(data_type: pa.DataType, missing: np.ndarray, choice: np.random.Generator) -> pa.Array:
    """A derived column: truth values with failures, or values of the type with NULL; no value where missing."""
    rows = len(missing)
    if pa.types.is_boolean(data_type):
        # FALSE, TRUE, NULL, raised
        codes = choice.integers(0, 4, rows)
        return pa.array(np.where(missing, 2 + codes % 2, codes).astype(np.int8))
    names = [name for name, arrow in random_rows.ARROW.items() if arrow == data_type]
    if not names:
        return pa.nulls(rows, data_type)
    values = [*random_rows.VALUES[names[0]], None]
    places = np.where(missing, len(values) - 1, choice.integers(0, len(values), rows))
    return pa.array([values[place] for place in places], data_type)


def _column(table: pa.Table, leaf: Leaf) -> pa.ChunkedArray:
    """A column or a field of one; a table that does not have it is taken to have NULL there."""
    if leaf.name in table.column_names:
        return table.column(leaf.name)
    first, *fields = leaf.name.split(".")
    if first not in table.column_names:
        return pa.chunked_array([pa.nulls(table.num_rows, leaf.type)])
    return pc.struct_field(table.column(first), fields)


def truth_of(compiled: ri.CompiledRules, rows: pa.Table, conjunctions: Conjunctions | None = None) -> np.ndarray:
    """Where rules, or each conjunction alone, are TRUE: [rules, rows] bool."""
    count = len(compiled)
    if conjunctions is not None:
        count = len(conjunctions.target)
        conjunctions = replace(conjunctions, target=np.arange(count, dtype=np.int32))
        compiled = replace(compiled, index=Scan.build(conjunctions))
    offsets, ordinals, _ = compiled.match_ordinals(rows)
    truth = np.zeros((count, rows.num_rows), bool)
    truth[ordinals, np.repeat(np.arange(rows.num_rows), np.diff(offsets))] = True
    return truth


def shows(p: str, q: str, schema: pa.Schema, table: pa.Table, seed: int = 0) -> bool:
    """Whether p is TRUE and q is not on some row; what only Spark evaluates is drawn."""
    compiled = ri.compile_rules([("p", p), ("q", q)], schema, engine="scan")
    assert compiled.rejects.num_rows == 0, compiled.rejects.to_pylist()
    truth = truth_of(compiled, with_derived(table, compiled, schema, seed))
    return bool((truth[0] & ~truth[1]).any())


def matched(compiled: ri.CompiledRules, row: dict[str, Any], schema: pa.Schema, seed: int = 0) -> list[Any]:
    """The rules of a row of the columns that they read."""
    columns = [leaf for leaf in compiled.inputs if leaf.text is None]
    table = pa.Table.from_pylist([row], schema=pa.schema([(leaf.name, leaf.type) for leaf in columns]))
    return compiled.match(with_derived(table, compiled, schema, seed)).to_pylist()[0]


def assert_holds(kind: str, rule: np.ndarray, others: np.ndarray, case: object) -> None:
    """What a finding says of where a rule [rows] and others [others, rows] are TRUE."""
    holds = {
        "contradiction": not rule.any(),
        "tautology": rule.all(),
        "duplicate": (others == rule).all(),
        "implied": (rule <= others.any(axis=0)).all(),
        "implied_by_union": (rule <= others.any(axis=0)).all(),
    }
    assert holds.get(kind, True), (case, kind)
