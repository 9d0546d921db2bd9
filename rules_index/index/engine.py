"""What all engines share: conjunctions, and the arrays by which the kernel matches batches of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.index.events import Event, rules_met
from rules_index.index.layout import BLOCK_ROWS, AccessPlan, lay_out
from rules_index.index.validate_conjunctions import validate
from rules_index.kernels.fields import DTYPES, SCALARS
from rules_index.kernels.match import KernelArrays, arranged, match_codes

MEASURED = {
    "transposed": None,
    "summary_terms": np.int32,
    "summary_next": np.int64,
    "equality_attributes": np.int32,
    "equality_start": np.int32,
    "equality_terms": np.uint8,
    "equality_conjunctions": np.int32,
    "equality_next": np.int64,
}
"""The fields of the kernel that `kernels.match.arranged` returns behind `terms`, in its order, each with its dtype;
None for a number. They depend on the rows that are matched, and are not stored."""
SHARED = {"set_start": "set_start", "set_intervals": "intervals", "disjunction_start": "disjunction_start"}
"""Fields of the kernel that are fields of the conjunctions: the conjunctions' name of each."""
KERNEL = tuple(DTYPES)
CONJUNCTIONS = tuple(Conjunctions.__dataclass_fields__)
REARRANGED_ROWS, ROWS_A_CONJUNCTION = 1 << 20, 64
"""The order of terms is measured again after so many rows (the recomputation period lambda of the ASC paper), plus so
many for each conjunction, because measuring reads every conjunction. If less than a block of rows was measured, the
next batch with more rows is measured, too."""


class Matching(Protocol):
    """The methods of an engine that a compiled rule set calls."""

    @property
    def name(self) -> str:
        """The engine's name."""

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays that are stored."""

    def match(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Matches `codes` [attributes, rows]: uint8 if no attribute has more than `COARSE_CODES` codes, else int32.
        Returns (offsets [rows + 1] int64, rule ordinals [hits] int32)."""

    def search(self, codes: np.ndarray) -> tuple[np.ndarray, dict[str, int]]:
        """The rules [.] int32, ascending, that a row of codes [attributes] satisfies; and the search's cost by the
        paper's counters."""

    def search_event(self, event: Event) -> tuple[np.ndarray, dict[str, int]]:
        """The rules [.] int32, ascending, with a conjunction that an event given as an expression matches; and the
        search's cost."""

    @property
    def structure_counts(self) -> dict[str, int]:
        """The number of parts of the engine's own structure, by kind."""


class Engine(Matching, Protocol):
    """An engine that can be built and loaded."""

    @classmethod
    def build(cls, conjunctions: Conjunctions, sample: np.ndarray | None = None) -> Self:
        """An engine over these conjunctions. sample: codes [attributes, rows] of some rows, from which it may choose
        its layout."""

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray], attributes: int, rules: int) -> Self:
        """The engine of stored arrays. Raises `InvalidArraysError` if they are inconsistent."""


