"""Summaries of bitmaps beside NumPy, and what is found by them beside brute force."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.kinds import KINDS
from rules_index.index.build import build
from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.kernels.jit import jit
from rules_index.kernels.llvm import GROUP
from rules_index.kernels.summaries import SUMMARY_TERMS, summarise
from tests.cases import cases
from tests.unit.engines.random_conjunctions import intervals_of
from tests.unit.engines.test_lists import conjunctions_of

SIZES = [40, 102, 102, 12, 300, 1000, 102, 60]
MOST, ALL, SOME = (0.85,) * 8, (1.0,) * 8, (1.0, 1.0, 1.0, 0.5, 1.0, 0.5, 1.0, 1.0)
RULES = 400


@jit
def _summarise(bitmaps, words, bits, summaries):
    summarise(bitmaps, words, bits, summaries)


@pytest.mark.parametrize("words", [8, 24, 64])
def test_a_summary_has_a_bit_for_eight_rows(words: int) -> None:
    choice = np.random.default_rng(words)
    rows = choice.random((50, words * 64)) < choice.choice([0, 0.001, 0.01, 0.3, 1], (50, 1))
    bits = np.packbits(rows, axis=1, bitorder="little").view(np.uint64).reshape(-1)
    found = np.zeros(50 * GROUP, np.uint64)
    _summarise(50, words, bits, found)
    expected = np.zeros((50, 64 * GROUP), bool)
    expected[:, : words * 8] = rows.reshape(50, -1, 8).any(axis=2)
    assert np.array_equal(found, np.packbits(expected, axis=1, bitorder="little").view(np.uint64).reshape(-1))


def _rules(choice: np.random.Generator, equalities: Sequence[float], longest: int = len(SIZES)) -> Conjunctions:
    """Rules of up to `longest` terms: such shares of equalities, by attribute, of codes drawn as the rows' are; ranges,
    and sets of two intervals."""
    rules = []
    for number in range(RULES):
        terms = {}
        length = choice.integers(2 if number % 50 == 0 else 3, longest + 1)
        for attribute in choice.choice(len(SIZES), length, replace=False).tolist():
            code, most = int(_codes(choice, SIZES[attribute], 1)[0]), SIZES[attribute] - 1
            terms[attribute] = intervals_of(choice, code, most, choice.random() < equalities[attribute])
        rules.append((number // 2 if choice.random() < 0.1 else number, terms))
    return conjunctions_of(SIZES, sorted(rules, key=lambda rule: rule[0]))


def _codes(choice: np.random.Generator, size: int, count: int) -> np.ndarray:
    """Low codes are frequent."""
    return (size * choice.random(count) ** 2).astype(np.int32)


@pytest.mark.parametrize(("equalities", "longest"), [(MOST, len(SIZES)), (ALL, len(SIZES)), (ALL, 4), (SOME, 4)])
@pytest.mark.parametrize("seed", range(cases(16)))
def test_what_is_found_by_summaries_is_what_brute_force_finds(
    seed: int, equalities: Sequence[float], longest: int
) -> None:
    choice = np.random.default_rng(seed)
    c = _rules(choice, equalities, longest)
    engine, oracle = build(c, "asc")[0], build(c, "scan")[0]
    choose_summary_terms = hits = 0
    for rows in choice.permutation([1, 512, 700, 4095, 4096, 4097, 9000]).tolist():
        codes = np.stack([_codes(choice, size, rows) for size in SIZES])
        offsets, ordinals = engine.match(codes)
        expected = oracle.match(codes)
        assert np.array_equal(offsets, expected[0]) and np.array_equal(ordinals, expected[1]), rows
        choose_summary_terms += len(engine._index.summary_terms)
        hits += len(ordinals)
    assert choose_summary_terms >= SUMMARY_TERMS * RULES
    # rules of equalities alone match fewer rows
    assert hits > (100 if equalities is MOST else 20)


@pytest.mark.parametrize(("kind", "rules"), [("equality", 2_000), ("equality", 800), ("zipf", 2_000)])
def test_rules_of_equalities_are_skimmed(kind: str, rules: int) -> None:
    given = KINDS[kind].make(rules, 0.3, 9_000, 1)
    c, codes = given.coded()
    engine = build(c, "asc")[0]
    found = np.bincount(engine.match(codes)[1], minlength=len(given))
    assert np.array_equal(found, given.brute_force())
    assert len(engine._index.summary_terms)


def test_rules_of_ranges_are_not_skimmed() -> None:
    choice = np.random.default_rng(1)
    engine = build(_rules(choice, (0.0,) * 8), "asc")[0]
    engine.match(np.stack([_codes(choice, size, 4096) for size in SIZES]))
    assert len(engine._index.summary_terms) == 0


def test_whether_to_skim_is_measured_anew_where_more_rows_come() -> None:
    choice = np.random.default_rng(2)
    engine = build(_rules(choice, ALL), "asc")[0]
    measured = []
    for rows in (100, 5000, 100):
        engine.match(np.stack([_codes(choice, size, rows) for size in SIZES]))
        measured.append(len(engine._index.summary_terms) > 0)
    assert measured == [False, True, True]
