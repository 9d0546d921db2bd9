"""Why rules match rows: every verdict is that of `match`, and every near miss matches once it is made."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.index.compiled import dumps
from tests.cases import cases
from tests.random_expressions import Grammar
from tests.random_rows import VALUES, rows

PAIRS = cases(10_000)
INDEXES, RULES, ROWS = 20, 25, 40
SCHEMA = pa.schema(
    {
        "i": pa.int32(),
        "j": pa.int64(),
        "f": pa.float64(),
        "g": pa.float32(),
        "m": pa.decimal128(12, 3),
        "wide": pa.decimal128(30, 2),
        "s": pa.string(),
        "bin": pa.binary(),
        "b": pa.bool_(),
        "d": pa.date32(),
        "ts": pa.timestamp("us", "UTC"),
        "ntz": pa.timestamp("us"),
        "st": pa.struct({"x": pa.int64(), "y z": pa.string()}),
        "list": pa.list_(pa.int32()),
        "odd.name": pa.int32(),
    }
)
ROW: dict[str, Any] = {
    "i": 3, "j": None, "f": 1.5, "g": 0.5, "m": Decimal("10.000"), "wide": Decimal("10.00"), "s": "abc",
    "bin": b"\x01", "b": False, "d": date(2024, 2, 28), "ts": datetime(2024, 3, 31, 0, 30, tzinfo=UTC),
    "ntz": datetime(2024, 3, 31, 2, 30), "st": {"x": 1, "y z": None}, "list": [1], "odd.name": 3,
}  # fmt: skip


def explained(text: str, row: dict[str, Any] | None = None, zone: str = "UTC", **given: Any) -> Any:
    compiled = ri.compile_rules([("r", text)], SCHEMA, time_zone=zone)
    assert compiled.rejects.num_rows == 0, compiled.rejects.to_pylist()
    derived = {leaf.name: given.get("derived") for leaf in compiled.derived}
    return compiled.explain((ROW if row is None else ROW | row) | derived, "r")


def drawn(leaf: Any, draw: random.Random) -> tuple[Any, Any]:
    """A value of a derived column, as a row and as a batch have it."""
    raised = draw.random() < 0.2
    if pa.types.is_boolean(leaf.type):
        code = 3 if raised else draw.randrange(3)
        return (ArithmeticError("raised") if raised else [False, True, None][code]), code
    names = {pa.int32(): "int", pa.int64(): "bigint", pa.float64(): "double", pa.string(): "string"}
    known = VALUES.get(names.get(leaf.type, ""), ())
    value = draw.choice(known) if known and draw.random() < 0.8 else None
    return (ArithmeticError("raised"), None) if raised else (value, {"value": value})


def test_every_verdict_is_that_of_match_and_every_near_miss_matches() -> None:
    draw, texts = random.Random(5), Grammar(6)
    verdicts = {True: 0, False: 0, None: 0, "error": 0}
    told = 0
    for number in range(INDEXES):
        table = rows(ROWS, number).drop_columns(["pk"])
        rules = [(f"r{rule}", texts.rule()) for rule in range(RULES)]
        compiled = ri.loads(dumps(ri.compile_rules(rules, table.schema, time_zone="Europe/Berlin")))
        listed = table.to_pylist()
        table = with_derived(compiled, table, listed, draw)
        expected = [set(ids) for ids in compiled.match(table).to_pylist()]
        for pair in range(PAIRS // INDEXES):
            place, rule = draw.randrange(ROWS), draw.choice(compiled.ids.to_pylist())
            found = compiled.explain(listed[place], rule)
            assert found.matched == (rule in expected[place]), str(found)
            assert found.matched == (found.value is True)
            verdicts[found.value] += 1
            if found.matched:
                assert found.near_miss is None and not found.blockers
            elif pair % 4 == 0 and found.near_miss is not None:
                changes = {change.column: change.after for change in found.near_miss}
                assert 1 <= len(changes) <= 2
                assert rule in compiled.match_one(listed[place] | changes), str(found)
                told += 1
    assert min(verdicts.values()) > PAIRS // 200 and told > PAIRS // 50


def with_derived(compiled: Any, table: pa.Table, listed: list[dict[str, Any]], draw: random.Random) -> pa.Table:
    """The rows with what only Spark evaluates made up, in the list of them too."""
    for leaf in compiled.derived:
        values = [drawn(leaf, draw) for _ in listed]
        for row, (value, _) in zip(listed, values, strict=True):
            row[leaf.name] = value
        kind = pa.int8() if pa.types.is_boolean(leaf.type) else pa.struct([pa.field("value", leaf.type)])
        table = table.append_column(leaf.name, pa.array([given for _, given in values], kind))
    return table


if __name__ == "__main__":
    pytest.main([__file__])
