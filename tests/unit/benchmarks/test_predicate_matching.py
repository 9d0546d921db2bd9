"""Predicate matching: the worked cases of the paper, and every method against brute force over cells."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.implication import Setup, inserted
from benchmarks.papers.systems.disjunctive.box_bitmaps import BoxBitmaps
from benchmarks.papers.systems.disjunctive.box_trees import BoxTrees
from benchmarks.papers.systems.disjunctive.dimensions import compare_dimensions
from benchmarks.papers.systems.disjunctive.intervals import Conjunctive, Disjunction, Interval, Predicates, Space
from benchmarks.papers.systems.disjunctive.predicate_matching import Matching, Method, match, match_each
from benchmarks.papers.systems.disjunctive.row_evaluation import scan_evaluate
from rules_index.engines.r_tree.structure import RTree
from rules_index.implication.search_limits import Budget
from tests.unit.benchmarks.naive import Box, cells, widened
from tests.unit.implication.oracles import CASES

EXACT: Sequence[Method] = ("em_bfs", "em_dfs", "em_mix")
HEURISTICS: Sequence[Method] = ("hsr", "hcr")


def box(a: tuple[float, float] | None = None, b: tuple[float, float] | None = None) -> dict[str, Interval | None]:
    return {name: Interval(*ends) for name, ends in (("a", a), ("b", b)) if ends is not None}


B1, B2, B3 = box((3, 12), (0, 5)), box((9, 14), (2, 8)), box((0, 5), (1, 6))
P1, P1_OTHER = [B1, B2, B3], [B1, B2, box((0, 5), (3, 6))]
P2, P3 = [box((1, 8), (2, 4))], [box((4, 13), (7, 10))]


def encoded(query: Sequence[Conjunctive], stream: Sequence[Conjunctive]) -> tuple[Disjunction, Disjunction]:
    space = Space.of(query, stream)
    return space.encode(query), space.encode(stream)


def all_ways(
    query: Disjunction, stream: Disjunction, methods: Sequence[Method], quick_checks: Sequence[bool] = (True, False)
) -> Iterator[tuple[str, Matching]]:
    """Every method, with and without the quick check, with and without an index of either kind."""
    indexes = {"none": None, "tree": RTree.build(stream.sparse).tree(), "bitmaps": stream.index()}
    for method, quick_check, (kind, index) in itertools.product(methods, quick_checks, indexes.items()):
        name = f"{method}, {quick_check=}, index={kind}"
        yield name, match(query, stream, method, quick_check=quick_check, index=index)


def left(box: Conjunctive, *parts: Conjunctive) -> list[dict[str, Interval | None]]:
    """What algorithm 9 leaves of parts that are compared with a box."""
    space = Space.of([box], parts)
    stream, query = space.encode([box]), space.encode(parts)
    made = []
    for place in range(len(query)):
        made += list(compare_dimensions(stream.boxes, 0, stream.measures.rank, query.boxes[place : place + 1]))
    return space.decode(np.array(made, np.int32).reshape(-1, len(space.names), 2))


# K1 to K9: the worked cases; K10, of evaluation, is with the R-tree


def test_k1_a_query_that_two_boxes_cover_together() -> None:
    rest = {"a": Interval(1, 3, high_open=True), "b": Interval(2, 4)}
    assert left(B1, *P2) == [rest]
    assert left(B2, rest) == [rest]
    assert left(B3, rest) == []
    query, stream = encoded(P2, P1)
    for name, found in all_ways(query, stream, EXACT):
        assert found.implied is True and found.relaxed is stream and len(found.rest) == 0, name
    for name, found in all_ways(query, stream, ["hsr"]):
        assert found.implied is False and found.relaxed.decoded() == [*P1, *P2], name


def test_k2_what_stays_uncovered_is_told_and_the_query_is_added_whole() -> None:
    rest = {"a": Interval(1, 3, high_open=True), "b": Interval(2, 3, high_open=True)}
    for name, found in all_ways(*encoded(P2, P1_OTHER), EXACT):
        assert found.implied is False and found.rest.decoded() == [rest], name
        assert found.relaxed.decoded() == [*P1_OTHER, *P2], name


def test_k3_a_query_that_is_cut_in_two_dimensions() -> None:
    parts = [
        {"a": Interval(4, 9, high_open=True), "b": Interval(7, 10)},
        {"a": Interval(9, 13), "b": Interval(8, 10, low_open=True)},
    ]
    assert left(B1, *P3) == P3
    assert left(B2, *P3) == parts
    assert left(B3, *parts) == parts
    query, stream = encoded(P3, P1)
    assert match(query, stream, "em_bfs").rest.decoded() == parts
    for name, found in all_ways(query, stream, EXACT):
        assert found.implied is False and found.relaxed.decoded() == [*P1, *P3], name
        assert all(part in parts for part in found.rest.decoded()), name


@pytest.mark.parametrize(
    ("query", "stream", "sums", "replaced", "relaxed"),
    [
        (P2, P1, [10, 48, 15], 0, box((1, 12), (0, 5))),
        (P2, P1_OTHER, [10, 48, 17], 0, box((1, 12), (0, 5))),
        (P3, P1, [55, 50, 92], 1, box((4, 14), (2, 10))),
    ],
)
def test_k4_the_box_that_needs_least_relaxation_is_widened(
    query: list[Conjunctive],
    stream: list[Conjunctive],
    sums: list[float],
    replaced: int,
    relaxed: Conjunctive,
) -> None:
    found_sums = [widened(ends(each), ends(query[0]), ["a", "b"])[:2] for each in stream]
    assert found_sums == [(0, e) for e in sums]
    expected = [relaxed if place == replaced else each for place, each in enumerate(stream)]
    for name, found in all_ways(*encoded(query, stream), ["hcr"]):
        assert found.implied is False and found.relaxed.decoded() == expected, name


def test_k4_the_new_area_is_what_no_other_box_holds() -> None:
    query, stream = encoded(P2, P1)
    new = cells(match(query, stream, "hcr").relaxed) & ~cells(stream)
    assert stream.space.decode(boxes_of(new)) == [
        {"a": Interval(1, 3, high_open=True), "b": Interval(0, 1, high_open=True)}
    ]


def test_k5_a_subpredicate_is_compared_with_what_was_added_before_it() -> None:
    query, stream = encoded([*P3, box((5, 6), (8, 9))], P1)
    for name, found in (*all_ways(query, stream, EXACT), *all_ways(query, stream, ["hsr"], [True])):
        assert found.implied is False and len(found.relaxed) == 4, name
    for name, found in all_ways(query, stream, ["hsr"], [False]):
        assert found.implied is False and len(found.relaxed) == 5, name


def test_k6_a_dimension_that_the_query_does_not_name_is_unbounded() -> None:
    query, stream = encoded([box((1, 2))], [box((0, 10), (0, 5))])
    for name, found in all_ways(query, stream, (*EXACT, *HEURISTICS)):
        assert found.implied is False, name
    uncovered = [Interval(high=0, high_open=True), Interval(low=5, low_open=True), None]
    expected = query.space.encode([{"a": Interval(1, 2), "b": each} for each in uncovered])
    assert (cells(match(query, stream, "em_bfs").rest) == cells(expected)).all()
    assert match(*encoded([box((1, 2), (0, 5))], [box((0, 10))])).implied is True


def test_k7_fewer_infinite_ends_count_more_than_less_volume() -> None:
    stream = [box((0, 5)), box((0, 1), (0, 1))]
    query = [box((4, 6), (2, 3))]
    assert [widened(ends(each), ends(query[0]), ["a", "b"])[:2] for each in stream] == [(2, 1), (0, 17)]
    for name, found in all_ways(*encoded(query, stream), ["hcr"]):
        assert found.relaxed.decoded() == [stream[0], box((0, 6), (0, 3))], name


def test_k8_a_query_that_overlaps_nothing_does_not_match() -> None:
    query, stream = encoded([box((20, 21), (20, 21))], P1)
    for name, found in all_ways(query, stream, EXACT):
        assert found.implied is False and len(found.relaxed) == 4, name


def test_k9_the_first_case_on_region_codes() -> None:
    query, stream = encoded(P2, P1)
    # codes count from 1 in the worked case
    assert (query.boxes[0] + 1).tolist() == [[4, 10], [6, 8]]
    made = compare_dimensions(stream.boxes, 0, stream.measures.rank, query.boxes)
    assert (made + 1).tolist() == [[[4, 5], [6, 8]]]


def test_live_parts_stay_within_the_bounds_of_the_paper() -> None:
    d, n = 2, 3
    bounds = {"em_bfs": (2 * d) ** n, "em_dfs": (n - 1) * (2 * d - 1) + 2 * d}
    bounds["em_mix"] = (n - 2) * (2 * d - 1) * 2 * d + (2 * d) ** 2
    most = dict.fromkeys(bounds, 0)
    for seed in range(CASES):
        (query,), (stream,) = Setup(d, 1, n, 1, 1).draw(seed)
        for method in EXACT:
            most[method] = max(most[method], match(query, stream, method, quick_check=False).most_parts)
    assert most["em_dfs"] <= most["em_mix"] <= most["em_bfs"]
    assert all(1 < most[method] <= bound for method, bound in bounds.items())
    assert bounds == {"em_bfs": 64, "em_dfs": 10, "em_mix": 28}


# Random predicates against brute force

PAPER = Setup(queries=1, streams=1)
KINDS = {
    "matching": replace(PAPER, dimensions=3, query_boxes=2, stream_boxes=20),
    "few values": replace(PAPER, dimensions=3, query_boxes=2, stream_boxes=20, query_values=6, stream_values=4),
    "unbounded": replace(PAPER, dimensions=3, query_boxes=3, stream_boxes=30, unbounded=True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_exact_matching_is_right_and_heuristics_never_report_what_does_not_hold(kind: str) -> None:
    implied = missed = 0
    for seed in range(CASES):
        (query,), (stream,) = KINDS[kind].draw(seed)
        missed += assert_right(query, stream, seed)
        implied += bool((cells(query) <= cells(stream)).all())
    assert implied > CASES / 50 or kind == "matching"
    assert missed > 0 or kind != "unbounded"


def test_open_and_infinite_ends_integers_and_null() -> None:
    implied = 0
    for seed in range(CASES):
        choice = np.random.default_rng(seed)
        query, stream = ([odd(choice) for _ in range(count)] for count in (2, int(choice.integers(0, 12))))
        space = Space.of(query, stream, whole=("b",))
        given = space.encode(query), space.encode(stream)
        assert_right(*given, seed)
        implied += bool((cells(given[0]) <= cells(given[1])).all())
        if seed % 5:
            continue
        # what the codes say is what the intervals say, on values around every constant
        pool = [*(value / 2 for value in range(-3, 14)), math.nan]
        rows = np.array(
            [row for row in itertools.product(pool, repeat=len(space.names)) if whole(row, space)], float
        ).T.reshape(len(space.names), -1)
        found, _ = scan_evaluate(given[1].sparse, space.codes(rows))
        expected = [
            any(all(inside(dict(zip(space.names, row, strict=True))[n], i) for n, i in box.items()) for box in stream)
            for row in rows.T.tolist()
        ]
        assert found.tolist() == expected, seed
    assert implied > CASES / 50


def assert_right(query: Disjunction, stream: Disjunction, seed: int) -> int:
    """Compares all ways with brute force; returns 1 where the heuristics miss an implication."""
    expected = bool((cells(query) <= cells(stream)).all())
    for name, found in all_ways(query, stream, EXACT):
        assert found.implied is expected, (name, seed)
        if expected:
            assert found.relaxed is stream and len(found.rest) == 0, (name, seed)
            continue
        assert (cells(found.relaxed) == cells(query) | cells(stream)).all(), (name, seed)
        rest = cells(found.rest)
        assert rest.any() and not (rest & cells(stream)).any() and not (rest & ~cells(query)).any(), (name, seed)
    heuristic = set()
    for name, found in all_ways(query, stream, HEURISTICS, [True]):
        heuristic.add(found.implied)
        assert expected or not found.implied, (name, seed)
        assert not ((cells(query) | cells(stream)) & ~cells(found.relaxed)).any(), (name, seed)
        if found.implied:
            assert found.relaxed is stream, (name, seed)
        elif name.startswith("hsr"):
            assert (cells(found.relaxed) == cells(query) | cells(stream)).all(), (name, seed)
        else:
            assert len(found.relaxed) == len(stream) or len(stream) == 0, (name, seed)
    assert len(heuristic) == 1, "widening finds the implications that the quick check finds"
    return int(expected and heuristic == {False})


def test_widening_chooses_as_the_naive_twin_does() -> None:
    for seed in range(CASES):
        setup = replace(PAPER, dimensions=3, query_boxes=1, stream_boxes=6, unbounded=seed % 2 == 0)
        (query,), (stream,) = setup.draw(seed)
        given = [ends(each) for each in stream.decoded()]
        part = ends(query.decoded()[0])
        found = match(query, stream, "hcr")
        if found.implied:
            continue
        order = stream.order.tolist()
        trials = {place: widened(given[place], part, list(stream.space.names)) for place in order}
        best = min(order, key=lambda place: trials[place][:2])
        expected = [trials[best][2] if place == best else each for place, each in enumerate(given)]
        assert [ends(each) for each in found.relaxed.decoded()] == expected, seed


@pytest.mark.parametrize("split", ["quadratic", "r_star"])
def test_an_index_that_grew_by_insertion_answers_alike(split: str) -> None:
    for seed in range(CASES // 5):
        (query,), (stream,) = replace(PAPER, dimensions=4, unbounded=seed % 2 == 0).draw(seed)
        index = inserted(stream, split).tree()
        for method in EXACT:
            expected = match(query, stream, method)
            found = match(query, stream, method, index=index)
            assert found.implied == expected.implied and np.array_equal(found.relaxed.boxes, expected.relaxed.boxes)


def test_boxes_that_an_index_cannot_tell_apart_are_all_found() -> None:
    same = {f"d{d}": Interval(40 + d, 41 + d) for d in range(8)}
    stream = [{**same, "e": Interval(10 * i, 10 * i + 10)} for i in range(30)]
    query, given = encoded([{**same, "e": Interval(5, 295)}], stream)
    index = RTree.build(given.sparse, dimensions=np.arange(8)).tree()
    for method in EXACT:
        assert match(query, given, method, index=index).implied is True
        assert match(query, query.space.encode(stream[:-1]), method).implied is False


def test_several_queries_are_matched_as_each_alone_is() -> None:
    queries, streams = replace(PAPER, dimensions=3, queries=12, streams=3, unbounded=True).draw(3)
    together = Predicates.of(streams)
    trees = [RTree.build(each.sparse).tree() for each in streams]
    kinds = (
        (None, [None] * len(streams)),
        (BoxTrees.of(trees, together.start), trees),
        (together.index(), [each.index() for each in streams]),
    )
    for method, quick_check, (index, indexes) in itertools.product((*EXACT, *HEURISTICS), (True, False), kinds):
        found = match_each(Predicates.of(queries), together, method, quick_check=quick_check, index=index)
        alone = [
            match(query, stream, method, quick_check=quick_check, index=each)
            for stream, each in zip(streams, indexes, strict=True)
            for query in queries
        ]
        assert found.implied == [each.implied for each in alone]
        sums = np.add.reduceat(found.splits, found.start[:-1], axis=1).ravel().tolist()
        if isinstance(index, BoxBitmaps):
            # a corner that no box holds answers without a comparison where no rest is told
            assert all(few <= each.splits for few, each in zip(sums, alone, strict=True))
        else:
            assert sums == [each.splits for each in alone]


def test_a_spent_budget_leaves_the_answer_open_and_the_relaxed_predicate_right() -> None:
    left_open = 0
    for seed in range(CASES // 5):
        (query,), (stream,) = replace(PAPER, dimensions=3, query_values=6, stream_values=6).draw(seed)
        expected = match(query, stream).implied
        for method in EXACT:
            for budget in (Budget(splits=3), Budget(splits=30), Budget(seconds=60)):
                found = match(query, stream, method, budget=budget)
                assert found.implied in (None, expected) and found.splits < 2 * (budget.splits + 6)
                assert not (cells(query) & ~cells(found.relaxed)).any()
                left_open += found.implied is None
    assert left_open > 0


def test_a_clock_that_ran_out_is_noticed() -> None:
    (query,), (stream,) = replace(PAPER, dimensions=8, stream_boxes=400, stream_values=3, query_values=3).draw(0)
    whole = Disjunction(query.space, np.stack([np.zeros(8, np.int32), query.space.sizes - 1], axis=1)[None])
    found = match(whole, stream, "em_bfs", quick_check=False, budget=Budget(1 << 40, seconds=0.001))
    assert found.implied is None and len(found.relaxed) == 401


def test_nothing_implies_everything_and_is_implied_by_nothing() -> None:
    space = Space.of(P1)
    nothing, stream = space.encode([]), space.encode(P1)
    everything = space.encode([{}])
    for method in (*EXACT, *HEURISTICS):
        assert match(nothing, stream, method).implied is True
        assert match(stream, nothing, method).implied is False
        assert match(stream, everything, method).implied is True
        assert match(everything, stream, method).implied is False
    contradiction = space.encode([{"a": Interval(3, 3, low_open=True), "b": Interval(5, 0)}])
    assert len(contradiction) == 0


def test_predicates_over_different_spaces_and_unknown_constants_are_refused() -> None:
    with pytest.raises(ValueError, match="one space"):
        match(Space.of(P1).encode(P1), Space.of(P1, P2).encode(P1))
    with pytest.raises(ValueError, match=r"7.5 is not a constant"):
        Space.of(P1).encode([box((7.5, 8))])
    with pytest.raises(ValueError, match="holds NULL and some values"):
        Space.of(P1).decode(np.array([[[3, 13], [0, 1]]], np.int32))


# Boxes that no list of closed, finite intervals says


def odd(choice: np.random.Generator) -> dict[str, Interval | None]:
    found: dict[str, Interval | None] = {}
    for name in "abc":
        kind = choice.random()
        if kind < 0.15:
            found[name] = None
        elif kind < 0.8:
            low, high = np.sort(choice.integers(0, 6, 2)).tolist()
            opened = choice.random(2) < 0.4
            low, high = (end if choice.random() < 0.7 else far for end, far in ((low, -math.inf), (high, math.inf)))
            found[name] = Interval(low, high, bool(opened[0]), bool(opened[1]))
    return found


def inside(value: float, interval: Interval | None) -> bool:
    """Whether a value (NaN: NULL) lies in an interval (None: IS NULL)."""
    if interval is None or math.isnan(value):
        return interval is None and math.isnan(value)
    above = value > interval.low or (value == interval.low and not interval.low_open)
    return above and (value < interval.high or (value == interval.high and not interval.high_open))


def whole(row: Sequence[float], space: Space) -> bool:
    """Whether a row has an integer, or NULL, in dimension b."""
    return "b" not in space.names or not row[space.names.index("b")] % 1 > 0


def ends(conjunctive: Conjunctive) -> Box:
    return {name: (each.low, each.high) for name, each in conjunctive.items() if each is not None}


def boxes_of(found: np.ndarray) -> np.ndarray:
    """The box around cells [codes of each dimension] bool."""
    return np.array([[(places.min(), places.max()) for places in np.nonzero(found)]], np.int32)
