"""Base class of the R-tree and the grid file: boxes in leaves, below nodes that bound them in some attributes."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from rules_index.engines.box_store import BoxArrays, BoxStore, loaded
from rules_index.engines.r_tree.dimensions import Dimensions, make_dimensions
from rules_index.engines.r_tree.nodes import FREE, USED, Nodes, link, load_nodes, saved
from rules_index.engines.r_tree.preorder import preorder
from rules_index.engines.r_tree.search import find_overlapping
from rules_index.index.array_checks import InvalidArraysError
from rules_index.index.boxes import Tree
from rules_index.index.events import Event


class BoxTree(ABC):
    """A tree over boxes that can be searched with a row, with some of its attributes, or with a box.

    A node keeps its number and a box its slot through `insert` and `delete`, as long as it exists; `build` and `load`
    assign new ones. So the marks of PDFA on nodes and entries (Wang and Kitsuregawa, section 3.3) can be stored outside
    the tree: stamps [len(nodes.level)] for the entries of inner nodes, which are nodes, and stamps [len(boxes.key)] for
    the entries of leaves, which are slots. Stamps are valid until the next update, because a freed number can be
    reused. Only updates write to nodes and boxes.
    """

    def __init__(self, store: BoxStore, dimensions: Dimensions, nodes: Nodes) -> None:
        self._store = store
        self._dimensions = dimensions
        self._nodes = nodes

    def __len__(self) -> int:
        """Number of boxes."""
        return len(self._store)

    @property
    def sizes(self) -> np.ndarray:
        """Number of codes [attributes] int32."""
        return self._store.sizes

    @property
    def nodes(self) -> Nodes:
        """The nodes, for reading by a caller's own kernel; valid until the next update."""
        return self._nodes

    @property
    def boxes(self) -> BoxArrays:
        """The boxes, for reading by a caller's own kernel; valid until the next update."""
        return self._store.view

    @property
    def dimensions(self) -> Dimensions:
        """The attributes that the nodes bound."""
        return self._dimensions

    @abstractmethod
    def _counters(self, inner: int, leaves: int, boxes: int) -> dict[str, int]:
        """The cost of a search by the paper's names: inner nodes and leaves visited, boxes tested."""

    @abstractmethod
    def _fault(self) -> str:
        """The first invariant of the paper that is violated, given that the nodes are a tree; "" if there is none."""

    def search(self, codes: np.ndarray) -> tuple[np.ndarray, dict[str, int]]:
        """The keys [.] int32, ascending, of the boxes that a row of codes [attributes] is inside, and the cost."""
        _, keys, counters = self.search_rows(np.reshape(codes, (-1, 1)))
        return keys, counters

    def search_rows(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
        """`search` for a code matrix [attributes, rows] int32: offsets [rows + 1] int64, keys [.] int32, total cost."""
        codes = self._code_matrix(codes)
        return self._search(codes, codes)

    def search_event(self, event: Event) -> tuple[np.ndarray, dict[str, int]]:
        """Returns candidates for an event: the keys [.] int32, ascending, of the boxes that overlap the bounds of its
        offered codes, and the cost. Attributes that the event does not have are not bounded."""
        attributes, start, intervals = event
        begin, end = start[:-1], start[1:]
        nonempty = end > begin
        low, high = intervals[begin[nonempty], 0], intervals[end[nonempty] - 1, 1]
        _, keys, counters = self._search(*self._range(attributes[nonempty], low, high))
        return keys, counters

    def tree(self) -> Tree:
        """The nodes for the batch kernel, with the boxes at the leaves."""
        return preorder(self._nodes, self._store.view, self._dimensions)

    def check(self) -> None:
        """Raises `AssertionError` naming an invariant that is violated; for tests."""
        nodes, boxes = self._nodes, self._store.view
        parent, leaf = np.full_like(nodes.parent, -1), np.empty_like(boxes.leaf)
        fault = link(nodes, boxes, parent, leaf)
        assert not fault, fault
        live, kept = nodes.level != FREE, boxes.key >= 0
        assert np.array_equal(parent[live], nodes.parent[live]), "a node's parent is another"
        assert np.array_equal(leaf[kept], boxes.leaf[kept]), "a box's leaf is another"
        assert not live[nodes.header[USED] :].any(), "a node is in use that never was taken"
        fault = self._fault()
        assert not fault, fault

    def _search(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
        offsets, keys, totals = find_overlapping(low, high, self._nodes, self._store.view, self._dimensions)
        return offsets, keys, self._counters(*totals.tolist())

    def _code_matrix(self, codes: np.ndarray) -> np.ndarray:
        if len(codes) != len(self.sizes):
            raise ValueError(f"a row has {len(self.sizes)} codes, not {len(codes)}")
        return np.ascontiguousarray(codes, np.int32)

    def _range(self, attributes: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the low and the high sides, both [attributes, 1] int32, of a box that bounds only some attributes."""
        sides = np.stack([np.zeros_like(self.sizes), self.sizes - 1])[:, :, None]
        sides[0, attributes, 0] = low
        sides[1, attributes, 0] = high
        return sides[0], sides[1]

    def _saved(self) -> dict[str, np.ndarray]:
        return {
            "dimensions": self._dimensions.attributes,
            **self._store.arrays,
            **saved(self._nodes),
        }


def load_parts(arrays: dict[str, np.ndarray], sizes: np.ndarray) -> tuple[BoxStore, Dimensions, Nodes]:
    """Loads the boxes, dimensions and nodes of a saved tree. Raises `InvalidArraysError` if they are
    inconsistent."""
    store = BoxStore.load(arrays, sizes)
    try:
        dimensions = make_dimensions(store.sizes, loaded(arrays, "dimensions", np.int32, 1))
    except ValueError as error:
        raise InvalidArraysError(str(error)) from None
    return store, dimensions, load_nodes(arrays, store.view, len(dimensions.attributes))
