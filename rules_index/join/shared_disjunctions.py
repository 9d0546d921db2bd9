"""Finds which owners the shared disjunctions of a rule set name, and which shared disjunctions constrain given
attributes."""

from __future__ import annotations

import numpy as np

from rules_index.join.streams import ACROSS
from rules_index.kernels.jit import jit


@jit
def named_owners(
    start: np.ndarray, terms: np.ndarray, disjunction_start: np.ndarray, owner: np.ndarray, streams: int
) -> np.ndarray:
    """Returns the owners that each shared disjunction names, directly or through others: bits [disjunctions] int64, one
    for each stream, then one for `ACROSS` and one for `UNKNOWN`."""
    named = np.zeros(len(disjunction_start) - 1, np.int64)
    for disjunction in range(len(named)):
        for term in range(start[disjunction_start[disjunction]], start[disjunction_start[disjunction + 1]]):
            attribute, which = terms[term]
            if attribute < 0:
                named[disjunction] |= named[which]
            elif owner[attribute] >= 0:
                named[disjunction] |= 1 << owner[attribute]
            else:
                named[disjunction] |= 1 << (streams if owner[attribute] == ACROSS else streams + 1)
    return named


@jit
def always_open(
    start: np.ndarray, terms: np.ndarray, disjunction_start: np.ndarray, attributes: np.ndarray
) -> np.ndarray:
    """Returns which shared disjunctions [disjunctions] bool do not constrain `attributes` [attributes] bool: those that
    every row satisfies if terms on other attributes count as satisfied."""
    found = np.zeros(len(disjunction_start) - 1, np.bool_)
    for disjunction in range(len(found)):
        for conjunction in range(disjunction_start[disjunction], disjunction_start[disjunction + 1]):
            empty = True
            for term in range(start[conjunction], start[conjunction + 1]):
                attribute, which = terms[term]
                if attribute < 0:
                    empty &= found[which]
                else:
                    empty &= not attributes[attribute]
            found[disjunction] |= empty
    return found


@jit
def reached_disjunctions(
    start: np.ndarray, terms: np.ndarray, disjunction_start: np.ndarray, kept: np.ndarray, conjunctions: np.ndarray
) -> np.ndarray:
    """Returns which shared disjunctions [disjunctions] bool are named by `conjunctions` [.], directly or through
    others; only terms that are kept [terms] bool count."""
    found = np.zeros(len(disjunction_start) - 1, np.bool_)
    for conjunction in conjunctions:
        for term in range(start[conjunction], start[conjunction + 1]):
            if kept[term] and terms[term, 0] < 0:
                found[terms[term, 1]] = True
    for disjunction in range(len(found) - 1, -1, -1):
        if found[disjunction]:
            for term in range(start[disjunction_start[disjunction]], start[disjunction_start[disjunction + 1]]):
                if kept[term] and terms[term, 0] < 0:
                    found[terms[term, 1]] = True
    return found
