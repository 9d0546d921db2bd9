"""Engine `be_tree`: the paper's structure over the boxes of the conjunctions; the batch kernel descends it."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rules_index.engines.paper import BoxEngine
from rules_index.index.boxes import Structure, boxes_of
from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.index.events import Event
from rules_index.index.planner.selectivity import match_probability


class BETree(BoxEngine):
    """Conjunctions in a BE-Tree; max_cap is that of Table 4 for the expected match probability."""

    name: ClassVar[str] = "be_tree"
    structure_class: ClassVar[str] = "rules_index.engines.be_tree.structure:BETree"
    searches_sets: ClassVar[bool] = True

    @classmethod
    def _build_structure(cls, conjunctions: Conjunctions) -> Structure:
        from rules_index.engines.be_tree.structure import BETree, max_cap_for

        share = match_probability(conjunctions)
        return BETree.build(boxes_of(conjunctions), **{"max_cap": max_cap_for(share)} | cls.parameters)

    def search_event(self, event: Event) -> tuple[np.ndarray, dict[str, int]]:
        """See `KernelEngine.search_event`. The structure's search evaluates all terms but shared disjunctions, which
        are tested here."""
        keys, counters = self.structure.search_event(event, sets=self._refinement.sets)
        self._require_known(keys)
        held = keys[self._refinement.meets_disjunctions(keys, event)]
        return self._refinement.rules(held), counters | {"matches": len(held)}