class KernelEngine(ABC):
    """An engine whose batches the kernel matches. Matching is thread-safe."""

    name: ClassVar[str]

    def __init__(
        self,
        conjunctions: Conjunctions,
        kernel: dict[str, np.ndarray] | None = None,
        sample: np.ndarray | None = None,
    ) -> None:
        """kernel: the kernel's arrays, if they are stored. sample: codes [attributes, rows] of some rows, from which a
        layout may be chosen."""
        self._conjunctions = conjunctions
        self._sample = sample
        self._kernel = kernel
        # as measured on the last batch that was measured; measured again once `_rows_left` rows have been matched
        self._index: KernelArrays | None = None
        self._rows_left = self._rows_measured = 0

    @classmethod
    def build(cls, conjunctions: Conjunctions, sample: np.ndarray | None = None) -> Self:
        """An engine over these conjunctions."""
        return cls(conjunctions, sample=sample)

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray], attributes: int, rules: int) -> Self:
        """The engine of stored arrays. Raises `InvalidArraysError` if they are inconsistent."""
        conjunctions = validate(arrays, attributes, rules)
        kernel = {name: arrays["kernel_" + name] for name in (*KERNEL, "scalars")}
        return cls(conjunctions, kernel)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays that are stored: the conjunctions and the kernel's arrays."""
        kernel = self._arrays()
        arrays = {name: getattr(self._conjunctions, name) for name in CONJUNCTIONS}
        arrays |= {"kernel_" + name: array for name, array in kernel.items()}
        return arrays

    def match(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Matches `codes` [attributes, rows]: uint8 if no attribute has more than `COARSE_CODES` codes, else int32.
        Returns (offsets [rows + 1] int64, rule ordinals [hits] int32)."""
        index, codes = self._index, np.ascontiguousarray(codes)
        rows = codes.shape[1]
        if index is None or (self._rows_left <= 0 and rows) or self._rows_measured < min(rows, BLOCK_ROWS):
            index = self._index = self._measured(codes, self._unmeasured())
            self._rows_left = REARRANGED_ROWS + ROWS_A_CONJUNCTION * len(index.target)
            self._rows_measured = rows
        self._rows_left -= rows
        # byte codes are copied as coarse codes, without a shift
        if codes.dtype == np.uint8 and index.shift.max(initial=0) > 0:
            codes = codes.astype(np.int32)
        of_bytes = codes.dtype == np.uint8
        # the kernel takes an array of each dtype; the one that is not used has no rows
        none = np.empty((len(codes), 0), np.int32 if of_bytes else np.uint8)
        result: tuple[np.ndarray, np.ndarray] = match_codes(*((none, codes) if of_bytes else (codes, none)), index)
        return result

    def _measured(self, codes: np.ndarray, index: KernelArrays) -> KernelArrays:
        """The kernel's arrays with terms in the order measured on this batch, and with the fields of `MEASURED`."""
        rows = codes.shape[1]
        count = min(rows, index.block_rows)
        # at most a block of rows, spread over the batch
        some = np.ascontiguousarray(codes[:, np.arange(count) * rows // max(1, count)], np.int32)
        terms, transposed, *arrays = arranged(some, index)
        measured = dict(zip(MEASURED, (transposed, *map(_read_only, arrays)), strict=True))
        return index._replace(terms=_read_only(terms), **measured)

    @property
    def scan_method(self) -> str:
        """How the last batch was scanned (`planner.scan_costs`): "bitmaps", "summaries" or "equality blocks"."""
        index = self._index
        if index is None or not len(index.summary_terms) + len(index.equality_terms):
            return "bitmaps"
        return "equality blocks" if len(index.equality_terms) else "summaries"

    def search(self, codes: np.ndarray) -> tuple[np.ndarray, dict[str, int]]:
        """The rules [.] int32, ascending, that a row of codes [attributes] satisfies, and the search's cost."""
        return self.match(codes[:, None])[1], {}

    def search_event(self, event: Event) -> tuple[np.ndarray, dict[str, int]]:
        """The rules [.] int32, ascending, with a conjunction that an event given as an expression matches; and the
        search's cost."""
        return rules_met(self._conjunctions, event), {}

    @property
    @abstractmethod
    def structure_counts(self) -> dict[str, int]:
        """The number of parts of the engine's own structure, by kind."""

    def _arrays(self) -> dict[str, np.ndarray]:
        """The kernel's arrays that are stored; conjunctions are laid out first if they have to be."""
        if self._kernel is None:
            kernel = lay_out(self._conjunctions, self._place())
            self._kernel = {name: _read_only(kernel[name]) for name in (*KERNEL, "scalars")}
        return self._kernel

    def _unmeasured(self) -> KernelArrays:
        """All that the kernel reads, with the fields of `MEASURED` empty."""
        kernel = self._arrays()
        fields: dict[str, Any] = {name: _read_only(kernel[name]) for name in KERNEL}
        fields |= {name: _read_only(getattr(self._conjunctions, source)) for name, source in SHARED.items()}
        fields |= zip(SCALARS, (int(x) for x in kernel["scalars"]), strict=True)
        fields |= {name: _read_only(np.empty(0, kind)) if kind else 0 for name, kind in MEASURED.items()}
        return KernelArrays(**fields)

    @abstractmethod
    def _place(self) -> AccessPlan:
        """Returns the access plan of the rules' conjunctions."""


def _read_only(array: np.ndarray) -> np.ndarray:
    """Returns a read-only view. Numba has a type of its own for writable arrays, for which kernels would be compiled
    again."""
    view = np.ascontiguousarray(array).view()
    view.setflags(write=False)
    return view
