"""Rows of two tables are paired as nested loops pair them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

from pipelines.local_sql import partners
from pipelines.local_sql.partners import Side, chosen, pairs
from tests.cases import cases

FIRST = pa.schema([("k", pa.int32()), ("t", pa.string()), ("a", pa.int64())])
SECOND = pa.schema([("b", pa.int64()), ("u", pa.string()), ("v", pa.int64())])


def drawn(draw: random.Random, schema: pa.Schema) -> pa.Table:
    """Up to forty rows: two keys, some of them NULL, and a number of its own for each row."""
    count = draw.choice([0, 1, 7, 40])
    numbers = [draw.choice([None, 0, 1, 2, 3]) for _ in range(count)]
    texts = [draw.choice([None, "", "x", "é"]) for _ in range(count)]
    whole, text, own = schema.names
    return pa.table({whole: numbers, text: texts, own: range(count)}, schema=schema)


def parts(draw: random.Random, table: pa.Table) -> Iterator[pa.Table]:
    """The rows in batches, some of them empty."""
    at = 0
    while at < table.num_rows:
        size = draw.choice([0, 1, 5])
        yield table.slice(at, size)
        at += size


def told(table: pa.Table) -> list[tuple[object, ...]]:
    """The rows as tuples."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def has_equal_keys(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return None not in one[:2] and one[:2] == other[:2]


@pytest.mark.parametrize("seed", range(cases(80)))
@pytest.mark.parametrize("keeps", [(False, False), (True, False), (False, True), (True, True)])
def test_pairs(seed: int, keeps: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr(partners, "_MOST_PAIRS", draw.choice([1, 16, 1 << 22]))
    one, other = drawn(draw, FIRST), drawn(draw, SECOND)
    held, side = Side(FIRST, ["k", "t"], keeps[0]), Side(SECOND, ["b", "u"], keeps[1])
    found = [
        pair
        for rows, beside in pairs(held, parts(draw, one), side, parts(draw, other))
        for pair in zip(told(rows), told(beside), strict=True)
    ]
    nothing = (None, None, None)
    wanted = [(row, each) for row in told(one) for each in told(other) if has_equal_keys(row, each)]
    wanted += [(row, nothing) for row in told(one) if keeps[0] and not any(has_equal_keys(row, r) for r in told(other))]
    wanted += [(nothing, row) for row in told(other) if keeps[1] and not any(has_equal_keys(r, row) for r in told(one))]
    assert Counter(found) == Counter(wanted)


@pytest.mark.parametrize("seed", range(cases(80)))
@pytest.mark.parametrize("has_partner", [True, False])
def test_rows_with_a_partner_or_without(seed: int, has_partner: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr(partners, "_MANY_KEYS", draw.choice([0, 3, 1 << 20]))
    one, other = drawn(draw, FIRST), drawn(draw, SECOND)
    sides = Side(FIRST, ["k", "t"], keeps_all=False), Side(SECOND, ["b", "u"], keeps_all=False)
    found = chosen(sides[0], parts(draw, one), sides[1], parts(draw, other), has_partner)
    wanted = [row for row in told(one) if any(has_equal_keys(row, each) for each in told(other)) == has_partner]
    assert Counter(row for rows in found for row in told(rows)) == Counter(wanted)
