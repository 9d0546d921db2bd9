"""Multilevel grid file over boxes of region codes (Wang and Kitsuregawa, section 2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from rules_index.arrays import grown
from rules_index.engines.box_store import BoxStore, loaded
from rules_index.engines.grid_file.bulk import fill_pages
from rules_index.engines.grid_file.deletion import delete_point
from rules_index.engines.grid_file.insertion import insert_point, pages_needed
from rules_index.engines.grid_file.invariants import page_fault
from rules_index.engines.grid_file.regions import make_turns
from rules_index.engines.r_tree.box_tree import BoxTree, load_parts
from rules_index.engines.r_tree.dimensions import Dimensions, make_dimensions, most_selective
from rules_index.engines.r_tree.nodes import ROOT, USED, Nodes, reserve
from rules_index.index.array_checks import require, require_range
from rules_index.index.boxes import Boxes


class GridFile(BoxTree):
    """Boxes as points, low and high side of each indexed dimension, in pages with disjoint regions.

    A row v is the range query low_i in [0..v_i], high_i in [v_i..last]: the bounds of a page are the least low sides
    and the greatest high sides in its region. A page's region is the largest one made by halving whose members fit in a
    page, so the pages do not depend on the order of insertion. Points that no halving separates stay in one page,
    however many they are: further blocks of `page_size` points are linked behind it, and each counts as a page read. A
    box's bounds on attributes that are not indexed are tested when its point is read.
    """

    def __init__(self, store: BoxStore, dimensions: Dimensions, nodes: Nodes, halvings: np.ndarray) -> None:
        super().__init__(store, dimensions, nodes)
        self._halvings = halvings
        self._turns = make_turns(dimensions.last)

    @classmethod
    def build(cls, boxes: Boxes, *, dimensions: Sequence[int] | np.ndarray | None = None, page_size: int = 32) -> Self:
        """Builds a grid file over all boxes at once. Raises `ValueError` for invalid parameters.

        dimensions: the attributes whose sides are coordinates; by default the most selective ones. page_size: the most
        entries of a directory page, and the most points of a data page (the default is *ours*, the paper gives none).
        """
        if page_size < 2:
            raise ValueError(f"page_size is at least 2, not {page_size}")
        indexed = make_dimensions(boxes.sizes, most_selective(boxes) if dimensions is None else dimensions)
        store = BoxStore.of(boxes)
        return cls(store, indexed, *fill_pages(store, indexed, make_turns(indexed.last), page_size))

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray], sizes: np.ndarray) -> Self:
        """Loads saved `arrays`. Raises `InvalidArraysError` if they are inconsistent."""
        store, dimensions, nodes = load_parts(arrays, sizes)
        halvings = loaded(arrays, "page_halvings", np.int32, 1)
        require(nodes.entries.shape[1] >= 2 and halvings.shape == nodes.level.shape, "page_halvings")
        grid = cls(store, dimensions, nodes, halvings)
        require_range(halvings, 0, len(grid._turns.round), "page_halvings")
        fault = grid._fault()
        require(not fault, fault)
        return grid

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The whole state: boxes, dimensions, pages and their halvings."""
        return {**self._saved(), "page_halvings": self._halvings[: int(self._nodes.header[USED])]}

    @property
    def counts(self) -> dict[str, int]:
        """The number of its directory pages, and of its data pages (buckets)."""
        level = self._nodes.level
        return {"directory_pages": int((level > 0).sum()), "buckets": int((level == 0).sum())}

    def insert(self, key: int, attributes: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        """Adds a box under a new key. Raises `ValueError` if the key is in use."""
        slot = self._store.add(key, attributes, low, high)
        nodes = self._nodes
        self._nodes = nodes = reserve(nodes, pages_needed(int(nodes.level[nodes.header[ROOT]])))
        self._halvings = grown(self._halvings, len(nodes.level))
        insert_point(slot, nodes, self._halvings, self._store.view, self._dimensions, self._turns)

    def delete(self, key: int) -> None:
        """Removes a box. Raises `KeyError` if no box has this key."""
        delete_point(self._store.slot(key), self._nodes, self._halvings, self._store.view, self._turns)
        self._store.remove(key)

    def _counters(self, inner: int, leaves: int, boxes: int) -> dict[str, int]:
        return {"directory_pages": inner, "data_pages": leaves, "points": boxes}

    def _fault(self) -> str:
        return page_fault(self._nodes, self._halvings, self._store.view, self._dimensions, self._turns)
