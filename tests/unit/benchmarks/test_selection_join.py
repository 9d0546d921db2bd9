"""The paper's join, row by row: its worked cases, and agreement with brute force whatever the order of arrival."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rules_index as ri
from benchmarks.papers.systems.pdfa.join_buffer import JoinBuffer
from benchmarks.papers.systems.pdfa.selection_join import SelectionJoin
from rules_index.index.boxes import Boxes, boxes_of
from rules_index.index.conjunction_arrays import Conjunctions
from tests.cases import QUICK, cases

CASES = cases(100, "DELTATAG_PDFA_CASES")
"""Random systems for each search."""
SEARCHES = ["list", "naive", "scan"]
FAR = 1 << 40
SYSTEMS = [(index, search) for index in ("r_tree", "grid_file") for search in SEARCHES]


def boxes_from(sizes: list[int], bounds: list[dict[int, tuple[int, int]]]) -> Boxes:
    """Boxes by attribute: closed low and high code."""
    terms = [(a, *ends) for box in bounds for a, ends in sorted(box.items())]
    columns = np.array(terms, np.int32).reshape(-1, 3).T
    start = np.cumsum([0, *(len(box) for box in bounds)])
    return Boxes(np.array(sizes, np.int32), start, *(column.copy() for column in columns))


def codes(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def lists(found: Any) -> list[list[int]]:
    return [part.tolist() for part in np.split(found.keys, found.offsets[1:-1])] if len(found.rows) else []


P2 = [{0: (5, 10), 1: (0, 5)}, {0: (0, 6), 1: (0, 15)}, {0: (7, 15), 1: (8, 15)}, {0: (7, 7), 1: (4, 6)}]
"""Q1 to Q4 on x of S1 and y of S2, of the domain 0..15."""


@pytest.mark.parametrize(("index", "search"), SYSTEMS)
def test_p2_one_first_search_and_a_second_for_each_joined_row(index: Any, search: Any) -> None:
    system = SelectionJoin(boxes_from([16, 16], P2), [0, 1], [FAR, FAR], index=index, search=search)
    for arrival, (key, y) in enumerate([(1, 3), (1, 9), (1, 5), (2, 5)]):
        assert len(system.arrive(1, key, arrival, codes(y)).rows) == 0
    found = system.arrive(0, 1, 4, codes(7))
    assert found.rows.tolist() == [[0, 0], [0, 1], [0, 2]]
    assert lists(found) == [[0], [2], [0, 3]]
    counters = system.counters
    assert counters["joined_rows"] == 3
    expected = (0, 0) if search in ("naive", "scan") else (1, 3)
    assert (counters["first"], counters["second"]) == expected
    if search == "list":
        # the whole tree is one leaf of four boxes; three of them survive, and are checked with each joined row
        assert counters["entries"] == 4 + 3 * 3
    if search == "naive":
        assert counters["entries"] == 3 * 4


@pytest.mark.parametrize(("index", "search"), SYSTEMS)
def test_p3_a_row_of_the_other_stream_arriving_last_gives_the_same_pairs(index: Any, search: Any) -> None:
    system = SelectionJoin(boxes_from([16, 16], P2), [0, 1], [FAR, FAR], index=index, search=search)
    system.arrive(0, 1, 0, codes(7))
    found = [system.arrive(1, key, 1 + i, codes(y)) for i, (key, y) in enumerate([(1, 3), (1, 9), (1, 5), (2, 5)])]
    assert [lists(each) for each in found] == [[[0]], [[2]], [[0, 3]], []]
    assert system.counters["first"] == (0 if search in ("naive", "scan") else 3)


@pytest.mark.parametrize(("index", "search"), SYSTEMS)
def test_p4_a_row_without_a_partner_is_kept_and_needs_no_search(index: Any, search: Any) -> None:
    system = SelectionJoin(boxes_from([16, 16], P2), [0, 1], [FAR, FAR], index=index, search=search)
    assert len(system.arrive(0, 1, 0, codes(7)).rows) == 0
    assert len(system.arrive(0, -1, 0, codes(7)).rows) == 0
    assert set(system.counters.values()) == {0}
    assert len(system.buffer) == 1


@pytest.mark.parametrize("index", ["r_tree", "grid_file"])
def test_p1_the_query_of_the_introduction(index: Any) -> None:
    trading = pa.struct([("name", pa.string()), ("price", pa.int32()), ("productionArea", pa.string())])
    weather = pa.struct(
        [("event", pa.string()), ("area", pa.string()), ("category", pa.int32()), ("date", pa.date32())]
    )
    query = (
        "T.name = 'orange' AND T.price < 25 AND W.event = 'hurricane' AND W.category > 4 AND W.date < DATE'2005-08-01'"
    )
    anywhere = " OR ".join(f"{column} IS NOT NULL" for column in ("T.productionArea", "W.area"))
    compiled = ri.compile_rules([("q", query), ("all", anywhere)], pa.schema([("T", trading), ("W", weather)]))
    arrays = compiled.index.arrays
    boxes = boxes_of(Conjunctions(**{name: arrays[name] for name in Conjunctions.__dataclass_fields__}))
    names = [leaf.name for leaf in compiled.attributes]  # type: ignore[union-attr]
    stream_of = [0 if name.startswith("T") else 1 for name in names]
    assert len(names) == 7
    system = SelectionJoin(boxes, stream_of, [FAR, FAR], index=index, dimensions=range(7))
    # boxes in 7 dimensions, points in 14: the low and the high side of each
    assert system.index.nodes.bounds.shape[1] == 14

    types = list(enumerate((trading, weather)))

    def arrive(stream: int, key: int, **row: Any) -> list[list[str]]:
        given = [{field.name: row.get(field.name) if place == stream else None for field in of} for place, of in types]
        table = pa.table([pa.array([each], of) for each, (_, of) in zip(given, types, strict=True)], names=["T", "W"])
        row_codes = compiled.codes(table)[0][np.array(stream_of) == stream, 0]
        found = lists(system.arrive(stream, key, 0, row_codes))
        rules = compiled.ids.take(pa.array(arrays["target"]))
        return [sorted({rules[key].as_py() for key in keys}) for keys in found]

    hurricane = {"event": "hurricane", "area": "Florida", "category": 5, "date": 12_000}
    assert arrive(1, 1, **hurricane) == []
    assert arrive(1, 2, **hurricane | {"area": "Spain"}) == []
    assert arrive(0, 1, name="orange", price=24, productionArea="Florida") == [["all", "q"]]
    assert arrive(0, 1, name="orange", price=25, productionArea="Florida") == [["all"]]
    assert arrive(1, 1, **hurricane | {"category": 4}) == [["all"], ["all"]]


class Rows:
    """Rows of some streams as they arrive, and all joined rows by the contract."""

    def __init__(self, seed: int) -> None:
        random = self.random = np.random.default_rng(seed)
        self.streams = int(random.integers(2, 5))
        self.stream_of = np.repeat(np.arange(self.streams), random.integers(1, 4, self.streams))
        random.shuffle(self.stream_of)
        self.sizes = random.choice([2, 5, 16, 300], len(self.stream_of)).tolist()
        self.windows = random.choice([0, 5, 20, FAR], self.streams).tolist()
        self.boxes = [self._box() for _ in range(random.choice([0, 1, 30, 400]))]
        count = {2: 60, 3: 24, 4: 14}[self.streams]
        self.stream = random.integers(0, self.streams, count)
        self.key = random.integers(-1, 2, count)
        self.time = random.permutation(count) // random.choice([1, 3])
        self.codes = [
            random.integers(0, [self.sizes[a] for a in np.flatnonzero(self.stream_of == s)]).astype(np.int32)
            for s in self.stream
        ]

    def _box(self) -> dict[int, tuple[int, int]]:
        chosen = np.flatnonzero(self.random.random(len(self.sizes)) < 0.6)
        ends = [sorted(self.random.integers(0, self.sizes[a], 2).tolist()) for a in chosen]
        return {int(a): (low, high) for a, (low, high) in zip(chosen, ends, strict=True)}

    def arrivals(self) -> list[int]:
        """Of each row, the number of its arrival within its stream; rows without a key have none."""
        counts = [0] * self.streams
        numbers = []
        for stream, key in zip(self.stream.tolist(), self.key.tolist(), strict=True):
            numbers.append(counts[stream])
            counts[stream] += key >= 0
        return numbers

    def expected(self) -> dict[tuple[int, ...], list[int]]:
        number = self.arrivals()
        found = {}
        for rows in product(*(np.flatnonzero((self.stream == s) & (self.key >= 0)) for s in range(self.streams))):
            times = [int(self.time[row]) for row in rows]
            windows = zip(times, self.windows, strict=True)
            if len({int(self.key[row]) for row in rows}) == 1 and all(max(times) - w <= t for t, w in windows):
                row_codes = np.empty(len(self.sizes), np.int32)
                for stream, row in enumerate(rows):
                    row_codes[self.stream_of == stream] = self.codes[row]
                found[tuple(number[row] for row in rows)] = [
                    key
                    for key, box in enumerate(self.boxes)
                    if all(low <= row_codes[a] <= high for a, (low, high) in box.items())
                ]
        return found

    def run(self, **parameters: Any) -> tuple[dict[tuple[int, ...], list[int]], SelectionJoin]:
        boxes = boxes_from(self.sizes, self.boxes)
        system = SelectionJoin(boxes, self.stream_of, self.windows, dimensions=range(len(self.sizes)), **parameters)
        found: dict[tuple[int, ...], list[int]] = {}
        given = zip(self.stream.tolist(), self.key.tolist(), self.time.tolist(), self.codes, strict=True)
        for stream, key, time, row in given:
            arrival = system.arrive(stream, key, time, row)
            more = dict(zip(map(tuple, arrival.rows.tolist()), lists(arrival), strict=True))
            assert len(more) == len(arrival.rows) and not found.keys() & more.keys()
            found |= more
        return found, system


@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize(("index", "search"), SYSTEMS)
def test_rows_in_any_order_meet_all_that_the_window_allows(index: Any, search: Any) -> None:
    joined = 0
    for seed in range(CASES):
        rows = Rows(seed)
        found, system = rows.run(index=index, search=search)
        assert found == rows.expected(), seed
        assert system.counters["joined_rows"] == len(found)
        joined += len(found)
    assert QUICK or joined > 20 * CASES


@pytest.mark.slow
def test_rows_expire_only_when_none_within_the_lateness_can_join_them() -> None:
    kept = 0
    for seed in range(4 * CASES):
        rows = Rows(seed)
        lateness = int(rows.random.integers(0, 6))
        # each row is at most `lateness` behind the latest before it
        order = np.argsort(rows.time + rows.random.random(len(rows.time)) * (lateness + 0.5), kind="stable")
        rows.stream, rows.key, rows.time = rows.stream[order], rows.key[order], rows.time[order]
        rows.codes = [rows.codes[at] for at in order]
        assert (np.maximum.accumulate(rows.time) - rows.time).max() <= lateness
        found, system = rows.run(lateness=lateness)
        assert found == rows.expected(), seed
        kept += len(system.buffer)
    assert kept < sum(int((Rows(seed).key >= 0).sum()) for seed in range(4 * CASES))


def test_an_index_of_queries_may_change_between_rows() -> None:
    boxes = boxes_from([16, 16], P2)
    for search in SEARCHES:
        system = SelectionJoin(boxes, [0, 1], [FAR, FAR], search=search)  # type: ignore[arg-type]
        system.arrive(1, 1, 0, codes(5))
        assert lists(system.arrive(0, 1, 1, codes(7))) == [[0, 3]]
        system.index.delete(0)
        for key in range(10, 100):
            system.index.insert(key, codes(0, 1), codes(7, key % 16), codes(7, key % 16))
        assert lists(system.arrive(0, 1, 2, codes(7))) == [[3, *range(21, 100, 16)]]


def test_a_join_buffer_keeps_rows_by_key_and_lets_the_oldest_go() -> None:
    random = np.random.default_rng(5)
    buffer = JoinBuffer([1])
    kept: list[tuple[int, int, int, int]] = []
    for arrival in range(3_000):
        key, time = int(random.integers(0, 1 + arrival // 10)), arrival + int(random.integers(0, 20))
        assert buffer.insert(0, key, time, codes(arrival % 7)) == arrival
        kept.append((arrival, key, time, arrival % 7))
        if random.random() < 0.2:
            before = arrival - int(random.choice([0, 50, 700]))
            buffer.expire(0, before)
            while kept and kept[0][2] < before:
                kept.pop(0)
        assert len(buffer) == len(kept)
        low = arrival - int(random.integers(0, 900))
        found = buffer.probe(0, key, low, arrival + 10)
        expected = [row for row in kept if row[1] == key and low <= row[2] <= arrival + 10]
        assert found.tolist() == [row[0] for row in expected]
        assert buffer.times(0, found).tolist() == [row[2] for row in expected]
        assert buffer.codes(0, found)[:, 0].tolist() == [row[3] for row in expected]


def test_attributes_of_no_stream_are_refused() -> None:
    with pytest.raises(ValueError, match="one of the streams"):
        SelectionJoin(boxes_from([4, 4], []), [0, 2], [0, 0])
