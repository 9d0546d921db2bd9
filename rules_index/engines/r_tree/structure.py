"""R-tree and R*-tree over boxes of region codes (Kuntschke and Kemper, sections 3.6, 4.2 and 6.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

import numpy as np

from rules_index.engines.box_store import BoxStore, loaded
from rules_index.engines.r_tree.box_tree import BoxTree, load_parts
from rules_index.engines.r_tree.dimensions import Dimensions, make_dimensions, most_selective
from rules_index.engines.r_tree.insertion import insert_entry, loose_node, nodes_needed, take_out
from rules_index.engines.r_tree.nodes import FREE, ROOT, Nodes, free_node, reserve
from rules_index.engines.r_tree.packing import pack
from rules_index.index.array_checks import require
from rules_index.index.boxes import Boxes

Split = Literal["quadratic", "r_star"]


class RTree(BoxTree):
    """Boxes below nodes whose rectangles bound them tightly in the indexed dimensions.

    In a dimension that it does not bound, a box spans the attribute's whole range of codes. A leaf tests all bounds of
    its boxes, including those on attributes that are not indexed, so no rectangle is stored for a box.
    """

    def __init__(
        self, store: BoxStore, dimensions: Dimensions, nodes: Nodes, min_entries: int, max_entries: int, split: Split
    ) -> None:
        super().__init__(store, dimensions, nodes)
        self._min_entries = min_entries
        self._max_entries = max_entries
        self._split = split

    @classmethod
    def build(
        cls,
        boxes: Boxes,
        *,
        dimensions: Sequence[int] | np.ndarray | None = None,
        min_entries: int = 5,
        max_entries: int = 10,
        split: Split = "quadratic",
    ) -> Self:
        """Builds a tree over all boxes by sort-tile-recursive bulk loading. Raises `ValueError` for invalid parameters.

        dimensions: the attributes that nodes bound; by default the most selective ones. min_entries, max_entries: the
        least and the most entries of a node (section 6.1: 5 and 10); the root may have fewer. split: how later
        insertions choose a node and split a full one, as in Guttman's R-tree ("quadratic") or in the R*-tree
        ("r_star").
        """
        if not 2 <= min_entries <= (max_entries + 1) // 2:
            raise ValueError(f"min_entries is from 2 to half of max_entries + 1, not {min_entries} of {max_entries}")
        if split not in ("quadratic", "r_star"):
            raise ValueError(f"split is 'quadratic' or 'r_star', not {split!r}")
        indexed = make_dimensions(boxes.sizes, most_selective(boxes) if dimensions is None else dimensions)
        store = BoxStore.of(boxes)
        return cls(store, indexed, pack(store, indexed, min_entries, max_entries), min_entries, max_entries, split)

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray], sizes: np.ndarray) -> Self:
        """Loads saved `arrays`. Raises `InvalidArraysError` if they are inconsistent."""
        store, dimensions, nodes = load_parts(arrays, sizes)
        parameters = loaded(arrays, "parameters", np.int64, 1)
        require(parameters.shape == (2,) and parameters[1] in (0, 1), "parameters")
        min_entries, r_star = parameters.tolist()
        max_entries = nodes.entries.shape[1]
        require(2 <= min_entries <= (max_entries + 1) // 2, "parameters")
        tree = cls(store, dimensions, nodes, min_entries, max_entries, "r_star" if r_star else "quadratic")
        fault = tree._fault()
        require(not fault, fault)
        return tree

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The whole state: boxes, dimensions, nodes and parameters."""
        parameters = np.array([self._min_entries, self._split == "r_star"], np.int64)
        return {**self._saved(), "parameters": parameters}

    @property
    def counts(self) -> dict[str, int]:
        """The number of all nodes, and of the leaves among them."""
        level = self._nodes.level
        return {"nodes": int((level != FREE).sum()), "leaves": int((level == 0).sum())}

    def insert(self, key: int, attributes: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        """Adds a box under a new key. Raises `ValueError` if the key is in use."""
        self._insert_entry(self._store.add(key, attributes, low, high), 0)

    def delete(self, key: int) -> None:
        """Removes a box. Raises `KeyError` if no box has this key."""
        slot = self._store.slot(key)
        orphans = take_out(slot, self._nodes, self._store.view, self._dimensions, self._min_entries)
        self._store.remove(key)
        # the highest level first: its entries are subtrees, into which entries of lower levels can then be inserted
        for node in orphans[::-1].tolist():
            level, count = int(self._nodes.level[node]), int(self._nodes.filled[node])
            entries = self._nodes.entries[node, :count].tolist()
            free_node(node, self._nodes)
            for entry in entries:
                self._insert_entry(entry, level)
        root = int(self._nodes.header[ROOT])
        while self._nodes.level[root] > 0 and self._nodes.filled[root] == 1:
            child = int(self._nodes.entries[root, 0])
            free_node(root, self._nodes)
            self._nodes.header[ROOT], self._nodes.parent[child] = child, -1
            root = child

    def _insert_entry(self, entry: int, level: int) -> None:
        root_level = int(self._nodes.level[self._nodes.header[ROOT]])
        self._nodes = reserve(self._nodes, nodes_needed(root_level, self._max_entries))
        insert_entry(
            entry, level, self._nodes, self._store.view, self._dimensions, self._min_entries, self._split == "r_star"
        )

    def _counters(self, inner: int, leaves: int, boxes: int) -> dict[str, int]:
        return {"nodes": inner + leaves, "boxes": boxes}

    def _fault(self) -> str:
        nodes = self._nodes
        live = nodes.level != FREE
        root = int(nodes.header[ROOT])
        if (nodes.following[live] >= 0).any() or nodes.entries.shape[1] != self._max_entries:
            return "a node has more than max_entries entries"
        lacking = live & (nodes.filled < self._min_entries)
        lacking[root] = nodes.level[root] > 0 and nodes.filled[root] < 2
        if lacking.any():
            return "a node has fewer than min_entries entries"
        view = nodes._replace(bounds=nodes.bounds.copy())
        if loose_node(view, self._store.view, self._dimensions) >= 0:
            return "a node's rectangle is not tight"
        return ""
