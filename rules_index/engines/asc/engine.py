"""Engine `asc`: attribute selection constructs, transposed for matching a batch of rows.

The paper has a bitmap over the rules for each region of an attribute; `search` reads these row by row. For a batch,
every interval of regions has instead a bitmap over the rows of a block, and all conjunctions are scanned, the terms
with the fewest rows first: that is the paper's conditional selectivity, measured again after a number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rules_index.engines.paper import PaperEngine
from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.editable_conjunctions import Term
from rules_index.index.layout import AccessPlan, scan_all

if TYPE_CHECKING:
    from rules_index.engines.asc.constructs import SelectionConstructs


class Asc(PaperEngine):
    """Scans every conjunction over the row bitmaps of a block."""

    name: ClassVar[str] = "asc"
    structure_class: ClassVar[str] = "rules_index.engines.asc.constructs:SelectionConstructs"
    searches_events: ClassVar[bool] = True

    def _place(self, conjunctions: Conjunctions, keys: np.ndarray) -> AccessPlan:
        return scan_all(conjunctions)

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

    @staticmethod
    def _insert_into(structure: SelectionConstructs, key: int, terms: Sequence[Term]) -> None:
        named = sorted((term for term in terms if term[0] != DISJUNCTION), key=lambda term: term[0])
        attributes = np.array([attribute for attribute, _ in named], np.int32)
        structure.insert(key, attributes, [np.asarray(intervals, np.int32) for _, intervals in named])
