"""CEI, LCI and UI over one attribute: the paper's worked cases and formulae, and intervals under every change."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest

from benchmarks.papers.systems.cei import formulas
from benchmarks.papers.systems.cei.interval_index import IntervalIndex
from rules_index.engines.cei.constructs import Kind

KINDS: tuple[Kind, ...] = get_args(Kind)


def best_partition(s: int, e: int, post: int, length: int) -> list[int]:
    """Figure 6, as printed."""
    ids, rest = [], s
    local, size = s - post + length, 1
    while True:
        if local % 2 == 0 and rest + 2 * size <= e:
            local, size = local // 2, 2 * size
        else:
            ids.append(2 * post + local)
            rest += size
            if rest == e:
                return ids
            local, size = rest - post + length, 1


def decomposition(a: int, b: int, length: int) -> list[int]:
    """Figure 6, as printed, with the whole segments between the remnants."""
    left, right = length * math.ceil(a / length), length * (b // length)
    if left > right:
        return best_partition(a, b, right, length)
    ids = best_partition(a, left, left - length, length) if a < left else []
    ids += [2 * post + 1 for post in range(left, right, length)]
    return ids + (best_partition(right, b, right, length) if right < b else [])


def every_interval(r: int) -> tuple[np.ndarray, np.ndarray]:
    """All [a, b) within [0, r)."""
    a, b = np.triu_indices(r + 1, 1)
    return a, b


def counts(index: IntervalIndex, starts: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Numbers of pieces [starts, widths]."""
    a = np.repeat(starts, len(widths))
    offsets, _ = index.decompose(a, a + np.tile(widths, len(starts)))
    return np.diff(offsets).reshape(len(starts), len(widths))


@pytest.mark.parametrize(
    ("a", "b", "ids"),
    [
        (8, 14, [18, 22]),
        (11, 15, [27, 22, 30]),
        (3, 14, [11, 3, 18, 22]),
        (5, 21, [13, 7, 17, 34, 44]),
        (0, 16, [1, 17]),
        (7, 9, [15, 24]),
        (6, 24, [7, 17, 33]),
    ],
)
def test_the_papers_intervals_are_cut_as_in_figures_6_and_7(a: int, b: int, ids: list[int]) -> None:
    index = IntervalIndex(24, 8)
    assert index.decompose(np.array([a]), np.array([b]))[1].tolist() == ids == decomposition(a, b, 8)


def test_one_interval_costs_different_numbers_of_constructs() -> None:
    pieces = {kind: int(counts(IntervalIndex(16, 8, kind), np.array([3]), np.array([11]))[0, 0]) for kind in KINDS}
    assert pieces == {"cei": 4, "lci": 3, "ui": 11}


@pytest.mark.parametrize("length", [2, 4, 8, 16, 32])
def test_every_interval_is_cut_as_printed_and_into_as_few_pieces_as_can_be(length: int) -> None:
    r = 64
    a, b = every_interval(r)
    offsets, ids = IntervalIndex(r, length).decompose(a, b)
    ends = [[s + 2**j for j in range(length.bit_length()) if s % 2**j == 0 and s + 2**j <= r] for s in range(r)]
    fewest = np.full((r + 1, r + 1), r + 1)
    for end in range(1, r + 1):
        fewest[end, end] = 0
        for start in range(end - 1, -1, -1):
            fewest[start, end] = 1 + min(fewest[middle, end] for middle in ends[start] if middle <= end)
    for i in range(len(a)):
        found = ids[offsets[i] : offsets[i + 1]].tolist()
        assert found == decomposition(int(a[i]), int(b[i]), length) and len(found) == fewest[a[i], b[i]]


def test_the_index_of_figure_10_finds_all_four_queries() -> None:
    index = IntervalIndex(4, 4)
    intervals = {1: (0, 4), 2: (1, 3), 3: (1, 4), 4: (0, 3)}
    ids = {q: index.decompose(np.array([a]), np.array([b]))[1].tolist() for q, (a, b) in intervals.items()}
    assert ids == {1: [1], 2: [5, 6], 3: [5, 3], 4: [2, 6]}
    for q, (a, b) in intervals.items():
        index.insert(q, a, b)
    assert index.covering_ids(1.5) == [5, 2, 1] and sorted(index.search(1.5)) == [1, 2, 3, 4]


