"""The bitmap index: look-ups against brute force, and matching by it against a scan, an R-tree and all cells."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numba
import numpy as np
import pytest

from benchmarks.implication import Setup
from benchmarks.papers.systems.disjunctive.box_bitmaps import BoxBitmaps, box_at, find_held, look_up
from benchmarks.papers.systems.disjunctive.box_trees import BoxTrees
from benchmarks.papers.systems.disjunctive.dimensions import APART, IMPLIED, OVERLAPS
from benchmarks.papers.systems.disjunctive.intervals import Disjunction, Interval, Predicates, Space
from benchmarks.papers.systems.disjunctive.predicate_matching import Method, match, match_each
from benchmarks.papers.systems.disjunctive.streams import ADDED, Stream, Streams, no_stream
from rules_index.engines.r_tree.structure import RTree
from rules_index.implication.search_limits import Budget
from tests.cases import QUICK
from tests.unit.benchmarks.naive import cells
from tests.unit.implication.oracles import CASES

EXACT: tuple[Method, ...] = ("em_bfs", "em_dfs", "em_mix")
METHODS: tuple[Method, ...] = (*EXACT, "hsr", "hcr")


@numba.njit
def look_up_all(
    parts: np.ndarray, stream: Stream, streams: Streams, at: int, bitmaps: BoxBitmaps, corners: bool
) -> np.ndarray:
    found = np.empty((len(parts), 2), np.int64)
    for part in range(len(parts)):
        found[part, 0], place = look_up(parts, part, stream, streams, at, bitmaps, corners)
        found[part, 1] = -1 if place < 0 else box_at(place, stream, streams, at)
    return found


@numba.njit
def find_all_held(queries: np.ndarray, start: np.ndarray, bitmaps: BoxBitmaps, held: np.ndarray) -> None:
    find_held(queries, start, bitmaps, held)


def drawn(seed: int) -> tuple[Predicates, list[Disjunction]]:
    """Queries, and stream predicates of 0 to 200 boxes over 1 to 7 dimensions, some of them unbounded."""
    choice = np.random.default_rng(seed)
    setup = Setup(
        dimensions=int(choice.integers(1, 8)),
        query_boxes=int(choice.integers(1, 5)),
        queries=4,
        query_values=int(choice.integers(2, 12)),
        stream_values=int(choice.integers(2, 12)),
        unbounded=seed % 2 == 0,
        streams=3,
        stream_boxes=200,
    )
    queries, streams = setup.draw(seed)
    sizes = choice.choice([0, 1, 2, 20, 63, 64, 65, 128, 200], len(streams))
    fewer = [Disjunction(each.space, each.boxes[:size]) for each, size in zip(streams, sizes, strict=True)]
    return Predicates.of(queries), fewer


def naive(part: np.ndarray, boxes: np.ndarray, corners: bool) -> tuple[int, int]:
    """What a look-up is to find among boxes in the order of work, and the place of the first that shares a row."""
    shares = ((boxes[:, :, 0] <= part[:, 1]) & (boxes[:, :, 1] >= part[:, 0])).all(axis=1)
    lowest, highest = (((boxes[:, :, 0] <= end) & (end <= boxes[:, :, 1])).all(axis=1) for end in part.T)
    if (lowest & highest).any():
        return IMPLIED, -1
    if not shares.any() or (corners and not (lowest.any() and highest.any())):
        return APART, -1
    return OVERLAPS, int(np.argmax(shares))


@pytest.mark.slow
def test_a_look_up_finds_what_brute_force_does_among_given_and_added_boxes() -> None:
    seen: dict[tuple[int, bool], int] = {}
    for seed in range(CASES):
        queries, given = drawn(seed)
        streams, parts = Predicates.of(given), queries.subpredicates.boxes
        stream = no_stream(streams.streams, queries.subpredicates.measures, streams.longest + queries.longest)
        added = [len(streams.subpredicates) + query for query in range(seed % 3) if query < queries.longest]
        stream.added_boxes[: len(added)], stream.counts[ADDED] = added, len(added)
        for (at, one), corners in itertools.product(enumerate(given), (False, True)):
            found = look_up_all(parts, stream, streams.streams, at, streams.index(), corners)
            boxes = np.concatenate([streams.start[at] + one.order, np.array(added, np.int64)])
            for part, (how, box) in zip(parts, found.tolist(), strict=True):
                expected, place = naive(part, stream.given.boxes[boxes], corners)
                assert (how, box) == (expected, boxes[place] if place >= 0 else -1), seed
                seen[how, corners] = seen.get((how, corners), 0) + 1
    assert all(seen[key] > CASES for key in itertools.product((APART, OVERLAPS, IMPLIED), (False, True)))
    assert seen[APART, True] > seen[APART, False]


@pytest.mark.slow
def test_corners_are_held_by_given_boxes_or_by_subpredicates_before() -> None:
    counts = np.zeros(2, np.int64)
    for seed in range(CASES):
        queries, given = drawn(seed)
        boxes, streams = queries.subpredicates.boxes, Predicates.of(given)
        held = np.empty((len(boxes), len(given)), np.bool_)
        find_all_held(boxes, queries.start, streams.index(), held)
        for box, (at, one) in itertools.product(range(len(boxes)), enumerate(given)):
            first = queries.start[queries.start <= box].max()
            holders = np.concatenate([one.boxes, boxes[first:box]])
            expected = all(
                ((holders[:, :, 0] <= corner) & (corner <= holders[:, :, 1])).all(axis=1).any()
                for corner in boxes[box].T
            )
            assert held[box, at] == expected, seed
            counts[int(expected)] += 1
    assert counts.min() > CASES


@pytest.mark.slow
def test_bitmaps_answer_as_a_scan_and_a_tree_do() -> None:
    implied = compared = 0
    for seed in range(CASES // 4):
        queries, given = drawn(seed)
        streams = Predicates.of(given)
        trees = BoxTrees.of([RTree.build(each.sparse).tree() for each in given], streams.start)
        for method, quick_check in itertools.product(METHODS, (True, False)):
            # breadth first cannot do without an index here
            scanned: Method = "em_dfs" if method in EXACT else method
            by_scan = match_each(queries, streams, scanned, quick_check=quick_check)
            by_tree = match_each(queries, streams, method, quick_check=quick_check, index=trees)
            found = match_each(queries, streams, method, quick_check=quick_check, index=streams.index())
            assert found.verdicts.tolist() == by_scan.verdicts.tolist() == by_tree.verdicts.tolist(), (seed, method)
            compared += int(found.splits.sum())
            implied += found.implied.count(True)
    assert QUICK or (implied > 0 and compared > CASES)


def test_bitmaps_answer_as_all_cells_do() -> None:
    implied = several = 0
    for seed in range(CASES):
        choice = np.random.default_rng(seed)
        setup = Setup(dimensions=3, query_boxes=3, queries=6, streams=1, query_values=6, unbounded=seed % 2 == 0)
        setup = replace(setup, stream_values=4, stream_boxes=int(choice.integers(1, 150)))
        queries, (stream,) = setup.draw(seed)
        expected = [bool((cells(query) <= cells(stream)).all()) for query in queries]
        for method in EXACT:
            found = match_each(Predicates.of(queries), stream.alone, method, index=stream.index())
            assert found.implied == expected, (seed, method)
            several += int(((found.verdicts == 1) & (found.splits > 0)).sum())
        implied += sum(expected)
    assert 0 < implied < 6 * CASES and several > 0


@pytest.mark.parametrize("more", [0, 1, 61, 62, 63, 126, 127])
def test_boxes_of_every_word_and_those_added_cover_a_part_together(more: int) -> None:
    """The stream is 0..1 and 2..3 and, before these in the order of work, `more` larger boxes that are elsewhere."""
    stream = [{"a": Interval(10 + i, 13 + i)} for i in range(more)] + [{"a": Interval(low, low + 1)} for low in (0, 2)]
    both, beyond = {"a": Interval(0, 3)}, {"a": Interval(0.5, 6)}
    space = Space.of(stream, [both, beyond, {"a": Interval(3, 6)}], whole=["a"])
    given, query = space.encode(stream), space.encode([both])
    for method in EXACT:
        assert match(query, given, method, index=given.index()).implied is True
        assert match(query, space.encode(stream[:-1]), method, index=space.encode(stream[:-1]).index()).implied is False
        # 3..6 is added, and 1..6 is covered by it and the boxes given
        grown = space.encode([{"a": Interval(3, 6)}, beyond])
        found = match_each(grown.alone, given.alone, method, index=given.index())
        assert found.verdicts.tolist() == [[0, 1]]
        relaxed = match(grown, given, method, index=given.index()).relaxed
        assert relaxed.boxes.tolist() == [*given.boxes.tolist(), grown.boxes[0].tolist()]


def test_what_matching_by_bitmaps_tells_is_what_a_scan_tells() -> None:
    for seed in range(CASES):
        values = 4 + seed % 16
        (query,), (stream,) = Setup(3, 3, 40, 1, 1, query_values=values, stream_values=values).draw(seed)
        for method, quick_check in itertools.product(METHODS, (True, False)):
            expected = match(query, stream, method, quick_check=quick_check)
            found = match(query, stream, method, quick_check=quick_check, index=stream.index())
            assert found.implied == expected.implied
            assert found.relaxed.boxes.tolist() == expected.relaxed.boxes.tolist(), (seed, method)
            assert found.splits <= expected.splits and found.most_parts <= expected.most_parts
            assert (len(found.rest) > 0) == (len(expected.rest) > 0)
            assert not (cells(found.rest) & cells(stream)).any() and not (cells(found.rest) & ~cells(query)).any()


@pytest.mark.slow
def test_a_budget_holds_with_bitmaps() -> None:
    left_open = 0
    for seed in range(CASES):
        (query,), (stream,) = Setup(4, 2, 200, 1, 1, query_values=6, stream_values=4).draw(seed)
        expected = match(query, stream).implied
        for method, splits in itertools.product(EXACT, (0, 1, 5)):
            found = match(query, stream, method, index=stream.index(), budget=Budget(splits=splits))
            # parts that are cut off together are compared together
            assert found.splits <= len(query) * (splits + 2 * 4)
            assert found.implied in (None, expected)
            assert not (cells(query) & ~cells(found.relaxed)).any()
            left_open += found.implied is None
    assert QUICK or left_open > CASES
