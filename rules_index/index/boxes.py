"""The boxes over region codes that the papers' engines index, and the tree of nodes that contains them.

A conjunction's box has, for each attribute that the conjunction names, the interval from its lowest to its highest
code. A set of several intervals and a shared disjunction cannot be expressed by a box: they are checked on the rows
inside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions


@dataclass(frozen=True)
class Boxes:
    """Boxes, each bounding some attributes; a row is inside a box if its code of each of these is in [low, high].

    sizes       [attributes] int32, number of codes of each attribute
    start       [boxes + 1] int64, offsets into the others
    attributes  [.] int32, ascending within a box
    low, high   [.] int32, closed, 0 <= low <= high < size of the attribute
    """

    sizes: np.ndarray
    start: np.ndarray
    attributes: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def __len__(self) -> int:
        """Number of boxes."""
        return len(self.start) - 1


@dataclass(frozen=True)
class Tree:
    """Nodes in preorder, for the batch kernel. A row inside a box of a node passes the tests of the node and its
    ancestors.

    end         [nodes] int32, the first node behind the subtree of the node
    test_start  [nodes + 1] int64 into tests
    tests       [., 3] int32 (attribute, low, high), closed; a row enters a node if it passes all of the node's tests
    key_start   [nodes + 1] int64 into keys
    keys        [.] int32, the boxes stored at the node itself; a box may be stored at several nodes if no row passes
                the tests of two of them
    """

    end: np.ndarray
    test_start: np.ndarray
    tests: np.ndarray
    key_start: np.ndarray
    keys: np.ndarray


class Structure(Protocol):
    """A paper's index over boxes, which is updated box by box and searched row by row.

    A box's key is its index in the boxes that the structure was built from, or the key given to `insert`.
    """

    @classmethod
    def build(cls, boxes: Boxes, *args: Any, **parameters: Any) -> Self:
        """The structure over all boxes."""

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray], sizes: np.ndarray) -> Self:
        """The structure of saved `arrays`. Raises `InvalidArraysError` if they are inconsistent."""

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The whole state, as int32, int64, float64 or uint8 arrays of one or two dimensions."""

    @property
    def counts(self) -> dict[str, int]:
        """The number of its parts, by the paper's names."""

    def insert(self, key: int, attributes: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        """Adds a box under a new key. Raises `ValueError` if the key is in use."""

    def delete(self, key: int) -> None:
        """Removes a box. Raises `KeyError` if no box has this key."""

    def search(self, codes: np.ndarray) -> tuple[np.ndarray, dict[str, int]]:
        """The keys [.] int32, ascending, of the boxes that a row is inside, and the search's cost by the paper's names.

        codes: [attributes] int32, the code of every attribute.
        """

    def tree(self) -> Tree:
        """The structure's nodes for the batch kernel."""

    def check(self) -> None:
        """Raises `AssertionError` naming an invariant of the paper that does not hold; for tests."""


def boxes_of(c: Conjunctions) -> Boxes:
    """The boxes of all conjunctions of rules, in their order. A box has the interval from the lowest to the highest
    code of each attribute that the conjunction names."""
    first = int(c.disjunction_start[-1])
    pairs = c.terms[c.start[first] :]
    owner = np.repeat(np.arange(len(c.target) - first), np.diff(c.start)[first:])
    at = np.flatnonzero(pairs[:, 0] != DISJUNCTION)
    at = at[np.lexsort((pairs[at, 0], owner[at]))]
    attributes, sets = pairs[at, 0], pairs[at, 1]
    start = np.zeros(len(c.target) - first + 1, np.int64)
    np.cumsum(np.bincount(owner[at], minlength=len(start) - 1), out=start[1:])
    low, high = c.intervals[c.set_start[sets], 0], c.intervals[c.set_start[sets + 1] - 1, 1]
    return Boxes(c.sizes, start, attributes, low, high)
