"""A row with values of many types, and what rules say of it."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

import rules_index as ri
from tests.random_rows import VALUES

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
