"""Engine `hybrid`: each conjunction has the access path that is expected to cost least.

A conjunction is *scanned* (row bitmaps of a block are intersected), *hashed* (looked up in a hash table by its codes of
some attributes), or *sorted* (compared with the part of a sorted run that its interval overlaps). The planner chooses
by the measured costs of the kernel's steps.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.index.engine import KernelEngine
from rules_index.index.events import Event
from rules_index.index.layout import AccessPlan, scan_all

if TYPE_CHECKING:
    from rules_index.index.access_lists import AccessLists


class Hybrid(KernelEngine):
    """Conjunctions that are scanned, in hash tables or in sorted runs."""

    name: ClassVar[str] = "hybrid"

    def __init__(
        self,
        conjunctions: Conjunctions,
        kernel: dict[str, np.ndarray] | None = None,
        sample: np.ndarray | None = None,
        access_plan: AccessPlan | None = None,
    ) -> None:
        """access_plan: the plan of these conjunctions, if it is already known."""
        super().__init__(conjunctions, kernel, sample)
        self._access_plan = access_plan
        self._lists: AccessLists | None = None
        self._listing = Lock()

    @classmethod
    def scanning(cls, conjunctions: Conjunctions) -> Self:
        """An engine that scans every conjunction: for a few batches, for which planning would cost more than it
        saves."""
        return cls(conjunctions, access_plan=scan_all(conjunctions))

    def search(self, codes: np.ndarray) -> tuple[np.ndarray, dict[str, int]]:
        """The rules [.] int32, ascending, that a row of codes [attributes] int32 satisfies."""
        return self._access_lists().search(codes), {}

    def search_event(self, event: Event) -> tuple[np.ndarray, dict[str, int]]:
        """The rules [.] int32, ascending, with a conjunction that an event given as an expression matches."""
        return self._access_lists().search_event(event), {}

    def _access_lists(self) -> AccessLists:
        """The access lists for one event at a time; they are built at the first event."""
        lists = self._lists
        if lists is None:
            with self._listing:
                lists = self._lists
                if lists is None:
                    # imported here: batches need neither these lists nor a plan once the index is stored
                    from rules_index.index.access_lists import AccessLists
                    from rules_index.index.planner.selectivity import code_shares

                    shares = code_shares(self._conjunctions, self._sample)
                    lists = self._lists = AccessLists(self._conjunctions, shares)
        return lists

    @property
    def structure_counts(self) -> dict[str, int]:
        """The number of conjunctions by access path."""
        access_plan = self._known_plan()
        hashed, run = int((access_plan.table >= 0).sum()), int((access_plan.sorted_by >= 0).sum())
        return {"scanned": len(access_plan.table) - hashed - run, "hashed": hashed, "sorted": run}

    def _place(self) -> AccessPlan:
        # not kept: its arrays have an element for each conjunction, and `structure_counts` can plan again
        access_plan, self._access_plan = self._known_plan(), None
        return access_plan

    def _known_plan(self) -> AccessPlan:
        if self._access_plan is None:
            from rules_index.index.planner import plans

            self._access_plan = plans(self._conjunctions, self._sample)[1].access_plan
        return self._access_plan
