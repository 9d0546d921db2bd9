"""Engine `cei`: the paper's structure over the boxes of the conjunctions; the batch kernel reads it as a tree."""

from __future__ import annotations

from typing import Any, ClassVar

from rules_index.engines.paper import BoxEngine


class Cei(BoxEngine):
    """Conjunctions filed under the constructs of their narrowest interval."""

    name: ClassVar[str] = "cei"
    structure_class: ClassVar[str] = "rules_index.engines.cei.structure:Cei"
    searches_sets: ClassVar[bool] = True
    parameters: ClassVar[dict[str, Any]] = {"access": "narrowest"}
