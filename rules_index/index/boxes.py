"""What the engines of the papers index: boxes over region codes, and the tree of nodes that holds them.

A conjunction's box has, for each attribute that the conjunction names, the interval from its lowest to its highest
code; what a box does not say (a set of several intervals, a shared disjunction) is checked on the rows that it holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np


@dataclass(frozen=True)
class Boxes:
    """Boxes, each bounding some attributes; a box holds the rows whose code of each is in [low, high].

    sizes       [attributes] int32, number of codes of each
    start       [boxes + 1] int64 into the others
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
    """Nodes in preorder, for the batch kernel: a row that a box of a node holds passes all tests above it.

    end         [nodes] int32, the node after the last one below it
    test_start  [nodes + 1] int64 into tests
    tests       [., 3] int32 (attribute, low, high), closed: all of a node's tests hold on the rows below it
    key_start   [nodes + 1] int64 into keys
    keys        [.] int32, the boxes kept at the node itself; a box stands at several nodes only where no row
                passes the tests of two of them
    """

    end: np.ndarray
    test_start: np.ndarray
    tests: np.ndarray
    key_start: np.ndarray
    keys: np.ndarray


class Structure(Protocol):
    """A paper's index over boxes: updated box by box, searched row by row.

    A box's key is its place in the boxes that the structure was built from, or what `insert` was given.
    """

    @classmethod
    def build(cls, boxes: Boxes, *args: Any, **parameters: Any) -> Self:
        """The structure over all boxes at once."""

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray], sizes: np.ndarray) -> Self:
        """From `arrays` as saved; `InvalidArraysError` where they are not sound."""

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The whole state, as int32, int64, float64 or uint8 arrays of one or two dimensions."""

    @property
    def counts(self) -> dict[str, int]:
        """What it is made of, by the paper's names."""

    def insert(self, key: int, attributes: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        """Adds a box under a key that is not in use; `ValueError` where it is."""

    def delete(self, key: int) -> None:
        """Removes a box; `KeyError` where there is none of this key."""

    def search(self, codes: np.ndarray) -> tuple[np.ndarray, dict[str, int]]:
        """The keys [.] int32, ascending, of the boxes that hold a row, and what it cost, by the paper's names.

        codes: [attributes] int32, the code of every attribute.
        """

    def renumber(self, sizes: np.ndarray, first: list[np.ndarray], last: list[np.ndarray]) -> None:
        """Follows regions that new constants have split: per attribute, the old code c is now the codes
        first[c] to last[c] (int32, ascending, covering all codes below the new size)."""

    def tree(self) -> Tree:
        """Its nodes for the batch kernel."""

    def check(self) -> None:
        """Raises `AssertionError` naming an invariant of the paper that does not hold; for tests."""
