"""The ASC paper row at a time: its worked example, naive twins of its searches, and conjunctions under every change."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest

from rules_index.engines.asc import constructs as module
from rules_index.engines.asc.adaptive import AdaptiveSearch
from rules_index.engines.asc.constructs import ConstructsTooLargeError, SelectionConstructs
from rules_index.engines.asc.evaluate import Order
from rules_index.engines.asc.hybrid import HybridSearch
from rules_index.engines.asc.macro import MacroSearch
from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions, InvalidArraysError
from tests.cases import cases

A1, A2, A3, A4 = range(4)
CONSTANTS = [(30, 50), (20, 60), (10, 40), (25, 75)]
# q1: A1 < 30 and A3 >= 40. q2: A2 <= 20 and A4 < 25. q3: A1 <= 50 and A3 < 10. q4: A2 >= 60 and A4 > 75.
QUERIES = [
    {A1: (0, 0), A3: (3, 4)},
    {A2: (0, 1), A4: (0, 0)},
    {A1: (0, 3), A3: (0, 0)},
    {A2: (3, 4), A4: (4, 4)},
]
TUPLES = [
    (40, 30, 50, 90),
    (70, 80, 50, 90),
    (10, 40, 20, 90),
    (70, 30, 20, 90),
    (70, 80, 20, 50),
    (70, 80, 20, 50),
    (70, 20, 20, 10),
]
Sets = dict[int, list[tuple[int, int]]]


def region(attribute: int, value: int) -> int:
    """0 for the values below the first constant, 1 for it, 2 between the two, .. (definition 1)."""
    constants = CONSTANTS[attribute]
    return 2 * sum(value > c for c in constants) + (value in constants)


CODES = np.array([[region(a, value) for a, value in enumerate(row)] for row in TUPLES], np.int32).T


def conjunctions(sizes: np.ndarray, queries: list[Sets]) -> Conjunctions:
    """Conjunction i names, for each attribute of `queries[i]`, a set of closed intervals of codes."""
    sets = [intervals for query in queries for intervals in query.values()]
    terms = [attribute for query in queries for attribute in query]
    return Conjunctions(
        sizes=sizes,
        set_start=np.cumsum([0, *map(len, sets)]),
        intervals=np.array([pair for intervals in sets for pair in intervals], np.int32).reshape(-1, 2),
        start=np.cumsum([0, *map(len, queries)]),
        terms=np.stack([terms, np.arange(len(terms))], axis=1).astype(np.int32),
        target=np.arange(len(queries), dtype=np.int32),
        disjunction_start=np.zeros(1, np.int32),
    )


@pytest.fixture
def example() -> SelectionConstructs:
    """The four queries under the keys 0 to 3."""
    queries: list[Sets] = [{a: [interval] for a, interval in query.items()} for query in QUERIES]
    return SelectionConstructs.build(conjunctions(np.full(4, 5, np.int32), queries))


def digits(bits: np.ndarray) -> str:
    return "".join(str(int(bit)) for bit in bits[:4])


@pytest.mark.parametrize(
    ("attribute", "qub", "qrb", "cab"),
    [
        (A1, "1010", "1111 0111 0111 0111 0101", "0111 0111 0111 0111 0101"),
        (A2, "0101", "1110 1110 1010 1011 1011", "1011 1011 1010 1011 1011"),
        (A3, "1010", "0111 0101 0101 1101 1101", "1101 0101 0101 1101 1101"),
        (A4, "0101", "1110 1010 1010 1010 1011", "1110 1010 1010 1010 1110"),
    ],
)
def test_bitmaps_are_those_of_figures_1_and_2(
    example: SelectionConstructs, attribute: int, qub: str, qrb: str, cab: str
) -> None:
    example.check()
    assert digits(example.qub_of(attribute)) == qub
    assert [digits(bits) for bits in example.qrb_of(attribute)] == qrb.split()
    assert [digits(bits) for bits in example.cab_of(attribute)] == cab.split()


@pytest.mark.parametrize(
    ("t", "grb", "matches", "macro_cost", "hybrid_cost"),
    [
        (1, "0111 0010 0000", [], 3, 3),
        (2, "0101 0001 0001 0001", [3], 4, 4),
        (3, "1111 1010 0000", [], 3, 3),
        (4, "0101 0000", [], 2, 2),
        (5, "0101 0001 0001 0000", [], 4, 3),
        (6, "0101 0001 0001 0000", [], 4, 3),
        (7, "0101 0100 0100 0100", [1], 4, 4),
    ],
)
def test_every_tuple_costs_what_examples_2_and_7_say(
    example: SelectionConstructs, t: int, grb: str, matches: list[int], macro_cost: int, hybrid_cost: int
) -> None:
    row = CODES[:, t - 1]
    chain = np.logical_and.accumulate([example.qrb_of(a)[row[a]] for a in range(4)])[:macro_cost]
    assert [digits(bits) for bits in chain] == grb.split()
    for order, cost in ((example.order(), macro_cost), (example.order(np.arange(4), micro_arrows()), hybrid_cost)):
        keys, costs = example.search(row, order)
        assert keys.tolist() == matches and costs["constructs_evaluated"] == cost
        assert costs["dropped"] == (not matches) and costs["matches"] == len(matches)


def micro_arrows() -> np.ndarray:
    """A1.ra[5] -> A2, A2.ra[5] -> A4, A4.ra[5] -> A3 (example 7)."""
    arrows = np.full((4, 5), -1, np.int32)
    arrows[A1, 4], arrows[A2, 4], arrows[A4, 4] = A2, A4, A3
    return arrows.reshape(-1)


def test_totals_micro_ratio_and_relative_cost_are_those_of_the_example(example: SelectionConstructs) -> None:
    macro = example.cost(CODES)
    hybrid = example.cost(CODES, example.order(np.arange(4), micro_arrows()))
    assert (macro["constructs_evaluated"], hybrid["constructs_evaluated"]) == (24, 22)
    assert (hybrid["micro_arrows"], hybrid["arrows"]) == (9, 15)
    assert macro["micro_arrows"] == macro["matches"] == 0 and macro["arrows"] == 24 - 7


def test_the_sequence_of_example_4_drops_two_of_three_tuples(example: SelectionConstructs) -> None:
    costs = [example.search(CODES[:, t])[1] for t in range(3)]
    assert sum(cost["dropped"] and cost["constructs_evaluated"] <= 3 for cost in costs) == 2


def test_the_macro_search_chooses_as_in_example_5(example: SelectionConstructs) -> None:
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


def test_the_hybrid_search_finds_the_micro_arrows_of_examples_6_and_7(example: SelectionConstructs) -> None:
    search = HybridSearch(example, np.arange(4), tau=1)
    for period, t in enumerate((4, 5, 2)):
        assert search.remaining == 3 - period
        search.observe(CODES[:, [t - 1]])
    assert search.remaining == 0 and np.array_equal(search.order.arrows, micro_arrows())


def test_fixed_orders_cost_between_the_best_and_the_worst(example: SelectionConstructs) -> None:
    cost = {
        order: [
            example.cost(CODES[:, :upto], example.order(np.array(order)))["constructs_evaluated"] for upto in (3, 7)
        ]
        for order in permutations(range(4))
    }
    first, all_seven = ({order: pair[i] for order, pair in cost.items()} for i in (0, 1))
    assert {order for order, total in first.items() if total == 9} == {(A2, A3, A1, A4), (A3, A2, A1, A4)}
    assert (min(first.values()), max(first.values())) == (9, 12)
    assert (min(all_seven.values()), max(all_seven.values())) == (22, 26)


def test_cover_sets_of_two_are_four(example: SelectionConstructs) -> None:
    pairs = [(a, b) for a, b in combinations(range(4), 2) if digits(example.qub_of(a) | example.qub_of(b)) == "1111"]
    assert pairs == [(A1, A2), (A1, A4), (A2, A3), (A3, A4)]


class Play:
    """Conjunctions that come and go, kept in a dictionary beside the constructs."""

    def __init__(self, seed: int, attributes: int = 8, least: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        number = self.random.integers(1, attributes + 1)
        self.sizes = self.random.choice([2, 3, 5, 12, 64, 1000], number).astype(np.int32)
        self.least = least
        self.live: dict[int, Sets] = {}

    def query(self) -> Sets:
        number = int(self.random.integers(self.least, min(6, len(self.sizes)) + 1))
        attributes = sorted(self.random.choice(len(self.sizes), number, replace=False).tolist())
        return {attribute: self.intervals(int(self.sizes[attribute])) for attribute in attributes}

    def intervals(self, size: int) -> list[tuple[int, int]]:
        ends = np.unique(self.random.integers(0, size, 2 * self.random.choice([1, 1, 2, 3])))
        pairs = [(int(low), int(high)) for low, high in ends[: len(ends) // 2 * 2].reshape(-1, 2)]
        one = [(int(ends[0]), int(ends[0]))]
        kinds = [pairs, one, [(0, size - 1)], [(size - 1, size - 1)], []]
        return kinds[self.random.choice(5, p=[0.5, 0.2, 0.15, 0.13, 0.02])]

    def build(self, number: int) -> SelectionConstructs:
        self.live = {key: self.query() for key in range(number)}
        return SelectionConstructs.build(conjunctions(self.sizes, list(self.live.values())))

    def rows(self, number: int) -> np.ndarray:
        uniform = self.random.integers(0, self.sizes[:, None], (len(self.sizes), number))
        at_end = self.random.random(uniform.shape) < 0.2
        return np.where(at_end, self.sizes[:, None] - 1, uniform).astype(np.int32)

    def holding(self, row: np.ndarray) -> list[int]:
        return sorted(
            key
            for key, query in self.live.items()
            if all(any(low <= row[a] <= high for low, high in pairs) for a, pairs in query.items())
        )

    def order(self, constructs: SelectionConstructs) -> Order:
        """Any sequence with any micro-arrows."""
        attributes = constructs.attributes
        arrows = self.random.choice(np.append(attributes, -1), len(constructs.bitmaps.qrb)).astype(np.int32)
        return constructs.order(self.random.permutation(attributes), arrows)


def arrays_of(query: Sets) -> tuple[np.ndarray, list[np.ndarray]]:
    return np.array(list(query), np.int32), [np.array(pairs, np.int32).reshape(-1, 2) for pairs in query.values()]


def assert_agrees(play: Play, constructs: SelectionConstructs) -> None:
    constructs.check()
    assert constructs.attributes.tolist() == sorted({a for query in play.live.values() for a in query})
    rows = play.rows(4)
    for order in (None, play.order(constructs)):
        offsets, keys, _ = constructs.search_rows(rows, order)
        for i in range(rows.shape[1]):
            assert keys[offsets[i] : offsets[i + 1]].tolist() == play.holding(rows[:, i])


def test_conjunctions_agree_with_brute_force_under_every_change() -> None:
    for seed in range(cases(160)):
        play = Play(seed)
        constructs = play.build(int(play.random.choice([0, 1, 30, 64, 130])))
        assert_agrees(play, constructs)
        for step in range(30):
            deed = play.random.choice(["insert", "delete", "load"], p=[0.53, 0.4, 0.07])
            if deed == "insert":
                play.live[1000 + step] = query = play.query()
                constructs.insert(1000 + step, *arrays_of(query))
            elif deed == "delete" and play.live:
                key = int(play.random.choice(list(play.live)))
                del play.live[key]
                constructs.delete(key)
            elif deed == "load":
                constructs = SelectionConstructs.load(constructs.arrays, play.sizes)
            assert_agrees(play, constructs)
        for key in list(play.live):
            constructs.delete(key)
            del play.live[key]
        assert_agrees(play, constructs)
        assert len(constructs.arrays["qrb"]) == 0


def naive_path(constructs: SelectionConstructs, row: np.ndarray, order: Order) -> list[tuple[int, bool]]:
    """(attribute, whether a micro-arrow led there) as evaluated until the row is dropped (section 5.1)."""
    at = np.cumsum([0, *(constructs.sizes[a] for a in constructs.attributes)])
    place = {int(a): int(begin) for a, begin in zip(constructs.attributes, at, strict=False)}
    path = [(int(order.macro[0]), False)]
    grb = np.ones(64 * len(constructs.bitmaps.live), bool)
    while True:
        a = path[-1][0]
        grb &= constructs.qrb_of(a)[row[a]]
        geb = {attribute for attribute, _ in path}
        unevaluated = [int(attribute) for attribute in order.macro if attribute not in geb]
        if not grb.any() or not unevaluated:
            return path
        target = int(order.arrows[place[a] + row[a]]) if len(order.arrows) else -1
        micro = target >= 0 and target not in geb
        path.append((target if micro else unevaluated[0], micro))


def test_an_order_costs_what_a_step_by_step_evaluation_costs() -> None:
    for seed in range(20):
        play = Play(seed, least=1)
        constructs = play.build(20)
        order, rows = play.order(constructs), play.rows(20)
        paths = [naive_path(constructs, row, order) for row in rows.T]
        costs = constructs.search_rows(rows, order)[2]
        assert costs["constructs_evaluated"] == sum(len(path) for path in paths)
        assert costs["arrows"] == costs["constructs_evaluated"] - rows.shape[1]
        assert costs["micro_arrows"] == sum(micro for path in paths for _, micro in path)
        assert costs["dropped"] == sum(not play.holding(row) for row in rows.T)
        assert constructs.cost(rows, order) == {**costs, "matches": 0}


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


def test_conjunctions_are_taken_without_their_gates() -> None:
    given = conjunctions(np.full(2, 4, np.int32), [{0: [(1, 2)]}, {1: [(3, 3)]}, {}])
    with_disjunction = Conjunctions(
        **{
            **given.__dict__,
            "start": np.array([0, 1, 3, 4]),
            "terms": np.array([[0, 0], [1, 1], [DISJUNCTION, 0], [DISJUNCTION, 0]], np.int32),
            "disjunction_start": np.array([0, 1], np.int32),
        }
    )
    constructs = SelectionConstructs.build(with_disjunction)
    assert [constructs.search(np.array(row, np.int32))[0].tolist() for row in ((1, 3), (0, 3), (0, 0))] == [
        [0, 1, 2],
        [1, 2],
        [2],
    ]


def test_bitmaps_beyond_the_limit_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    huge = SelectionConstructs(np.array([1 << 30, 5], np.int32))
    with pytest.raises(ConstructsTooLargeError, match="1,073,741,824 regions x 64 conjunctions take 8,192 MiB"):
        huge.insert(0, np.array([0]), [np.array([[3, 4]])])
    huge.check()
    huge.insert(0, np.array([1]), [np.array([[3, 4]])])
    with pytest.raises(ConstructsTooLargeError):
        SelectionConstructs.build(conjunctions(np.array([1 << 30], np.int32), [{0: [(3, 4)]}]))
    monkeypatch.setattr(module, "MAX_BYTES", 8 * 5 * 3)
    keys = iter(range(1, 1000))
    with pytest.raises(ConstructsTooLargeError):
        while True:
            huge.insert(next(keys), np.array([1]), [np.array([[0, 2]])])
    assert next(keys) == 3 * 64 + 1
    huge.check()


def test_what_is_not_sound_is_refused(example: SelectionConstructs) -> None:
    one = [np.array([[0, 1]])]
    wrong = [
        (0, [0], one),
        (-1, [0], one),
        (9, [4], one),
        (9, [1, 0], one * 2),
        (9, [0], [np.array([[3, 2]])]),
        (9, [0], [np.array([[0, 5]])]),
        (9, [0], one * 2),
    ]
    for key, attributes, sets in wrong:
        with pytest.raises(ValueError, match=r"key|attributes|set|zip"):
            example.insert(key, np.array(attributes), sets)
    with pytest.raises(KeyError):
        example.delete(9)
    row = np.array([0, 0, 5, 0], np.int32)
    with pytest.raises(ValueError, match="codes"):
        example.search(row)
    for search in (MacroSearch(example, 1), HybridSearch(example, np.arange(4), 1)):
        with pytest.raises(ValueError, match="codes"):
            search.observe(row[:, None])
    with pytest.raises(ValueError, match="name each"):
        example.order(np.array([0, 1, 2]))
    with pytest.raises(ValueError, match="micro-arrows"):
        example.order(np.arange(4), np.full(20, 4))
    with pytest.raises(ValueError, match="tau"):
        MacroSearch(example, 0)
    with pytest.raises(ValueError, match="tau"):
        HybridSearch(example, np.arange(4), 0)
    with pytest.raises(ValueError, match="fit"):
        AdaptiveSearch(example, lambda_=5)
    example.check()


@pytest.mark.slow
def test_arrays_that_contradict_each_other_are_refused_or_harmless() -> None:
    refused = 0
    for seed in range(150):
        play = Play(seed)
        arrays = {name: array.copy() for name, array in play.build(30).arrays.items()}
        name = play.random.choice([name for name in arrays if arrays[name].size])
        place = play.random.integers(0, arrays[name].size)
        arrays[name].reshape(-1)[place] ^= play.random.choice([1, -1, 1 << 20, 1 << 30])
        try:
            constructs = SelectionConstructs.load(arrays, play.sizes)
            constructs.check()
            constructs.search_rows(play.rows(20))
        except InvalidArraysError:
            refused += 1
    assert refused > 75
    play = Play(4)
    arrays = play.build(30).arrays
    for name in arrays:
        # one key less among those that hold every row is sound
        shorter = [arrays[name][:-1]] * (name != "unbounded")
        for changed in (*shorter, arrays[name].astype(np.float64), arrays[name][None]):
            with pytest.raises(InvalidArraysError):
                SelectionConstructs.load({**arrays, name: changed}, play.sizes)
        with pytest.raises(InvalidArraysError):
            SelectionConstructs.load({other: array for other, array in arrays.items() if other != name}, play.sizes)
