"""Rows, rules and tables of lakes in an object store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from pipelines.workspace import Workspace

FIRST = datetime(2024, 3, 30, 12, tzinfo=UTC)
TABLES = ("s_tagged", "s_matches", "quarantine_s")
NAMES = ["n 1", "n=2/é", "100%", None, "n1"]
RULES = (
    ("big", "s", "amount > 50"),
    ("named", "s", "name IN ('n 1', '100%') AND flag"),
    {"rule_id": "late", "scope": "s", "expression": "TRUE", "valid_from": FIRST + timedelta(hours=2)},
)


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": pa.array([None if n % 97 == 13 else n for n in numbers], pa.int64()),
            "name": pa.array([NAMES[n % 5] for n in numbers]),
            "amount": pa.array([None if n % 11 == 0 else Decimal(n % 100) for n in numbers], pa.decimal128(10, 2)),
            "flag": pa.array([n % 3 == 0 for n in numbers]),
            "t": pa.array([FIRST + timedelta(minutes=n) for n in numbers], pa.timestamp("us", "UTC")),
        }
    )


def written(place: str, first: int = 0, count: int = 200, **options: Any) -> str:
    """A table with these rows, added to those that it has; its place."""
    write_deltalake(place, rows(first, count), mode="append", **options)
    return place


UNSTABLE = ("tagged_at", "source_version", "batch")


def contents(
    workspace: Workspace, left_out: tuple[str, ...] = ("tagged_at",), tables: tuple[str, ...] = TABLES
) -> dict[str, list[dict[str, Any]]]:
    """The rows of a stream's tables, read by delta-rs alone."""
    found = {}
    for name in tables:
        held = DeltaTable(workspace.lake.uri(name)).to_pyarrow_table().to_pylist()
        kept = [{key: row[key] for key in sorted(row) if key not in left_out} for row in held]
        found[name] = sorted(kept, key=repr)
    return found
