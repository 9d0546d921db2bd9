"""Equality blocks beside brute force, and the instruction that they are compared by beside a loop."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.kinds import KINDS
from rules_index.index.build import build
from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.kernels.equality_blocks import (
    NAMED,
    WIDEST,
    add_compared,
    add_compared_one_by_one,
    can_shuffle,
    side_by_side,
)
from rules_index.kernels.jit import jit
from rules_index.kernels.llvm import LANES
from tests.cases import quick_first
from tests.unit.engines.random_conjunctions import intervals_of
from tests.unit.engines.test_lists import conjunctions_of

SIZES = [40, 102, 102, 12, 300, 1000, 102, 60, 30, 255]


@jit
def _shuffles():
    return can_shuffle()


@jit
def _compared(terms, by_row, stride, listed, length, found):
    begin, at = np.uint64(3), np.uint64(2 * NAMED * LANES)
    rows = np.empty((2, len(listed)), np.int32)
    count = add_compared(
        terms, at, by_row, np.uint64(stride), listed, begin, np.uint64(length), rows[0], found[0], np.uint64(1)
    )
    other = add_compared_one_by_one(
        terms, at, by_row, np.uint64(stride), listed, begin, np.uint64(length), rows[1], found[1], np.uint64(1)
    )
    return count, other, rows


@jit
def _side_by_side(coarse, places, at, out, stride):
    side_by_side(coarse, places, np.uint64(at), out, np.uint64(0), np.uint64(stride))


needs_shuffle = pytest.mark.skipif(not _shuffles(), reason="no instruction shuffles 64 bytes here")


@pytest.mark.parametrize("stride", [32, 64])
def test_a_panel_is_compared_as_one_by_one(stride: int) -> None:
    choice = np.random.default_rng(stride)
    hits = 0
    for _ in range(50):
        by_row = choice.integers(0, 3, 40 * stride + LANES).astype(np.uint8)
        terms = np.empty((2, NAMED, 2, LANES), np.uint8)
        terms[:, :, 0] = choice.integers(0, stride, (2, NAMED, LANES))
        terms[:, :, 1] = choice.integers(0, 3, (2, NAMED, LANES))
        length = int(choice.integers(0, 40))
        listed = choice.permutation(44).clip(max=39).astype(np.uint16)
        found = np.zeros((2, len(listed)), np.uint64)
        count, other, rows = _compared(terms.reshape(-1), by_row, stride, listed, length, found)
        expected = {}
        for row in listed[3 : 3 + length].tolist():
            own = by_row[row * stride : row * stride + LANES]
            held = (own[terms[1, :, 0].astype(int)] == terms[1, :, 1]).all(axis=0)
            if held.any():
                expected[row] = int(np.packbits(held, bitorder="little").view(np.uint64)[0])
        for number, end in [(0, count), (1, other)] if _shuffles() else [(1, other)]:
            assert dict(zip(rows[number, 1:end].tolist(), found[number, 1:end].tolist(), strict=True)) == expected
        hits += len(expected)
    assert hits > 50


def test_codes_are_put_side_by_side() -> None:
    coarse = np.random.default_rng(1).integers(0, 256, 1000).astype(np.uint8)
    places = np.array([0, 700, 100, 300, 200, 400, 250, 100], np.uint64)
    out = np.zeros(8 * 24, np.uint8)
    _side_by_side(coarse, places, 5, out, 24)
    found = out.reshape(8, 24)
    assert found[:, :8].tolist() == [[int(coarse[int(place) + 5 + row]) for place in places] for row in range(8)]
    assert not found[:, 8:].any()


def _rules(choice: np.random.Generator, count: int, others: float, sizes: list[int], longest: int) -> Conjunctions:
    """Rules of 3 to `longest` terms, the first three equalities; of the others such a share are ranges and sets."""
    rules = []
    for number in range(count):
        terms = {}
        chosen = choice.choice(len(sizes), choice.integers(3, longest + 1), replace=False).tolist()
        for place, attribute in enumerate(chosen):
            code, most = int(_codes(choice, sizes[attribute], 1)[0]), sizes[attribute] - 1
            equality = place < 3 or choice.random() >= others
            terms[attribute] = intervals_of(choice, code, most, equality)
        rules.append((number // 2 if choice.random() < 0.1 else number, terms))
    return conjunctions_of(sizes, sorted(rules, key=lambda rule: rule[0]))


def _codes(choice: np.random.Generator, size: int, count: int) -> np.ndarray:
    """Low codes are frequent."""
    return (size * choice.random(count) ** 1.5).astype(np.int32)


@needs_shuffle
@pytest.mark.parametrize(
    ("rules", "copies", "others", "longest"),
    quick_first(0, [(9_000, 1, 0.0, 8), (12_000, 1, 0.6, 7), (9_000, 1, 0.0, 4), (40_000, 4, 0.0, 4)], 2),
)
def test_what_panels_find_is_what_brute_force_finds(rules: int, copies: int, others: float, longest: int) -> None:
    choice = np.random.default_rng(longest)
    sizes = SIZES * copies
    c = _rules(choice, rules, others, sizes, longest)
    engine, oracle = build(c, "asc")[0], build(c, "scan")[0]
    compared = hits = 0
    for rows in (512, 700, 1100):
        codes = np.stack([_codes(choice, size, rows) for size in sizes])
        # some rows that rules match
        for rule in choice.integers(0, rules, 300).tolist():
            row = int(choice.integers(0, rows))
            for attribute, which in c.terms[c.start[rule] : c.start[rule + 1]].tolist():
                codes[attribute, row] = c.intervals[c.set_start[which], 0]
        offsets, ordinals = engine.match(codes)
        expected = oracle.match(codes)
        assert np.array_equal(offsets, expected[0]) and np.array_equal(ordinals, expected[1]), rows
        compared += len(engine._index.equality_conjunctions)
        hits += len(ordinals)
    assert compared >= rules and hits > 300


@needs_shuffle
@pytest.mark.slow
@pytest.mark.parametrize("attributes", [WIDEST, WIDEST + 1])
def test_rules_over_more_attributes_than_a_row_of_codes_has_are_not_in_panels(attributes: int) -> None:
    choice = np.random.default_rng(3)
    sizes = [102] * attributes
    engine = build(_rules(choice, 60_000, 0.0, sizes, 4), "asc")[0]
    engine.match(np.stack([_codes(choice, size, 512) for size in sizes]))
    assert (len(engine._index.summary_terms) > 0) == (attributes > WIDEST)
    assert (len(engine._index.equality_conjunctions) > 0) == (attributes <= WIDEST)


@pytest.mark.slow
@needs_shuffle
def test_rules_that_panels_leave_in_many_rows_are_not_in_panels() -> None:
    given = KINDS["accounts"].make(10_000, 0.1, 4096, 7)
    c, codes = given.coded()
    engine = build(c, "asc")[0]
    assert np.array_equal(np.bincount(engine.match(codes)[1], minlength=10_000), given.brute_force())
    assert len(engine._index.summary_terms) > 0 and len(engine._index.equality_conjunctions) == 0
