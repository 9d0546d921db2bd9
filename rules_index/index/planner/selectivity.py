"""Estimates how often a row has a code, is in a set, or satisfies a conjunction: counted in a sample of rows, or
guessed.

The guess is the mean of two distributions of codes: a uniform one, and one proportional to how often rules name a code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.layout import set_widths, terms_of
from rules_index.index.registry import engine_class


def matches(c: Conjunctions, conjunctions: np.ndarray, sample: np.ndarray) -> np.ndarray:
    """The share of the sampled rows that satisfies each conjunction, [conjunctions] float64. Shared disjunctions are
    assumed to be satisfied."""
    terms = terms_of(c, conjunctions)
    named = terms.attribute != DISJUNCTION
    lengths = np.bincount(terms.owner[named], minlength=len(conjunctions))
    alone = Conjunctions(
        sizes=c.sizes,
        set_start=c.set_start,
        intervals=c.intervals,
        start=np.concatenate([[0], np.cumsum(lengths)]),
        terms=np.column_stack([terms.attribute[named], terms.which[named]]).astype(np.int32),
        target=np.arange(len(conjunctions), dtype=np.int32),
        disjunction_start=np.zeros(1, np.int32),
    )
    hybrid: Any = engine_class("hybrid")  # by its name, since the engine itself imports the planner
    _, found = hybrid.scanning(alone).match(sample)
    return np.bincount(found, minlength=len(conjunctions)) / sample.shape[1]


def match_probability(c: Conjunctions) -> float:
    """The expected share of the conjunctions of rules that a row satisfies; 0 if there are none. Terms are assumed to
    be independent, and shared disjunctions to be satisfied."""
    first = int(c.disjunction_start[-1])
    count = len(c.target) - first
    shares = set_shares(c, code_shares(c, None))
    pairs = c.terms[c.start[first] :]
    named = pairs[:, 0] != DISJUNCTION
    owner = np.repeat(np.arange(count), np.diff(c.start)[first:])[named]
    logarithms = np.log(np.maximum(shares[pairs[named, 1]], 1e-30))
    expected = np.exp(np.bincount(owner, weights=logarithms, minlength=count))
    return float(expected.mean()) if count else 0.0


def code_shares(c: Conjunctions, sample: np.ndarray | None) -> np.ndarray:
    """The expected share of rows with every code of every attribute, [codes] float64, one attribute after the other."""
    sizes = c.sizes.astype(np.int64)
    uniform = np.repeat(1 / np.maximum(sizes, 1), sizes)
    if sample is not None and sample.shape[1]:
        counted = zip(sample, sizes.tolist(), strict=True)
        seen = np.concatenate([np.bincount(codes, minlength=size) for codes, size in counted])
        # a code that is not in the sample can still occur: add-one smoothing
        return np.asarray((seen + uniform) / (sample.shape[1] + 1))
    attribute, named = _attribute_of_sets(c)
    single = np.flatnonzero(set_widths(c) == 1)
    uses = np.bincount(c.terms[named, 1], minlength=len(attribute))[single]
    owner = attribute[single]
    at = (np.cumsum(sizes) - sizes)[owner] + c.intervals[c.set_start[single], 0]
    seen = np.bincount(at, weights=uses, minlength=len(uniform))
    total = np.repeat(np.bincount(owner, weights=uses, minlength=len(sizes)), sizes)
    return np.where(total > 0, 0.5 * uniform + 0.5 * seen / np.maximum(total, 1), uniform)


def _attribute_of_sets(c: Conjunctions) -> tuple[np.ndarray, np.ndarray]:
    """The attribute [sets] of every set, and which terms [terms] bool name a set (not a shared disjunction)."""
    named = c.terms[:, 0] != DISJUNCTION
    attribute = np.zeros(len(c.set_start) - 1, np.int64)
    attribute[c.terms[named, 1]] = c.terms[named, 0]
    return attribute, named


def set_shares(c: Conjunctions, code_shares: np.ndarray) -> np.ndarray:
    """The expected share of rows [sets] float32 in every set."""
    sizes = c.sizes.astype(np.int64)
    attribute, _ = _attribute_of_sets(c)
    below = np.concatenate([[0.0], np.cumsum(code_shares)])
    place = np.repeat((np.cumsum(sizes) - sizes)[attribute], np.diff(c.set_start))
    shares = below[place + c.intervals[:, 1] + 1] - below[place + c.intervals[:, 0]]
    return np.add.reduceat(shares, c.set_start[:-1]).astype(np.float32) if len(shares) else np.empty(0, np.float32)
