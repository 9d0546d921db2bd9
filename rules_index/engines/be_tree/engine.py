"""Engine `be_tree`: the paper's structure over the boxes of the conjunctions, walked by the batch kernel."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rules_index.engines.paper import BoxEngine
from rules_index.index.events import offered_by


class BETree(BoxEngine):
    """Conjunctions in a BE-Tree."""

    name: ClassVar[str] = "be_tree"
    structure_class: ClassVar[str] = "rules_index.engines.be_tree.structure:BETree"
    searches_sets: ClassVar[bool] = True

    def search_event(self, event: tuple[np.ndarray, np.ndarray, np.ndarray]) -> tuple[np.ndarray, dict[str, int]]:
        """As `KernelEngine.search_event`; the structure finds the conjunctions whose gates are left to check."""
        keys, counters = self.structure.search_event(event, sets=self._conjunctions.sets)
        self._require_known(keys)
        held = keys[self._conjunctions.meets_gates(keys, offered_by(event))]
        return np.unique(self._conjunctions.rules(held)), counters | {"matches": len(held)}
