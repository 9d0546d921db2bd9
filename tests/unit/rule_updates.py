"""Rules that are updated, rows for them, and what makes two indexes one."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

import rules_index as ri
from rules_index.language.typed import Leaf

SMALL = pa.schema([("a", pa.int32()), ("b", pa.int64()), ("s", pa.string())])
RULES = [(f"r{i:03}", f"a = {i % 7} AND s = 'x{i % 5}'") for i in range(60)]


def small_rows(count: int = 300, seed: int = 1) -> pa.Table:
    draw = np.random.default_rng(seed)
    texts = [None if x == 5 else f"x{x}" for x in draw.integers(0, 6, count)]
    return pa.table([pa.array(draw.integers(0, 9, count), pa.int32()), draw.integers(0, 9, count), texts], schema=SMALL)


def with_derived(table: pa.Table, inputs: Sequence[Leaf]) -> pa.Table:
    """The rows with what only Spark would evaluate: of Booleans drawn truth codes, always those of its name."""
    for leaf in inputs:
        if leaf.text is not None:
            draw = np.random.default_rng(zlib.crc32(leaf.name.encode()))
            is_truth = pa.types.is_boolean(leaf.type)
            codes = pa.array(draw.integers(0, 4, table.num_rows), pa.int8())
            table = table.append_column(leaf.name, codes if is_truth else pa.nulls(table.num_rows, leaf.type))
    return table


def require_same(updated: ri.CompiledRules, full: ri.CompiledRules, table: pa.Table) -> None:
    """Both are one in all that is matched, and said of it."""
    assert updated.inputs == full.inputs
    assert updated.fingerprint == full.fingerprint
    assert updated.ids.equals(full.ids)
    assert updated.rejects.equals(full.rejects)
    assert (updated.engine, updated.time_zone, updated.event_time) == (full.engine, full.time_zone, full.event_time)
    for name in ("rules", "rejected", "derived", "engine"):
        assert updated.stats[name] == full.stats[name], name
    batch = with_derived(table, full.inputs)
    lists = full.match(batch)
    assert updated.match(batch).equals(lists)
    assert (updated.annotations is None) == (full.annotations is None)
    if updated.annotations is not None and full.annotations is not None:
        assert updated.annotations.annotate == full.annotations.annotate
        assert updated.annotations.of_ids(lists) == full.annotations.of_ids(lists)
    assert updated.errors == full.errors
    for row in range(0, batch.num_rows, 61):
        values = {name: column[row].as_py() for name, column in zip(batch.column_names, batch.columns, strict=True)}
        assert updated.match_one(values) == full.match_one(values)


def small(engine: str = "auto") -> ri.CompiledRules:
    return ri.compile_rules(RULES, SMALL, engine)
