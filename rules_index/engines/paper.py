"""Base classes of the papers' engines, whose structure is stored with the index and can be searched row by row."""

from __future__ import annotations

from abc import abstractmethod
from pkgutil import resolve_name
from threading import Lock
from typing import Any, ClassVar, Self

import numpy as np

from rules_index.engines.refinement import Refinement
from rules_index.index.array_checks import InvalidArraysError
from rules_index.index.boxes import Structure, boxes_of
from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.index.engine import KernelEngine
from rules_index.index.events import Event
from rules_index.index.layout import AccessPlan, scan_all

_STORED = "structure_"


class PaperEngine(KernelEngine):
    """An engine with a paper's structure. The structure's keys are numbers of conjunctions; see `Refinement`.

    The structure is stored as arrays. A loaded index opens and checks them at the first search only, since a batch is
    matched by the kernel's arrays. Searches are thread-safe.
    """

    structure_class: ClassVar[str]
    """The structure's module and class, `package.module:Class`; imported when it is built or opened."""
    parameters: ClassVar[dict[str, Any]] = {}
    searches_sets: ClassVar[bool] = False
    """Whether the structure's search also evaluates sets with gaps, so that only shared disjunctions are left to
    test."""
    searches_events: ClassVar[bool] = False
    """Whether the structure can find the conjunctions that an event given as an expression may match."""

    def __init__(
        self,
        conjunctions: Conjunctions,
        kernel: dict[str, np.ndarray] | None = None,
        sample: np.ndarray | None = None,
        stored: dict[str, np.ndarray] | None = None,
    ) -> None:
        """stored: the arrays of the structure over these conjunctions; None if it has to be built from them."""
        super().__init__(conjunctions, kernel, sample)
        self._refinement = Refinement(conjunctions)
        self._stored = stored
        self._structure: Any = None
        self._opening = Lock()

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray], attributes: int, rules: int) -> Self:
        """Loads stored arrays. Raises `InvalidArraysError` if they are inconsistent; the structure's arrays are only
        checked when it is opened."""
        stored = {name[len(_STORED) :]: array for name, array in arrays.items() if name.startswith(_STORED)}
        if not stored:
            raise InvalidArraysError("structure")
        engine = super().load(
            {name: arrays[name] for name in arrays if not name.startswith(_STORED)}, attributes, rules
        )
        engine._stored = stored
        return engine

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays that are stored: the conjunctions, the kernel's arrays and the structure's."""
        if self._stored is None:
            self._stored = {name: array.view() for name, array in self.structure.arrays.items()}
        return super().arrays | {_STORED + name: array for name, array in self._stored.items()}

    @property
    def structure(self) -> Any:
        """The paper's structure. Raises `InvalidArraysError` if its stored arrays are inconsistent."""
        if self._structure is None:
            with self._opening:
                if self._structure is None:
                    self._structure = self._opened()
        return self._structure

    def _opened(self) -> Any:
        if self._stored is None:
            return self._build_structure(self._conjunctions)
        return resolve_name(self.structure_class).load(self._stored, self._conjunctions.sizes)

    def search(self, codes: np.ndarray) -> tuple[np.ndarray, dict[str, int]]:
        """The rules [.] int32, ascending, that a row of codes [attributes] satisfies, and the search's cost in the
        paper's terms."""
        refinement = self._refinement
        if self.searches_sets:
            keys, counters = self.structure.search(codes, sets=refinement.sets)
            self._require_known(keys)
            held = keys[refinement.passes_disjunctions(keys, codes)]
        else:
            keys, counters = self.structure.search(codes)
            self._require_known(keys)
            held = keys[refinement.passes(keys, codes)]
        if "matches" in counters:
            counters = counters | {"matches": len(held)}
        return refinement.rules(held), counters

    def search_event(self, event: Event) -> tuple[np.ndarray, dict[str, int]]:
        """The rules [.] int32, ascending, that an event given as an expression matches by some conjunction, and the
        search's cost. Only the conjunctions that the structure finds are compared with the event, or all of them if it
        cannot search for events."""
        if not self.searches_events:
            return super().search_event(event)
        keys, counters = self.structure.search_event(event)
        self._require_known(keys)
        held = keys[self._refinement.meets(keys, event)]
        return self._refinement.rules(held), counters

    @property
    def structure_counts(self) -> dict[str, int]:
        """The number of nodes, pages or lists of the structure, by kind."""
        return {kind: int(count) for kind, count in self.structure.counts.items()}

    def _require_known(self, keys: np.ndarray) -> None:
        if not self._refinement.has(keys):
            raise InvalidArraysError("structure: it names conjunctions that there are not")

    @classmethod
    @abstractmethod
    def _build_structure(cls, conjunctions: Conjunctions) -> Any:
        """The paper's structure over conjunctions."""


class BoxEngine(PaperEngine):
    """An engine whose structure is a tree over boxes, which the batch kernel descends."""

    @classmethod
    def _build_structure(cls, conjunctions: Conjunctions) -> Structure:
        structure: type[Structure] = resolve_name(cls.structure_class)
        return structure.build(boxes_of(conjunctions), **cls.parameters)

    def _place(self) -> AccessPlan:
        return scan_all(self._conjunctions, self.structure.tree())
