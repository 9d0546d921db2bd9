"""The ASC paper's worked example, conjunctions under every change against brute force, and what is refused."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest

from rules_index.engines.asc import constructs as module
from rules_index.engines.asc.constructs import ConstructsTooLargeError, SelectionConstructs
from rules_index.engines.asc.evaluate import Order
from rules_index.index.array_checks import InvalidArraysError
from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from tests.cases import cases
from tests.unit.engines.constructs import (
    A1,
    A2,
    A3,
    A4,
    CODES,
    Play,
    arrays_of,
    conjunctions,
    micro_arrows,
    worked_example,
)


@pytest.fixture
def example() -> SelectionConstructs:
    return worked_example()


def digits(bits: np.ndarray) -> str:
    return "".join(str(int(bit)) for bit in bits[:4])


@pytest.mark.parametrize(
    ("attribute", "qub", "qrb"),
    [
        (A1, "1010", "1111 0111 0111 0111 0101"),
        (A2, "0101", "1110 1110 1010 1011 1011"),
        (A3, "1010", "0111 0101 0101 1101 1101"),
        (A4, "0101", "1110 1010 1010 1010 1011"),
    ],
)
def test_bitmaps_are_those_of_figures_1_and_2(example: SelectionConstructs, attribute: int, qub: str, qrb: str) -> None:
    example.check()
    assert digits(example.qub_of(attribute)) == qub
    assert [digits(bits) for bits in example.qrb_of(attribute)] == qrb.split()


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


def test_totals_micro_ratio_and_relative_cost_are_those_of_the_example(example: SelectionConstructs) -> None:
    macro = example.cost(CODES)
    hybrid = example.cost(CODES, example.order(np.arange(4), micro_arrows()))
    assert (macro["constructs_evaluated"], hybrid["constructs_evaluated"]) == (24, 22)
    assert (hybrid["micro_arrows"], hybrid["arrows"]) == (9, 15)
    assert macro["micro_arrows"] == macro["matches"] == 0 and macro["arrows"] == 24 - 7


def test_the_sequence_of_example_4_drops_two_of_three_tuples(example: SelectionConstructs) -> None:
    costs = [example.search(CODES[:, t])[1] for t in range(3)]
    assert sum(cost["dropped"] and cost["constructs_evaluated"] <= 3 for cost in costs) == 2


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


def test_cover_sets_of_two_are_four(example: SelectionConstructs) -> None:
    pairs = [(a, b) for a, b in combinations(range(4), 2) if digits(example.qub_of(a) | example.qub_of(b)) == "1111"]
    assert pairs == [(A1, A2), (A1, A4), (A2, A3), (A3, A4)]


def assert_agrees(play: Play, constructs: SelectionConstructs) -> None:
    constructs.check()
    assert constructs.attributes.tolist() == sorted({a for query in play.live.values() for a in query})
    rows = play.rows(4)
    for order in (None, play.order(constructs)):
        offsets, keys, _ = constructs.search_rows(rows, order)
        for i in range(rows.shape[1]):
            assert keys[offsets[i] : offsets[i + 1]].tolist() == play.holding(rows[:, i])


@pytest.mark.slow
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
    with pytest.raises(ValueError, match="name each"):
        example.order(np.array([0, 1, 2]))
    with pytest.raises(ValueError, match="micro-arrows"):
        example.order(np.arange(4), np.full(20, 4))
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
