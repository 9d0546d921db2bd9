"""Orders of attribute selection constructs: searches for them beside naive ones, and when they are searched anew."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.papers.systems.asc.adaptive import AdaptiveSearch
from benchmarks.papers.systems.asc.hybrid import HybridSearch, candidate_arrows
from benchmarks.papers.systems.asc.macro import MacroSearch
from rules_index.engines.asc.constructs import SelectionConstructs
from tests.unit.engines.constructs import (
    A1,
    A2,
    A3,
    A4,
    CODES,
    Play,
    Sets,
    arrays_of,
    conjunctions,
    micro_arrows,
    worked_example,
)


def test_candidate_arrows_are_those_of_figure_2() -> None:
    example = worked_example()
    b = example.bitmaps
    cab = candidate_arrows(b.qrb, b.qub, b.region_at, example.sizes, b.words)
    found = [" ".join("".join(map(str, region)) for region in cab[5 * a : 5 * a + 5]) for a in range(4)]
    assert found == [
        "0111 0111 0111 0111 0101",
        "1011 1011 1010 1011 1011",
        "1101 0101 0101 1101 1101",
        "1110 1010 1010 1010 1110",
    ]


def test_candidate_arrows_agree_with_their_definition() -> None:
    for seed in range(20):
        constructs = Play(seed, least=1).build(40)
        b = constructs.bitmaps
        cab = candidate_arrows(b.qrb, b.qub, b.region_at, constructs.sizes, b.words)
        for a in constructs.attributes.tolist():
            begin = int(b.region_at[a])
            expected = [
                (constructs.qrb_of(a) & constructs.qub_of(other)).any(axis=1) & (other != a)
                for other in range(len(constructs.sizes))
            ]
            assert np.array_equal(cab[begin : begin + int(constructs.sizes[a])], np.stack(expected, axis=1))


def test_the_macro_search_chooses_as_in_example_5() -> None:
    example = worked_example()
    search = MacroSearch(example, tau=1)
    assert search.remaining == 3
    search.observe(CODES[:, :3])
    assert search.remaining == 0
    found = [(c.attributes.tolist(), c.values.tolist(), c.covering, c.chosen) for c in search.choices]
    assert found == [
        ([A1, A2, A3, A4], [3 / 4, 1 / 2, 3 / 4, 3 / 4], False, A2),
        ([A1, A3, A4], [0, 1 / 2, 1], False, A1),
        ([A3, A4], [1, 0], True, A3),
    ]
    assert search.macro.tolist() == [A2, A1, A3, A4] and search.cover == 2


def test_the_hybrid_search_finds_the_micro_arrows_of_examples_6_and_7() -> None:
    example = worked_example()
    search = HybridSearch(example, np.arange(4), tau=1)
    for period, t in enumerate((4, 5, 2)):
        assert search.remaining == 3 - period
        search.observe(CODES[:, [t - 1]])
    assert search.remaining == 0 and np.array_equal(search.order.arrows, micro_arrows())


def test_searches_refuse_what_they_cannot_observe() -> None:
    example = worked_example()
    row = np.array([0, 0, 5, 0], np.int32)
    for search in (MacroSearch(example, 1), HybridSearch(example, np.arange(4), 1)):
        with pytest.raises(ValueError, match="codes"):
            search.observe(row[:, None])
    with pytest.raises(ValueError, match="tau"):
        MacroSearch(example, 0)
    with pytest.raises(ValueError, match="tau"):
        HybridSearch(example, np.arange(4), 0)
    with pytest.raises(ValueError, match="fit"):
        AdaptiveSearch(example, lambda_=5)
    example.check()


def grb_after(constructs: SelectionConstructs, row: np.ndarray, path: list[int]) -> np.ndarray:
    """GRB [live conjunctions] bool."""
    grb = np.ones(64 * len(constructs.bitmaps.live), bool)
    for a in path:
        grb &= constructs.qrb_of(a)[row[a]]
    return grb


def naive_macro(constructs: SelectionConstructs, rows: np.ndarray, tau: int) -> list[int]:
    """Definitions 3 and 4, straight."""
    found: list[int] = []
    left = constructs.attributes.tolist()
    live = np.any([constructs.qub_of(a) for a in left], axis=0)
    alone: dict[int, float] = {}
    while len(left) > 1:
        period, rows = rows[:, :tau].T, rows[:, tau:]
        covered = np.any([constructs.qub_of(a) for a in found], axis=0) if found else np.zeros_like(live)
        uncovered = live & ~covered
        grb = {a: np.array([grb_after(constructs, row, [*found, a]) for row in period]) for a in left}
        selectivity = {a: grb[a][:, uncovered].sum() / max(1, uncovered.sum() * tau) for a in left}
        dropping = {a: np.mean(~grb[a].any(axis=1)) for a in left}
        alone = alone or selectivity
        in_phase_1 = uncovered.any()
        found.append(min(left, key=lambda a: selectivity[a] if in_phase_1 else (-dropping[a], alone[a])))
        left.remove(found[-1])
    return found + left


def test_the_macro_search_agrees_with_the_definitions() -> None:
    for seed in range(25):
        play = Play(seed, attributes=6, least=1)
        constructs = play.build(int(play.random.integers(1, 90)))
        tau = int(play.random.integers(1, 12))
        search = MacroSearch(constructs, tau)
        rows = play.rows(search.remaining)
        for part in np.array_split(rows, 4, axis=1):
            search.observe(part)
        assert search.remaining == 0 and search.macro.tolist() == naive_macro(constructs, rows, tau)
        covering = np.any([constructs.qub_of(a) for a in search.macro[: search.cover]], axis=0)
        assert np.array_equal(covering, np.any([constructs.qub_of(a) for a in search.macro], axis=0))
        assert search.monitoring_cost > 0 or len(constructs.attributes) == 1


def naive_hybrid(constructs: SelectionConstructs, macro: list[int], rows: np.ndarray, tau: int) -> dict[int, int]:
    """Section 4.3 as `HybridSearch` reads it: region -> target, for the regions in which a path ended."""
    at = np.cumsum([0, *(constructs.sizes[a] for a in constructs.attributes)])
    place = {int(a): int(begin) for a, begin in zip(constructs.attributes, at, strict=False)}
    live = np.any([constructs.qub_of(a) for a in macro], axis=0)
    arrows: dict[int, int] = {}
    for period in range(len(macro) - 1):
        ends: dict[int, list[tuple[list[int], np.ndarray]]] = {}
        for row in rows[:, period * tau : (period + 1) * tau].T:
            path = [macro[0]]
            while grb_after(constructs, row, path).any() and len(path) < len(macro):
                here = place[path[-1]] + int(row[path[-1]])
                if here not in arrows:
                    ends.setdefault(here, []).append((path, row))
                    break
                to_macro = next(a for a in macro if a not in path)
                path = [*path, arrows[here] if arrows[here] not in [-1, *path] else to_macro]
        for here, visits in ends.items():
            arrows[here] = naive_arrow(constructs, macro, live, visits)
    return arrows


def naive_arrow(
    constructs: SelectionConstructs, macro: list[int], live: np.ndarray, visits: list[tuple[list[int], np.ndarray]]
) -> int:
    """The target of the micro-arrow from the region in which the paths of `visits` end, or -1."""
    sums: dict[tuple[bool, int], list[int]] = {}
    for path, row in visits:
        here = grb_after(constructs, row, path)
        covering = bool((np.any([constructs.qub_of(a) for a in path], axis=0) == live).all())
        target = next(a for a in macro if a not in path)
        last = path[-1]
        for a in [a for a in macro if a not in path]:
            there = grb_after(constructs, row, [*path, a])
            bad, of = (there.any(), 1) if covering else (there.sum(), here.sum())
            is_candidate = (constructs.qrb_of(last)[row[last]] & constructs.qub_of(a)).any()
            for name in [a] * bool(is_candidate) + [-1] * (a == target):
                total = sums.setdefault((covering, name), [0, 0, 0])
                sums[covering, name] = [total[0] + int(bad), total[1] + int(of), total[2] + 1]
    rows = {covering: sums.get((covering, -1), [0, 0, 0])[2] for covering in (False, True)}
    kind = rows[True] > rows[False]
    value = {a: bad / of for (covering, a), (bad, of, _) in sums.items() if covering == kind}
    candidates = [a for a in macro if a in value]
    if not candidates:
        return -1
    best = min(candidates, key=lambda a: value[a])
    return best if value[best] <= value[-1] else -1


def test_the_hybrid_search_agrees_with_its_description() -> None:
    found = 0
    for seed in range(25):
        play = Play(seed, attributes=6, least=1)
        play.sizes = np.minimum(play.sizes, 5)
        constructs = play.build(int(play.random.integers(1, 40)))
        macro = play.random.permutation(constructs.attributes)
        search = HybridSearch(constructs, macro, tau=6)
        rows = play.rows(search.remaining)
        for part in np.array_split(rows, 3, axis=1):
            search.observe(part)
        arrows = naive_hybrid(constructs, macro.tolist(), rows, 6)
        expected = np.full(len(search.order.arrows), -1)
        expected[list(arrows)] = list(arrows.values())
        assert search.remaining == 0 and np.array_equal(search.order.arrows, expected)
        found += int((expected >= 0).sum())
    assert found > 100


def flipping() -> tuple[SelectionConstructs, np.ndarray]:
    """Ten queries on all of six attributes; of 3 x 6,000 rows most fail first at A1, then at A6, then at A1."""
    random = np.random.default_rng(0)
    queries: list[Sets] = [{a: [(0, 9)] for a in range(6)} for _ in range(10)]
    parts = []
    for attribute, share in ((0, 0.95), (5, 0.7), (0, 0.95)):
        rows = random.integers(0, 10, (6, 6_000))
        rows[attribute, random.random(6_000) < share] = 15
        parts.append(rows)
    return (
        SelectionConstructs.build(conjunctions(np.full(6, 20, np.int32), queries)),
        np.concatenate(parts, axis=1).astype(np.int32),
    )


@pytest.mark.parametrize("hybrid", [False, True])
def test_cost_returns_to_the_best_after_the_distribution_flips(hybrid: bool) -> None:
    constructs, rows = flipping()
    expected = constructs.search_rows(rows)[:2]
    rearranged = []
    for mu in (0.0, 0.1, 0.2, 0.4):
        search = AdaptiveSearch(constructs, 600, mu, hybrid)
        offsets, keys, costs = search.search_rows(rows)
        assert np.array_equal(offsets, expected[0]) and np.array_equal(keys, expected[1])
        rearranged.append(sum(period.rearranged for period in search.periods))
        assert len(search.periods) == 30 and costs["monitoring_cost"] == sum(p.monitoring_cost for p in search.periods)
        assert costs["constructs_evaluated"] == sum(p.constructs_evaluated for p in search.periods)
        for part in range(3):
            upto = 6_000 * (part + 1)
            last = rows[:, upto - 3_000 : upto]
            best = min(
                constructs.cost(last, constructs.order(np.roll(np.arange(6), -first)))["constructs_evaluated"]
                for first in range(6)
            )
            cost = sum(p.constructs_evaluated for p in search.periods[10 * part + 5 : 10 * part + 10])
            near_best = cost <= 1.1 * best
            # d falls from 0.95 to 0.7 at the first flip, a change of 0.26: only below that a threshold sees it
            assert near_best == (mu < 0.26 or part != 1)
    assert rearranged == sorted(rearranged, reverse=True) and rearranged[0] == 30 and rearranged[-1] == 0


def test_monitoring_costs_nothing_while_no_rearrangement_is_due() -> None:
    constructs, rows = flipping()
    search = AdaptiveSearch(constructs, 600, 0.2)
    for part in np.array_split(rows[:, :6_000], 7, axis=1):
        search.search_rows(part)
    assert search.periods[0].monitoring_cost > 0 and search.order.macro[0] == 0
    assert [period.monitoring_cost for period in search.periods[1:]] == [0] * 9
    assert [period.rows for period in search.periods] == [600] * 10
    assert search.periods[3].dropping_ratio == pytest.approx(0.95, abs=0.03)


def test_a_sequence_that_dropped_nothing_is_rearranged_once_it_drops() -> None:
    constructs, rows = flipping()
    rows[:, :3_000] = np.minimum(rows[:, :3_000], 9)
    search = AdaptiveSearch(constructs, 600, 5.0)
    search.search_rows(rows[:, :6_000])
    assert [period.rearranged for period in search.periods] == [False] * 5 + [True] + [False] * 4
    assert search.order.macro[0] == 0


def test_a_change_of_the_conjunctions_starts_the_monitoring_anew() -> None:
    sizes = np.full(3, 4, np.int32)
    constructs = SelectionConstructs.build(conjunctions(sizes, [{0: [(0, 1)]}, {1: [(1, 1)]}]))
    search = AdaptiveSearch(constructs, 12, 0.5)
    play = Play(0)
    play.sizes = sizes
    play.live = {0: {0: [(0, 1)]}, 1: {1: [(1, 1)]}, 7: {2: [(3, 3)]}}
    search.search_rows(play.rows(30))
    constructs.insert(7, *arrays_of(play.live[7]))
    rows = play.rows(30)
    offsets, keys, costs = search.search_rows(rows)
    assert [keys[offsets[i] : offsets[i + 1]].tolist() for i in range(30)] == [play.holding(row) for row in rows.T]
    assert sorted(search.order.macro.tolist()) == [0, 1, 2] and costs["monitoring_cost"] > 0
    for key in (0, 1, 7):
        constructs.delete(key)
    assert search.search_rows(rows)[2]["constructs_evaluated"] == 0
