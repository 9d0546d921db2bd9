"""Engine `grid_file`: the paper's structure over the boxes of the conjunctions; the batch kernel descends it."""

from __future__ import annotations

from typing import ClassVar

from rules_index.engines.paper import BoxEngine


class GridFile(BoxEngine):
    """Conjunctions as points in a multilevel grid file."""

    name: ClassVar[str] = "grid_file"
    structure_class: ClassVar[str] = "rules_index.engines.grid_file.structure:GridFile"
    searches_events: ClassVar[bool] = True
