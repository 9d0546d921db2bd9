"""What the papers' engines share: a structure that is stored, searched row by row, and descended by the batch
kernel."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pkgutil import resolve_name
from threading import Lock
from typing import Any, ClassVar, Self

import numpy as np

from rules_index.index.boxes import Structure, Tree
from rules_index.index.conjunction_arrays import Conjunctions, InvalidArraysError
from rules_index.index.editable_conjunctions import Term, box_of, boxes_of
from rules_index.index.engine import KernelEngine
from rules_index.index.events import Event, offered_by
from rules_index.index.layout import AccessPlan, scan_all

_STORED = "structure_"


class PaperEngine(KernelEngine):
    """An engine with a paper's structure; its keys number the conjunctions in the order of their insertion.

    The structure is stored as arrays. A loaded index opens, and checks, them at the first search: matching batches
    reads only the kernel's arrays. Updates need exclusive access; searches are thread-safe.
    """

    structure_class: ClassVar[str]
    """The structure's module and class, `package.module:Class`; imported when it is built or opened."""
    parameters: ClassVar[dict[str, Any]] = {}
    searches_sets: ClassVar[bool] = False
    """Whether the structure's search also evaluates sets with gaps, so that only shared disjunctions remain to be
    checked."""
    searches_events: ClassVar[bool] = False
    """Whether the structure can find what an event that is an expression may match."""

    def __init__(
        self,
        conjunctions: Conjunctions,
        kernel: dict[str, np.ndarray] | None = None,
        sample: np.ndarray | None = None,
        stored: dict[str, np.ndarray] | None = None,
    ) -> None:
        """stored: the arrays of the structure over these conjunctions."""
        super().__init__(conjunctions, kernel, sample)
        self._stored = stored
        self._structure: Any = None
        self._opening = Lock()

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray], attributes: int, rules: int) -> Self:
        """Loads stored arrays. Raises `InvalidArraysError` where they are inconsistent; those of the structure are
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
            conjunctions, keys = self._conjunctions.conjunctions()
            unchanged = np.array_equal(keys, np.arange(len(keys)))
            structure = self.structure if unchanged else self._build_structure(conjunctions)
            self._stored = {name: array.view() for name, array in structure.arrays.items()}
        return super().arrays | {_STORED + name: array for name, array in self._stored.items()}

    @property
    def structure(self) -> Any:
        """The paper's structure. Raises `InvalidArraysError` where its stored arrays are inconsistent."""
        if self._structure is None:
            with self._opening:
                if self._structure is None:
                    self._structure = self._opened()
        return self._structure

    def _opened(self) -> Any:
        if self._stored is None:
            return self._build_structure(self._conjunctions.conjunctions()[0])
        return resolve_name(self.structure_class).load(self._stored, self._conjunctions.sizes)

    def search(self, codes: np.ndarray) -> tuple[np.ndarray, dict[str, int]]:
        """The rules [.] int32, ascending, that a row of codes [attributes] satisfies, and the search's cost in the
        paper's terms."""
        conjunctions = self._conjunctions
        if self.searches_sets:
            keys, counters = self.structure.search(codes, sets=conjunctions.sets)
            self._require_known(keys)
            held = keys[conjunctions.passes_disjunctions(keys, codes)]
        else:
            keys, counters = self.structure.search(codes)
            self._require_known(keys)
            held = keys[conjunctions.passes(keys, codes)]
        if "matches" in counters:
            counters = counters | {"matches": len(held)}
        return np.unique(conjunctions.rules(held)), counters

    def search_event(self, event: Event) -> tuple[np.ndarray, dict[str, int]]:
        """The rules [.] int32, ascending, that an event given as an expression matches by some conjunction, and the
        search's cost: conjunctions that the structure finds are compared with the event, or all if it cannot search
        events."""
        if not self.searches_events:
            return super().search_event(event)
        keys, counters = self.structure.search_event(event)
        self._require_known(keys)
        held = keys[self._conjunctions.meets(keys, offered_by(event))]
        return np.unique(self._conjunctions.rules(held)), counters

    def insert(self, rule: int, terms: Sequence[Term]) -> None:
        """Adds a conjunction of a rule, given by its ordinal; terms are (attribute, intervals [., 2] of codes)."""
        structure = self.structure
        key = self._conjunctions.insert(rule, terms)
        self._insert_into(structure, key, terms)
        self._changed()

    def delete(self, rule: int) -> None:
        """Removes all conjunctions of a rule. Raises `KeyError` where it has none."""
        structure = self.structure
        keys = self._conjunctions.delete(rule)
        if not keys:
            raise KeyError(rule)
        for key in keys:
            structure.delete(key)
        self._changed()

    def renumber(self, sizes: np.ndarray, first: list[np.ndarray], last: list[np.ndarray]) -> None:
        """Renumbers codes after new constants have split regions: per attribute, the old code c becomes first[c] to
        last[c]."""
        self.structure.renumber(sizes, first, last)
        super().renumber(sizes, first, last)

    @property
    def structure_counts(self) -> dict[str, int]:
        """The number of nodes, pages or lists of the structure, by kind."""
        return {kind: int(count) for kind, count in self.structure.counts.items()}

    def _require_known(self, keys: np.ndarray) -> None:
        if not self._conjunctions.has(keys):
            raise InvalidArraysError("structure: it names conjunctions that there are not")

    def _changed(self) -> None:
        super()._changed()
        self._stored = None

    @classmethod
    @abstractmethod
    def _build_structure(cls, conjunctions: Conjunctions) -> Any:
        """The paper's structure over conjunctions."""

    @staticmethod
    @abstractmethod
    def _insert_into(structure: Any, key: int, terms: Sequence[Term]) -> None:
        """Adds a conjunction to the structure."""


class BoxEngine(PaperEngine):
    """An engine whose structure is a tree over boxes, which the batch kernel descends."""

    @classmethod
    def _build_structure(cls, conjunctions: Conjunctions) -> Structure:
        structure: type[Structure] = resolve_name(cls.structure_class)
        return structure.build(boxes_of(conjunctions), **cls.parameters)

    @staticmethod
    def _insert_into(structure: Any, key: int, terms: Sequence[Term]) -> None:
        structure.insert(key, *box_of(terms))

    def _place(self, conjunctions: Conjunctions, keys: np.ndarray) -> AccessPlan:
        place = np.zeros(int(keys.max(initial=-1)) + 1, np.int32)
        place[keys] = np.arange(len(keys), dtype=np.int32)
        tree = self.structure.tree()
        return scan_all(conjunctions, Tree(tree.end, tree.test_start, tree.tests, tree.key_start, place[tree.keys]))
