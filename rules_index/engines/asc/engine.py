"""Engine `asc`: attribute selection constructs, transposed for matching a batch of rows.

The paper has a bitmap over the rules for each region of an attribute; `search` reads these row by row. For a batch it
is the other way round: every interval of regions has a bitmap over the rows of a block. All conjunctions are scanned,
each from the term that the fewest rows satisfy. This takes the place of the paper's conditional selectivity, and is
measured again after a number of rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from rules_index.engines.paper import PaperEngine
from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.index.layout import AccessPlan, scan_all

if TYPE_CHECKING:
    from rules_index.engines.asc.constructs import SelectionConstructs


class Asc(PaperEngine):
    """Scans every conjunction over the row bitmaps of a block."""

    name: ClassVar[str] = "asc"
    structure_class: ClassVar[str] = "rules_index.engines.asc.constructs:SelectionConstructs"
    searches_events: ClassVar[bool] = True

    def _place(self) -> AccessPlan:
        return scan_all(self._conjunctions)

    @classmethod
    def _build_structure(cls, conjunctions: Conjunctions) -> SelectionConstructs:
        from rules_index.engines.asc.constructs import SelectionConstructs

        c, first = conjunctions, int(conjunctions.disjunction_start[-1])
        of_rules = replace(
            c,
            start=c.start[first:] - c.start[first],
            terms=c.terms[c.start[first] :],
            target=c.target[first:],
            disjunction_start=c.disjunction_start[:1],
        )
        return SelectionConstructs.build(of_rules)
