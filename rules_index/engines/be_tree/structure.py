"""The BE-Tree as a `Structure` over boxes: updated box by box, searched with rows or events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rules_index.engines.be_tree.arrays import from_arrays, from_boxes, laid_out, to_arrays
from rules_index.engines.be_tree.deletion import remove
from rules_index.engines.be_tree.invariants import check
from rules_index.engines.be_tree.outline import batch_tree
from rules_index.engines.be_tree.search import COUNTERS, DISCARDED, Batch, match_batch
from rules_index.engines.be_tree.space_cutting import DONE, SHORT, insert_boxes, is_box, schedule, work
from rules_index.engines.be_tree.store import (
    HEADER,
    NO_EXPRESSION,
    Parameters,
    Store,
    enlarged,
    is_crowded,
    parameters_of,
    used_bytes,
    with_keys,
    with_windows,
)
from rules_index.engines.be_tree.validate import require_parameters, require_predicates
from rules_index.index.array_checks import require, require_offsets, require_range
from rules_index.index.boxes import Boxes, Tree
from rules_index.index.term_sets import NO_SETS, TermSets

GROWTH = 1.0
"""The spare room in the new layout of a tree that has grown, as a share of what is in use."""
MOST_KEYS = 2**31 - 1


def max_cap_for(match_probability: float) -> int:
    """Table 4: max_cap for the share, between 0 and 1, of expressions that an event matches."""
    return 5 if match_probability < 0.01 else 20 if match_probability < 0.1 else 160


@dataclass(frozen=True)
class Events:
    """Events that are expressions: for each attribute that they name, a set of closed intervals of codes.

    event_start  [events + 1] int64 into `attributes`
    attributes   [.] int32, each at most once in an event
    start        [attributes + 1] int64 into `intervals`
    intervals    [., 2] int32
    """

    event_start: np.ndarray
    attributes: np.ndarray
    start: np.ndarray
    intervals: np.ndarray

    def __post_init__(self) -> None:
        require_offsets(self.event_start, len(self.attributes), "event_start")
        require(self.start.ndim == 1 and len(self.start) == len(self.attributes) + 1, "start")
        require_offsets(self.start, len(self.intervals), "start")
        require(self.intervals.ndim == 2 and self.intervals.shape[1] == 2, "intervals")
        event = np.repeat(np.arange(len(self)), np.diff(self.event_start))
        named = np.stack([event, self.attributes], axis=1)
        require(len(np.unique(named, axis=0)) == len(named), "attributes: each at most once in an event")

    def __len__(self) -> int:
        """Number of events."""
        return len(self.event_start) - 1


class BETree:
    """Boxes in a BE-Tree; its parameters are those of `Parameters`.

    Updates, and searches that adapt, change the tree and need exclusive access. Other searches are thread-safe.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    @classmethod
    def build(cls, boxes: Boxes, *, batch: bool = True, **parameters: Any) -> Self:
        """Builds the tree over all boxes. Raises `ValueError` if boxes or parameters are out of bounds.

        parameters: those of `Parameters`. batch: space is cut from the root down with all boxes known (BE-B, section
        7.2); otherwise they are inserted one by one (BE). Both follow the same rules, but may choose different
        attributes.
        """
        chosen = Parameters(**parameters)
        require_parameters(chosen)
        predicates = np.stack([boxes.attributes, boxes.low, boxes.high], axis=1).astype(np.int32)
        start = boxes.start.astype(np.int64)
        if batch:
            tree = cls(from_arrays(from_boxes(start, predicates, chosen), boxes.sizes))
            schedule(tree._store, 0, chosen.max_cap, False)
            tree._finish()
        else:
            require_offsets(start, len(predicates), "start")
            require_predicates(predicates, boxes.sizes)
            none = from_boxes(np.zeros(1, np.int64), predicates[:0], chosen)
            tree = cls(with_keys(from_arrays(none, boxes.sizes), len(boxes) - 1))
            tree._insert(np.arange(len(boxes), dtype=np.int32), start, predicates)
        tree._store = laid_out(tree._store)
        return tree

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray], sizes: np.ndarray) -> Self:
        """Loads saved `arrays`. Raises `InvalidArraysError` if they are inconsistent."""
        return cls(from_arrays(arrays, sizes))

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The whole state, as the module `arrays` describes it."""
        return to_arrays(self._store)

    @property
    def counts(self) -> dict[str, int]:
        """The number of its p-, c- and l-nodes; every c-node has one l-node."""
        c_nodes, p_nodes = (len(self.arrays[name]) for name in ("c_nodes", "p_nodes"))
        return {"p_nodes": p_nodes, "c_nodes": c_nodes, "l_nodes": c_nodes}

    @property
    def parameters(self) -> Parameters:
        """The parameters with which the tree was built."""
        return parameters_of(self._store)

    @property
    def nbytes(self) -> int:
        """The bytes of the tree in memory, without its arrays' spare room."""
        return used_bytes(self._store)

    def __len__(self) -> int:
        """Number of boxes."""
        return int(self._store.c_nodes[0]["below"])

    def insert(self, key: int, attributes: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        """Adds a box under a new key. Raises `ValueError` if the key is in use, or the box out of bounds.

        Memory grows with the largest key.
        """
        expressions = self._store.expressions
        if not 0 <= key < MOST_KEYS or (key < len(expressions) and expressions[key] != NO_EXPRESSION):
            raise ValueError(f"key {key} is in use or out of bounds")
        predicates = np.empty((len(attributes), 3), np.int32)
        predicates[:, 0], predicates[:, 1], predicates[:, 2] = attributes, low, high
        if not is_box(self._store.sizes, predicates):
            raise ValueError("box: attributes ascend, 0 <= low <= high < number of codes")
        self._store = with_keys(self._store, key)
        self._insert(np.array([key], np.int32), np.array([0, len(predicates)]), predicates)

    def delete(self, key: int) -> None:
        """Removes a box. Raises `KeyError` if no box has this key."""
        expressions = self._store.expressions
        if not 0 <= key < len(expressions) or expressions[key] == NO_EXPRESSION:
            raise KeyError(key)
        remove(self._store, key)
        self._finish()

    def search(
        self, codes: np.ndarray, adapt: bool = False, sets: TermSets = NO_SETS
    ) -> tuple[np.ndarray, dict[str, int]]:
        """The keys [.] int32, ascending, of the boxes that a row is inside, and the cost (`COUNTERS`).

        codes: [attributes] int32, the code of every attribute. adapt: the evaluations that the search discards count as
        Loss, and nodes of low Rank are recycled (section 5). sets: the predicates that are sets with gaps; boxes have
        only their lowest and highest code.
        """
        _, keys, counters = self.search_rows(np.reshape(codes, (-1, 1)), adapt, sets)
        return np.sort(keys), counters

    def search_rows(
        self, codes: np.ndarray, adapt: bool = False, sets: TermSets = NO_SETS
    ) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
        """`search` for several rows: offsets [rows + 1] int64, keys [.] int32, and the sum of the costs.

        codes: [attributes, rows] int32. The keys of row i are keys[offsets[i] : offsets[i + 1]], in the order in which
        they are found.
        """
        codes = np.ascontiguousarray(codes, np.int32)
        if codes.ndim != 2 or len(codes) != len(self._store.sizes):
            raise ValueError("codes: one row an attribute")
        empty = np.empty(0, np.int32)
        none = np.zeros(1, np.int64)
        return self._search(Batch(codes, none, empty, none, empty.reshape(0, 2)), sets, codes.shape[1], adapt)

    def search_event(
        self, event: tuple[np.ndarray, np.ndarray, np.ndarray], adapt: bool = False, sets: TermSets = NO_SETS
    ) -> tuple[np.ndarray, dict[str, int]]:
        """`search` for an event that is an expression: its attributes, start and intervals as in `Events`."""
        attributes, start, intervals = event
        _, keys, counters = self.search_events(
            Events(np.array([0, len(attributes)]), attributes, start, intervals), adapt, sets
        )
        return np.sort(keys), counters

    def search_events(
        self, events: Events, adapt: bool = False, sets: TermSets = NO_SETS
    ) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
        """`search_rows` for events."""
        attributes = np.ascontiguousarray(events.attributes, np.int32)
        require_range(attributes, 0, len(self._store.sizes), "attributes")
        batch = Batch(
            np.empty((len(self._store.sizes), 0), np.int32),
            np.ascontiguousarray(events.event_start, np.int64),
            attributes,
            np.ascontiguousarray(events.start, np.int64),
            np.ascontiguousarray(events.intervals, np.int32),
        )
        return self._search(batch, sets, len(events), adapt)

    def tree(self) -> Tree:
        """The nodes for the batch kernel: one for each bucket that has a box in it or below it."""
        return batch_tree(to_arrays(self._store))

    def check(self) -> None:
        """Raises `AssertionError` naming an invariant of the paper that is violated; for tests."""
        check(self._store)

    def _insert(self, keys: np.ndarray, start: np.ndarray, predicates: np.ndarray) -> None:
        done = insert_boxes(self._store, keys, start, predicates, 0)
        self._finish()
        while done < len(keys):
            words = HEADER + 3 * int(start[done + 1] - start[done])
            if is_crowded(self._store, words):
                self._store = laid_out(self._store, GROWTH, words)
            done = insert_boxes(self._store, keys, start, predicates, done)
            self._finish()

    def _finish(self) -> None:
        """Finishes the work of an update; makes more room when it runs out."""
        outcome = work(self._store)
        while outcome != DONE:
            self._store = enlarged(self._store) if outcome == SHORT else laid_out(self._store, GROWTH)
            outcome = work(self._store)

    def _search(
        self, batch: Batch, sets: TermSets, events: int, adapt: bool
    ) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
        if adapt and not len(self._store.c_windows):
            self._store = with_windows(self._store)
        offsets = np.zeros(events + 1, np.int64)
        found = np.empty(max(64, events), np.int32)
        counters = np.zeros(DISCARDED + 1, np.int64)
        done = 0
        while done < events:
            done, found = match_batch(self._store, batch, sets, done, offsets, found, counters, adapt)
            if adapt:
                self._finish()
        return offsets, found[: offsets[-1]], dict(zip(COUNTERS, counters.tolist(), strict=False))
