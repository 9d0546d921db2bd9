"""The index of conjunctions by CEI: an interval index for each attribute, searched in two phases (CEI paper, 2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal, Self, get_args

import numpy as np

from rules_index.engines.cei.box_table import BoxTable
from rules_index.engines.cei.constructs import KINDS, UI, ConstructLayout, Kind, bounds_of_places, choose_k, lay_out
from rules_index.engines.cei.id_lists import IdLists
from rules_index.engines.cei.invariants import check_decomposition, check_lists
from rules_index.engines.cei.search import search_rows
from rules_index.index.array_checks import InvalidArraysError, require, require_offsets, require_range
from rules_index.index.boxes import Boxes, Tree
from rules_index.index.term_sets import NO_SETS, TermSets

Access = Literal["every", "narrowest"]
ACCESSES: dict[Access, int] = {"every": 0, "narrowest": 1}
COSTS = ("lists_read", "ids_read", "predicates_evaluated", "matches")


@dataclass(frozen=True)
class Parameters:
    """How boxes are indexed.

    kind            the virtual constructs: containment-encoded, logarithmic or unit intervals
    access          "every": a box is filed under each of its attributes, and a search counts the predicates that the
                    row satisfies (phase 2 of section 2.1); "narrowest" (ours): it is filed only under the attribute
                    whose interval has the smallest share of the attribute's codes, and the others are compared
    segment_length  L of the paper, a power of two, for all attributes; 0: `constructs.choose_k` for each
    """

    kind: Kind = "cei"
    access: Access = "every"
    segment_length: int = 0

    def __post_init__(self) -> None:
        for name, values in (("kind", Kind), ("access", Access)):
            if getattr(self, name) not in get_args(values):
                raise ValueError(f"{name} is one of {', '.join(get_args(values))}, not {getattr(self, name)!r}")


class Cei:
    """Boxes in id lists, one for each virtual construct of every attribute (`index.boxes.Structure`).

    Boxes that bound no attribute contain every row and are in no list. Searches share a tally of satisfied predicates,
    so a lock serialises them.
    """

    def __init__(self, parameters: Parameters, boxes: BoxTable, layout: ConstructLayout, lists: IdLists) -> None:
        self.parameters = parameters
        self._boxes = boxes
        self._layout = layout
        self._lists = lists
        self._tally = np.zeros(0, np.int64)
        self._tally_in_use = Lock()
        self._searches = 1
        terms, _ = self._filed_terms(boxes.live)
        self._filed = np.bincount(terms[:, 0], minlength=len(boxes.sizes))
        self._everywhere = boxes.unbounded

    @classmethod
    def build(cls, boxes: Boxes, **parameters: Any) -> Self:
        """Builds the structure over all boxes at once; `parameters` are the fields of `Parameters`."""
        return cls._of_table(Parameters(**parameters), BoxTable.of(boxes))

    @classmethod
    def _of_table(cls, parameters: Parameters, table: BoxTable) -> Self:
        terms, owner = table.terms_of(table.live, parameters.access == "narrowest")
        kinds = np.full(len(table.sizes), KINDS[parameters.kind])
        layout = lay_out(kinds, table.sizes, choose_k(table.sizes, terms, parameters.segment_length))
        return cls(parameters, table, layout, IdLists.of_terms(layout, terms, owner))

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray], sizes: np.ndarray) -> Self:
        """Loads saved `arrays`. Raises `InvalidArraysError` if they are inconsistent."""
        for name in ("parameters", "k", "keys", "start", "terms", "list_start", "ids"):
            require(name in arrays, name)
        require(arrays["parameters"].shape == (3,) and arrays["parameters"].dtype == np.int64, "parameters")
        kind, access, segment_length = (int(x) for x in arrays["parameters"])
        require(0 <= kind < len(KINDS) and 0 <= access < len(ACCESSES) and 0 <= segment_length < 1 << 31, "parameters")
        require(segment_length & (segment_length - 1) == 0, "parameters")
        parameters = Parameters(list(KINDS)[kind], list(ACCESSES)[access], segment_length)
        table = BoxTable.load(arrays, sizes.astype(np.int32))
        require(arrays["k"].shape == sizes.shape and arrays["k"].dtype == np.int32, "k")
        require_range(arrays["k"], 0, 32, "k")
        require(kind != UI or not arrays["k"].any(), "k")
        try:
            layout = lay_out(np.full(len(sizes), kind), sizes, arrays["k"])
        except ValueError as error:
            raise InvalidArraysError("k") from error
        list_start, ids = arrays["list_start"], arrays["ids"]
        require(ids.ndim == 1 and ids.dtype == np.int32, "ids")
        require(list_start.dtype == np.int32 and len(list_start) == layout.at[-1] + 1, "list_start")
        require_offsets(list_start, len(ids), "list_start")
        structure = cls(parameters, table, layout, IdLists(list_start, ids))
        require(not structure._wrong(), "ids")
        return structure

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The state: the boxes by ascending key as in `BoxTable.arrays`; `list_start` [places + 1] int32, offsets into
        `ids` [.] int32, which are indices of boxes in `keys`; `k` [attributes] int32; `parameters` [3] int64: kind,
        access, L."""
        list_start, ids = self._lists.packed()
        live = self._boxes.live
        number = np.empty(len(self._boxes.view.key), np.int32)
        number[live] = np.arange(len(live))
        p = self.parameters
        return {
            "parameters": np.array([KINDS[p.kind], ACCESSES[p.access], p.segment_length], np.int64),
            "k": self._layout.k,
            **self._boxes.arrays,
            "list_start": list_start,
            "ids": number[ids],
        }

    @property
    def counts(self) -> dict[str, int]:
        """The number of virtual constructs, and of id lists that are not empty."""
        return {"constructs": len(self._lists.length), "id_lists": int(np.count_nonzero(self._lists.length))}

    def insert(self, key: int, attributes: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        """Adds a box under a new key. Raises `ValueError` if the key is in use, or the box invalid."""
        slot = self._boxes.add(key, attributes, low, high)
        terms, _ = self._filed_terms(np.array([slot]))
        self._lists.add(self._layout, terms, slot)
        self._filed[terms[:, 0]] += 1
        if len(attributes) == 0:
            self._everywhere = np.sort(np.append(self._everywhere, np.int32(key)))

    def delete(self, key: int) -> None:
        """Removes a box. Raises `KeyError` if no box has this key."""
        slot = self._boxes.slot(key)
        terms, _ = self._filed_terms(np.array([slot]))
        self._lists.remove(self._layout, terms, slot)
        self._filed[terms[:, 0]] -= 1
        self._boxes.remove(key)
        self._everywhere = self._everywhere[self._everywhere != key]

    def search(self, codes: np.ndarray, sets: TermSets = NO_SETS) -> tuple[np.ndarray, dict[str, int]]:
        """The keys [.] int32, ascending, of the boxes that a row is inside, and the cost; see `search_rows`."""
        _, keys, costs = self.search_rows(codes[:, None], sets)
        return keys, costs

    def search_rows(self, codes: np.ndarray, sets: TermSets = NO_SETS) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
        """(offsets [rows + 1] int64, keys [.] int32, costs) of rows searched one by one, codes [attributes, rows]
        int32; the keys of a row ascend. sets: the terms that are sets with gaps; boxes have only their lowest and
        highest code.

        Costs: `lists_read` (those of the constructs that cover a value, including empty ones), `ids_read` (with access
        "every" satisfied predicates, with "narrowest" candidates), `predicates_evaluated` (comparisons of candidates'
        other terms, and of sets with gaps), `matches`.
        """
        sizes = self._boxes.sizes
        # a single memory layout and dtype, so that the kernel is compiled once
        codes = np.ascontiguousarray(codes, np.int32)
        if codes.shape[0] != len(sizes) or (codes < 0).any() or (codes >= sizes[:, None]).any():
            raise ValueError("codes are not one row per attribute, or not within its codes")
        view = self._boxes.view
        costs = np.zeros(len(COSTS), np.int64)
        with self._tally_in_use:
            if len(self._tally) < len(view.key):
                self._tally, self._searches = np.zeros(len(view.key), np.int64), 1
            offsets, keys = search_rows(
                codes, self.parameters.access == "every", self._layout, self._filed, self._lists.start,
                self._lists.length, self._lists.pool, view, sets, self._everywhere, self._tally, self._searches, costs,
            )  # fmt: skip
            self._searches += codes.shape[1]
        return offsets, keys, dict(zip(COSTS, costs.tolist(), strict=True))

    def tree(self) -> Tree:
        """The nodes for the batch kernel, with boxes filed under their narrowest attribute only: one for each construct
        whose list is not empty, and one without tests for the boxes that contain every row, if there are any."""
        narrow = self
        if self.parameters.access == "every":
            p = self.parameters
            narrow = Cei._of_table(Parameters(p.kind, "narrowest", p.segment_length), self._boxes)
        layout, lists = narrow._layout, narrow._lists
        places = np.flatnonzero(lists.length)
        tests = bounds_of_places(layout, places)
        start, ids = lists.packed()
        unbounded_nodes = int(len(self._everywhere) > 0)
        nodes = unbounded_nodes + len(places)
        return Tree(
            end=np.arange(1, nodes + 1, dtype=np.int32),
            test_start=np.maximum(np.arange(nodes + 1, dtype=np.int64) - unbounded_nodes, 0),
            tests=tests,
            key_start=np.concatenate(
                [np.zeros(unbounded_nodes, np.int64), len(self._everywhere) + start[np.append(places, len(start) - 1)]]
            ),
            keys=np.concatenate([self._everywhere, self._boxes.view.key[ids]]),
        )

    def check(self) -> None:
        """Raises `AssertionError` if the pieces of a filed interval are not a minimal partition of it, or the list of a
        construct does not have exactly the boxes with an interval that it is a piece of."""
        terms, _ = self._filed_terms(self._boxes.live)
        check_decomposition(self._layout, terms)
        wrong = self._wrong()
        assert not wrong, wrong
        assert np.array_equal(self._filed, np.bincount(terms[:, 0], minlength=len(self._filed))), "filed terms"
        assert np.array_equal(self._everywhere, self._boxes.unbounded), "boxes without terms"

    def _wrong(self) -> str:
        view = self._boxes.view
        count = np.minimum(view.length, 1) if self.parameters.access == "narrowest" else view.length
        return check_lists(self._layout, view.start, count, view.terms, *self._lists.packed())

    def _filed_terms(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the terms [., 3] int32 under which the boxes in these slots are filed, and the slot [.] int32 of
        each."""
        return self._boxes.terms_of(slots, self.parameters.access == "narrowest")