def test_a_search_reads_the_lists_of_the_constructs_that_hold_the_value() -> None:
    assert IntervalIndex(16, 8).covering_ids(12.5) == [28, 22, 19, 17]
    starts = [[12], [12, 11], [12, 11, 10, 9], list(range(12, 4, -1))]
    expected = [start * 4 + j for j, of_length in enumerate(starts) for start in of_length]
    assert IntervalIndex(16, 8, "lci").covering_ids(12.5) == expected
    assert IntervalIndex(16, 8, "ui").covering_ids(12.5) == [12]
    for kind in KINDS:
        assert len(expected) == 15 and formulas.covering_constructs(kind, 8) == {"cei": 4, "lci": 15, "ui": 1}[kind]


@pytest.mark.parametrize(
    ("length", "totals"),
    [(4, [4, 27, 46, 62, 78]), (8, [8, 145, 236, 300, 364]), (16, [16, 761, 1176, 1432, 1688])],
)
def test_totals_over_a_segment_are_those_of_the_lemmas(length: int, totals: list[int]) -> None:
    of_width = counts(
        IntervalIndex(8 * length, length), np.arange(2 * length, 3 * length), np.arange(1, 4 * length + 1)
    ).sum(axis=0)
    measured = [of_width[0], *(of_width[i * length : (i + 1) * length].sum() for i in range(4))]
    assert measured == totals
    assert measured[1] == formulas.cei_total(1, length) and sum(measured[1:]) == formulas.cei_total(4, length)
    assert measured[2:] == [formulas.cei_total_of_multiple(i, length) for i in (1, 2, 3)]
    for j in range(1, formulas.log(length) + 1):
        assert of_width[length >> j : length >> (j - 1)].sum() == formulas.cei_total_of_fraction(j, length)


@pytest.mark.parametrize(("length", "totals"), [(8, [13, 21, 29]), (16, [33, 49, 65])])
def test_totals_of_lci_are_those_of_the_lemmas(length: int, totals: list[int]) -> None:
    of_width = counts(IntervalIndex(8 * length, length, "lci"), np.array([5]), np.arange(1, 3 * length + 1))[0]
    measured = [int(of_width[i * length : (i + 1) * length].sum()) for i in range(3)]
    assert measured == totals == [formulas.lci_total_of_multiple(i, length) for i in range(3)]
    assert sum(measured) == formulas.lci_total(3, length)


@pytest.mark.parametrize(
    ("kind", "length", "lower", "mean", "upper"),
    [
        ("cei", 8, 14.671, 14.671, 15.778),
        ("cei", 16, 8.680, 9.294, 9.928),
        ("cei", 32, 6.643, 7.050, 8.330),
        ("lci", 16, 7.260, 7.805, 8.385),
        ("ui", 1, 100.5, 100.5, 100.5),
    ],
)
def test_pieces_per_interval_lie_within_table_2(
    kind: Kind, length: int, lower: float, mean: float, upper: float
) -> None:
    measured = counts(IntervalIndex(1024, length, kind), np.arange(length), np.arange(1, 201)).mean()
    found = (*formulas.mu_bounds(kind, length, 200), measured)
    assert found == pytest.approx((lower, upper, mean), abs=0.0005)


def test_table_2_says_nothing_of_intervals_shorter_than_a_segment() -> None:
    means = [counts(IntervalIndex(64, 16, kind), np.arange(16), np.arange(1, 11)).mean() for kind in KINDS]
    assert means == pytest.approx([2.475, 1.7, 5.5])
    with pytest.raises(ValueError, match="W >= L"):
        formulas.mu_bounds("cei", 16, 10)


def test_bytes_follow_the_papers_formula() -> None:
    kinds: list[tuple[Kind, float]] = [("cei", 9.294), ("lci", 7.805)]
    megabytes = {
        (kind, r): formulas.storage_bytes(formulas.constructs(kind, r, 16), 100_000, mu) / 1e6
        for kind, mu in kinds
        for r in (65_536, 1_048_576)
    }
    expected = {("cei", 65_536): 7.94, ("lci", 65_536): 7.55, ("cei", 1_048_576): 15.56, ("lci", 1_048_576): 27.22}
    assert megabytes == pytest.approx(expected, abs=0.005)
    assert formulas.constructs("ui", 100, 4) == 100


