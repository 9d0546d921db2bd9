"""Engines `be_tree`, `r_tree`, `grid_file` and `cei`: a paper's structure over the boxes of the conjunctions.

The last three are walked for a batch as they are built. `be_tree` is laid out anew for batches: an l-node's key is the
conjunction of the buckets on its path, so l-nodes whose buckets are single codes of the same attributes become one
table that is looked up by these codes, whatever the length of the path; expressions in wider buckets are met by
sorting the batch by their attribute, and what stays in the root is scanned. Which attributes partition is chosen by
the kernel's measured costs in place of the paper's rank (section 5), which counts predicates.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rules_index.engines.be_tree import BETree as BETreeStructure
from rules_index.engines.cei import Cei as CeiStructure
from rules_index.engines.grid_file import GridFile as GridFileStructure
from rules_index.engines.r_tree import RTree as RTreeStructure
from rules_index.index.boxes import Structure, Tree
from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.index.engine import BoxEngine
from rules_index.index.layout import Placement, scan_all
from rules_index.index.planner import plans


class BETree(BoxEngine):
    """Conjunctions partitioned by the codes of few attributes."""

    name: ClassVar[str] = "be_tree"
    structure_class: ClassVar[type[Structure]] = BETreeStructure

    def __init__(
        self,
        conjunctions: Conjunctions,
        kernel: dict[str, np.ndarray] | None = None,
        sample: np.ndarray | None = None,
        placement: Placement | None = None,
    ) -> None:
        """placement: of these conjunctions, where it is known already."""
        super().__init__(conjunctions, kernel, sample)
        self._placement = placement

    def search_event(self, event: tuple[np.ndarray, np.ndarray, np.ndarray]) -> tuple[np.ndarray, dict[str, int]]:
        """As `search`, for an event that is an expression: attributes [.], start [. + 1] and intervals [., 2] of codes,
        one part of the intervals for each attribute. A rule needs every attribute that one of its conjunctions names.
        """
        keys, counters = self.structure.search_event(event)
        attributes, start, intervals = event
        offered = {
            int(attribute): np.asarray(intervals)[start[place] : start[place + 1]]
            for place, attribute in enumerate(attributes)
        }
        held = keys[self._stored.meets(keys, offered)]
        return np.unique(self._stored.rules(held)), counters | {"matches": len(held)}

    def _place(self, conjunctions: Conjunctions, keys: np.ndarray) -> Placement:
        placement, self._placement = self._placement, None
        return placement or plans(conjunctions, self._sample)[1].placement

    def _changed(self) -> None:
        super()._changed()
        self._placement = None


class _Walked(BoxEngine):
    """An engine whose tree is walked by the batch kernel."""

    def _place(self, conjunctions: Conjunctions, keys: np.ndarray) -> Placement:
        place = np.zeros(int(keys.max(initial=-1)) + 1, np.int32)
        place[keys] = np.arange(len(keys), dtype=np.int32)
        tree = self.structure.tree()
        return scan_all(conjunctions, Tree(tree.end, tree.test_start, tree.tests, tree.key_start, place[tree.keys]))


class RTree(_Walked):
    """Conjunctions in an R-tree."""

    name: ClassVar[str] = "r_tree"
    structure_class: ClassVar[type[Structure]] = RTreeStructure


class GridFile(_Walked):
    """Conjunctions as points in a multilevel grid file."""

    name: ClassVar[str] = "grid_file"
    structure_class: ClassVar[type[Structure]] = GridFileStructure


class Cei(_Walked):
    """Conjunctions filed under the constructs of their narrowest interval."""

    name: ClassVar[str] = "cei"
    structure_class: ClassVar[type[Structure]] = CeiStructure
    parameters: ClassVar[dict[str, Any]] = {"access": "narrowest"}
