"""Engine `r_tree`: the paper's structure over the boxes of the conjunctions; the batch kernel descends it."""

from __future__ import annotations

from typing import ClassVar

from rules_index.engines.paper import BoxEngine


class RTree(BoxEngine):
    """Conjunctions in an R-tree."""

    name: ClassVar[str] = "r_tree"
    structure_class: ClassVar[str] = "rules_index.engines.r_tree.structure:RTree"
    searches_events: ClassVar[bool] = True
