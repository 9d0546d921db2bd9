"""The access path of each conjunction, and the terms of conjunctions as flat arrays in the kernel's order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rules_index.arrays import gather_indices
from rules_index.index.boxes import Tree
from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.layout.block_size import BLOCK_ROWS


@dataclass(frozen=True)
class AccessPlan:
    """The access path of each conjunction of a rule. Those in neither a table, a sorted run nor the tree are scanned.

    table            [conjunctions of rules] int32, the table of `tables` that the conjunction is filed in, or -1
    sorted_by        [conjunctions of rules] int32, the attribute of `sort_attributes` in whose sorted run it is, or -1
    tables           the attributes of each hash table
    sort_attributes  the attributes of the sorted runs
    chunk_rows       rows of a chunk
    shares           [codes] the expected share of rows with every code of every attribute, one attribute after the
                     other; None if unknown
    tree             the conjunctions whose numbers are its keys are in the tree, whatever the other fields say; None if
                     there is no tree
    """

    table: np.ndarray
    sorted_by: np.ndarray
    tables: Sequence[tuple[int, ...]]
    sort_attributes: Sequence[int]
    chunk_rows: int = BLOCK_ROWS
    shares: np.ndarray | None = None
    tree: Tree | None = None


def scan_all(c: Conjunctions, tree: Tree | None = None) -> AccessPlan:
    """The plan that scans every conjunction, except those in the tree."""
    nowhere = np.full(len(c.target) - int(c.disjunction_start[-1]), -1, np.int32)
    return AccessPlan(nowhere, nowhere, (), (), tree=tree)


@dataclass(frozen=True)
class TermColumns:
    """The terms of conjunctions in the kernel's order, each column [terms]. Numbers are int32, since there are many
    terms.

    owner      the conjunction, as its index in that order
    attribute  `DISJUNCTION` for a shared disjunction
    which      the set, or the shared disjunction
    pieces     the number of intervals of the set; 0 for a shared disjunction
    low, high  the lowest and the highest code of the set
    share      float64, the set's share of the attribute's codes; 1 for a shared disjunction
    """

    owner: np.ndarray
    attribute: np.ndarray
    which: np.ndarray
    pieces: np.ndarray
    low: np.ndarray
    high: np.ndarray
    share: np.ndarray


def terms_of(c: Conjunctions, order: np.ndarray) -> TermColumns:
    """The terms of the conjunctions `order`, in that order."""
    gather, offsets = gather_indices(c.start, order)
    owner = np.repeat(np.arange(len(order), dtype=np.int32), np.diff(offsets))
    pairs = c.terms[gather]
    attribute, which = pairs[:, 0], pairs[:, 1]
    named = np.flatnonzero(attribute != DISJUNCTION)
    sets = which[named]
    pieces, low, high = (np.zeros(len(pairs), np.int32) for _ in range(3))
    share = np.ones(len(pairs))
    pieces[named] = np.diff(c.set_start)[sets]
    low[named] = c.intervals[c.set_start[sets], 0]
    high[named] = c.intervals[c.set_start[sets + 1] - 1, 1]
    share[named] = set_widths(c)[sets] / c.sizes[attribute[named]]
    return TermColumns(owner, attribute, which, pieces, low, high, share)


def set_widths(c: Conjunctions) -> np.ndarray:
    """The number of codes [sets] int64 of every set."""
    covered = np.zeros(len(c.intervals) + 1, np.int64)
    np.cumsum(c.intervals[:, 1].astype(np.int64) - c.intervals[:, 0] + 1, out=covered[1:])
    return covered[c.set_start[1:]] - covered[c.set_start[:-1]]


def within(lengths: np.ndarray) -> np.ndarray:
    """0, 1, ... within each of several runs with these lengths, one run after the other."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
