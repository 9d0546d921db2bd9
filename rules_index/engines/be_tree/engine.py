"""Engine `be_tree`: conjunctions partitioned by the codes of few attributes.

It is laid out anew for batches: an l-node's key is the conjunction of the buckets on its path, so l-nodes whose buckets
are single codes of the same attributes become one table that is looked up by these codes, whatever the length of the
path; expressions in wider buckets are met by sorting the batch by their attribute, and what stays in the root is
scanned. Which attributes partition is chosen by the kernel's measured costs in place of the paper's rank (section 5),
which counts predicates.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.index.engine import BoxEngine
from rules_index.index.layout import Placement
from rules_index.index.planner import plans


class BETree(BoxEngine):
    """Conjunctions partitioned by the codes of few attributes."""

    name: ClassVar[str] = "be_tree"
    structure_class: ClassVar[str] = "rules_index.engines.be_tree.structure:BETree"

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
        held = keys[self._conjunctions.meets(keys, offered)]
        return np.unique(self._conjunctions.rules(held)), counters | {"matches": len(held)}

    def _place(self, conjunctions: Conjunctions, keys: np.ndarray) -> Placement:
        placement, self._placement = self._placement, None
        return placement or plans(conjunctions, self._sample)[1].placement

    def _changed(self) -> None:
        super()._changed()
        self._placement = None