@pytest.mark.parametrize("kind", KINDS)
def test_random_intervals_take_the_pieces_that_table_2_promises(kind: Kind) -> None:
    random = np.random.default_rng(1)
    a = random.integers(1, 65_000, 20_000)
    index = IntervalIndex.build(65_536, a, a + random.integers(1, 201, len(a)), segment_length=16, kind=kind)
    lower, upper = formulas.mu_bounds(kind, 16, 200)
    assert 0.98 * lower <= index.pieces / len(a) <= 1.02 * upper


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_end_is_found_at_the_integer_and_not_beyond(kind: Kind) -> None:
    index = IntervalIndex(16, 8, kind)
    index.insert(7, 8, 14, closed=True)
    index.check()
    assert index.pieces == 1 + int(counts(index, np.array([8]), np.array([6]))[0, 0])
    assert [index.search(x).tolist() for x in (7.9, 8, 13.5, 14, 14.5)] == [[], [7], [7], [7], []]


@pytest.mark.parametrize("kind", KINDS)
def test_the_intervals_of_figure_1_are_stabbed_at_two_values(kind: Kind) -> None:
    # ends ours: the figure is lost, its two answers are not
    ends = {1: (2, 9), 2: (9, 20), 3: (5, 8), 4: (11, 14), 5: (20, 24), 6: (12, 18), 7: (6, 10), 8: (8, 13), 9: (1, 22)}
    index = IntervalIndex(24, 8, kind)
    for q, (a, b) in ends.items():
        index.insert(q, a, b)
    assert sorted(index.search(7.5)) == [1, 3, 7, 9] and sorted(index.search(12.25)) == [2, 4, 6, 8, 9]


@pytest.mark.parametrize("kind", KINDS)
def test_an_open_ended_interval_has_a_bounded_number_of_pieces(kind: Kind) -> None:
    for length in (1, 2, 4, 8, 16, 32, 64):
        index = IntervalIndex(61, length, kind)
        pieces = [int(counts(index, np.array([a]), np.array([index.r - a]))[0, 0]) for a in range(index.r)]
        assert max(pieces) == index.most_pieces_of_open_ended
        if kind != "ui" and index.r == length > 1:
            assert max(pieces) == math.log2(length)
    index.insert(3, 17)
    assert [index.search(x).tolist() for x in (16.5, 17, 60)] == [[], [3], [3]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("segment_length", [0, 1, 4, 32])
def test_an_interval_index_agrees_with_brute_force_under_every_change(kind: Kind, segment_length: int) -> None:
    random = np.random.default_rng(segment_length)
    for r in (1, 2, 37, 300):
        index = IntervalIndex(r, segment_length, kind)
        live: dict[int, tuple[int, int, bool]] = {}
        for step in range(60):
            if live and random.random() < 0.4:
                key = int(random.choice(list(live)))
                index.delete(key)
                del live[key]
            else:
                a, closed = int(random.integers(0, r)), bool(random.random() < 0.3)
                b = int(random.integers(a, r)) if closed else int(random.integers(a + 1, r + 1))
                live[step] = (a, b, closed)
                index.insert(step, a, b, closed)
            index.check()
            x = np.append(random.uniform(0, r, 4), random.integers(0, r, 4))
            offsets, keys = index.search_many(x)
            for i in range(len(x)):
                expected = [q for q, (a, b, closed) in live.items() if a <= x[i] < b or (closed and x[i] == b)]
                assert sorted(keys[offsets[i] : offsets[i + 1]].tolist()) == sorted(expected)


def test_an_interval_index_built_at_once_equals_one_that_grew() -> None:
    random = np.random.default_rng(5)
    a = random.integers(0, 900, 500)
    b, closed = a + random.integers(1, 100, 500), random.random(500) < 0.5
    built, grown = IntervalIndex.build(1000, a, b, closed, 16), IntervalIndex(1000, 16)
    for key in range(500):
        grown.insert(key, int(a[key]), int(b[key]), bool(closed[key]))
    built.check()
    for x in np.append(random.uniform(0, 1000, 100), np.arange(1000)):
        assert sorted(built.search(float(x))) == sorted(grown.search(float(x)))


def test_an_interval_index_refuses_what_it_cannot_hold() -> None:
    index = IntervalIndex(16, 8)
    index.insert(0, 1, 5)
    for key, a, b in ((0, 2, 3), (-1, 2, 3), (1, 3, 3), (1, 5, 4), (1, -1, 4), (1, 4, 17)):
        with pytest.raises(ValueError, match=r"key|interval"):
            index.insert(key, a, b)
    with pytest.raises(KeyError):
        index.delete(1)
    with pytest.raises(ValueError, match="domain"):
        index.search(16)
    with pytest.raises(ValueError, match="power of two"):
        IntervalIndex(16, 6)
    with pytest.raises(ValueError, match="at least one"):
        IntervalIndex(0)
