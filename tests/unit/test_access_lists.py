"""One event at a time over lists by access predicates, against brute force; and rows coded value by value."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.index import row_codes
from rules_index.index.access_lists import AccessLists
from rules_index.index.conjunction_arrays import Conjunctions
from tests.cases import cases

CASES = cases(40, "DELTATAG_ENGINE_CASES")


def draw_conjunctions(draw: np.random.Generator, sizes: list[int], number: int) -> Conjunctions:
    """Conjunctions of none to all attributes; a set has up to a hundred intervals."""
    set_start, intervals, start, terms = [0], [], [0], []
    for _ in range(number):
        for attribute in np.flatnonzero(draw.random(len(sizes)) < draw.choice([0.1, 0.5, 1.0])).tolist():
            most = draw.choice([1, 1, 1, 3, 100])
            ends = np.unique(draw.integers(0, sizes[attribute], 2 * most))
            ends = ends[: len(ends) // 2 * 2] if len(ends) > 1 else np.repeat(ends, 2)
            pairs = ends.reshape(-1, 2)
            pairs = pairs[np.append(True, pairs[1:, 0] > pairs[:-1, 1] + 1)]
            terms.append((attribute, len(set_start) - 1))
            intervals += pairs.tolist()
            set_start.append(len(intervals))
        start.append(len(terms))
    target = np.sort(draw.integers(0, number, number)).astype(np.int32)
    return Conjunctions(
        np.array(sizes, np.int32),
        np.array(set_start, np.int64),
        np.array(intervals, np.int32).reshape(-1, 2),
        np.array(start, np.int64),
        np.array(terms, np.int32).reshape(-1, 2),
        target,
        np.zeros(1, np.int32),
    )


def met_by(c: Conjunctions, offers: dict[int, np.ndarray]) -> list[int]:
    """By brute force: the rules of which each term has a code in the intervals that are offered."""
    met = set()
    for number, rule in enumerate(c.target.tolist()):
        held = True
        for attribute, which in c.terms[c.start[number] : c.start[number + 1]].tolist():
            own = c.intervals[c.set_start[which] : c.set_start[which + 1]]
            other = offers.get(attribute, np.empty((0, 2), np.int32))
            held &= bool(((own[:, None, 0] <= other[None, :, 1]) & (other[None, :, 0] <= own[:, None, 1])).any())
        if held:
            met.add(rule)
    return sorted(met)


@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("sizes", [[5] * 9, [200, 3, 1, 60], [70_000, 900, 4], [3_000] * 7], ids=str)
def test_lists_against_brute_force(sizes: list[int]) -> None:
    for seed in range(CASES):
        draw = np.random.default_rng([seed, *sizes])
        c = draw_conjunctions(draw, sizes, int(draw.choice([0, 1, 30, 200])))
        lists = AccessLists(c, np.concatenate([np.full(size, 1 / size) for size in sizes]))
        for _ in range(10):
            codes = np.array([draw.integers(0, size) for size in sizes], np.int32)
            found = lists.search(codes).tolist()
            assert found == met_by(c, {a: np.array([[x, x]]) for a, x in enumerate(codes.tolist())}), seed
            offers = {}
            for attribute in np.flatnonzero(draw.random(len(sizes)) < 0.7).tolist():
                ends = np.unique(draw.integers(0, sizes[attribute], int(draw.choice([1, 2, 8]))))
                offers[attribute] = np.repeat(ends, 2).reshape(-1, 2) if len(ends) % 2 else ends.reshape(-1, 2)
            start = np.cumsum([0, *map(len, offers.values())])
            intervals = np.concatenate([np.empty((0, 2), np.int32), *offers.values()]).astype(np.int32)
            event = (np.array([*offers], np.int32), start.astype(np.int64), intervals)
            assert lists.search_event(event).tolist() == met_by(c, offers), (seed, offers)


def test_more_matches_than_there_was_room_for() -> None:
    schema = pa.schema({"a": pa.int32(), "b": pa.int32()})
    rules = [(number, f"a > {number % 7} AND b <> 3") for number in range(20_000)]
    compiled = ri.compile_rules(rules, schema)
    assert compiled.match_one({"a": 9, "b": 1}) == [*range(20_000)]
    assert compiled.match_event("a = 1 AND b = 2") == [number for number in range(20_000) if number % 7 == 0]


COLUMNS = {
    "i": (pa.int16(), "i > 3 OR i = -4", [0, 3, 4, -4, 32767, -32768, 32768, 10**30, True, 1.0, np.int16(4), "4"]),
    "big": (pa.int64(), "big IN (1, 9, 100000000000) OR big > 2 AND big < 7",
            [0, 1, 3, 9, 10**11, 2**63 - 1, -(2**63), 2**63, None]),
    "f": (pa.float64(), "f > 0.5 OR f = -0.0",
          [0.0, -0.0, 0.5, 0.6, float("nan"), float("inf"), -float("inf"), 5e-324, 1, True, np.float64(0.7), "x"]),
    "g": (pa.float32(), "g > 0.1", [0.1, 0.10000000149011612, 0.2, float("nan"), 1e300]),
    "s": (pa.string(), "s = 'ab' OR s > 'b'", ["", "ab", "b", "bä", "\0", "\ud800", b"ab", 3, "a" * 10_000]),
    "n": (pa.binary(), "n > X'00'", [b"", b"\0", b"\0\0", bytearray(b"\1"), "x"]),
    "b": (pa.bool_(), "b", [True, False, 1, 0, None, np.bool_(True)]),
    "d": (pa.date32(), "d >= DATE'2024-02-29'", [date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31),
                                               datetime(2024, 3, 1), "2024-03-01"]),
    "m": (pa.decimal128(9, 2), "m >= 1.5", [Decimal("1.5"), Decimal("1.50"), Decimal("1.499"), Decimal("1E+5"), 2,
          1.5]),
    "t": (pa.timestamp("us", "UTC"), "t >= TIMESTAMP'2024-10-27 02:30:00'",
          [datetime(2024, 10, 27, 2, 30), datetime(2024, 10, 27, 2, 30, fold=1),
           datetime(2024, 10, 27, 0, 30, tzinfo=UTC),
           datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
           datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")), datetime(1, 1, 1, tzinfo=UTC),
           datetime.max.replace(tzinfo=UTC), datetime(2024, 10, 27, 2, 29, 59, 999_999) + timedelta(0)]),
    "u": (pa.timestamp("us"), "u = TIMESTAMP_NTZ'2024-03-31 02:30:00'",
          [datetime(2024, 3, 31, 2, 30), datetime(2024, 3, 31, 2, 30, fold=1), datetime(1, 1, 1), datetime.max,
           datetime(2024, 1, 1, tzinfo=UTC)]),
}  # fmt: skip
SCHEMA = pa.schema({name: kind for name, (kind, _, _) in COLUMNS.items()})


def answer(compiled: Any, row: dict[str, Any]) -> Any:
    try:
        return compiled.match_one(row)
    except ri.SchemaError as error:
        return str(error)


@pytest.mark.parametrize("most", [0, 2, row_codes.MOST_KNOWN])
def test_values_are_coded_as_a_table_of_them_would_be(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was asked before, and how much of it is remembered, changes no answer."""
    monkeypatch.setattr(row_codes, "MOST_KNOWN", most)
    for name, (_, text, values) in COLUMNS.items():
        rules = [(1, text), (2, f"{name} IS NULL")]
        slow = ri.compile_rules(rules, SCHEMA, time_zone="Europe/Berlin")
        monkeypatch.setattr(row_codes, "_plain", lambda *_: None)
        expected = [answer(slow, {name: value}) for value in values]
        monkeypatch.undo()
        monkeypatch.setattr(row_codes, "MOST_KNOWN", most)
        compiled = ri.compile_rules(rules, SCHEMA, time_zone="Europe/Berlin")
        for seed in range(4):
            order = random.Random(seed).sample(range(len(values)), len(values))
            for place in order:
                assert answer(compiled, {name: values[place]}) == expected[place], (name, values[place], order)
        assert compiled.match_one({name: None}) == [2]


def test_threads_share_one_index() -> None:
    schema = pa.schema({"a": pa.int32(), "s": pa.string()})
    rules = [(f"r{n:03}", f"a BETWEEN {n} AND {n + 20} AND s IN ('x{n % 9}', 'y')") for n in range(300)]
    compiled = ri.compile_rules(rules, schema)
    rows = [{"a": n % 330, "s": f"x{n % 11}"} for n in range(3_000)]
    expected = compiled.match(pa.Table.from_pylist(rows, schema)).to_pylist()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(compiled.match_one, rows)) == expected
