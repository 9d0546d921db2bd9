"""Continuous selection-join queries over streams, one row at a time (Wang and Kitsuregawa, sections 2.2 and 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchmarks.papers.systems.pdfa import searches
from benchmarks.papers.systems.pdfa.join_buffer import JoinBuffer, combine
from rules_index.arrays import offsets_of
from rules_index.engines.grid_file.structure import GridFile
from rules_index.engines.r_tree.box_tree import BoxTree
from rules_index.engines.r_tree.structure import RTree
from rules_index.index.boxes import Boxes
from rules_index.join.pdfa.filtering import ENTRIES, NODES, Marks

Search = Literal["list", "naive", "scan"]
INDEXES: dict[str, type[RTree] | type[GridFile]] = {"r_tree": RTree, "grid_file": GridFile}
NULL_KEY = -1
"""The key of a row that joins no row."""


@dataclass(frozen=True)
class Arrival:
    """The joined rows of a row that has arrived, and the queries that each satisfies.

    rows     [joined rows, streams] int64, the rows by the number of their arrival within their stream
    offsets  [joined rows + 1] int64, offsets into keys
    keys     [.] int32, keys of boxes, ascending for each joined row
    """

    rows: np.ndarray
    offsets: np.ndarray
    keys: np.ndarray


class SelectionJoin:
    """All queries with one join predicate: a join buffer for their streams, and one index of their boxes.

    A query's box bounds attributes of all streams. An arriving row is joined with earlier rows that have the same key
    and are within the windows: with t the latest time among the rows, the time of the row of stream i is in [t -
    windows[i], t]. Rows may come late, in any order of times. A row expires once no row that is at most `lateness`
    behind the latest time seen can be joined with it, or never if `lateness` is None. A row that comes even later is
    joined with the rows that are still kept.

    search: how joined rows are filtered.

    | search | |
    |---|---|
    | list | PDFA: FIRST with the arrived row's dimensions, SECOND for each joined row with all others, on the list of intermediate results |
    | naive | the whole index is searched for each joined row |
    | scan | every box is compared with every joined row |

    counters: `nodes` visited, `entries` of leaves checked, `first` and `second` searches, `joined_rows`.
    """  # noqa: E501

    def __init__(
        self,
        boxes: Boxes,
        stream_of: Sequence[int] | np.ndarray,
        windows: Sequence[int],
        *,
        index: Literal["r_tree", "grid_file"] = "grid_file",
        search: Search = "list",
        lateness: int | None = None,
        **parameters: Any,
    ) -> None:
        """boxes: the queries. stream_of: [attributes] the stream of each attribute. windows: the length of each
        stream's window, in the unit of the rows' times. parameters: passed to the index."""
        self._stream_of = np.asarray(stream_of, np.int64)
        if len(self._stream_of) != len(boxes.sizes) or not np.isin(self._stream_of, np.arange(len(windows))).all():
            raise ValueError("every attribute is of one of the streams")
        self.index: BoxTree = INDEXES[index].build(boxes, **parameters)
        self._search = search
        self._windows = np.array(windows, np.int64)
        self._lateness = lateness
        self._latest: int | None = None
        self._attributes = [np.flatnonzero(self._stream_of == stream) for stream in range(len(windows))]
        self.buffer = JoinBuffer([len(each) for each in self._attributes])
        self._marks = Marks(np.empty(0, np.int64), np.empty(0, np.int64))
        self._stamp = 0
        self.counters = dict.fromkeys(("nodes", "entries", "first", "second", "joined_rows"), 0)

    def arrive(self, stream: int, key: int, time: int, codes: np.ndarray) -> Arrival:
        """Joins a row with the rows before it, filters the joined rows, and keeps the row.

        codes: [attributes of the stream] int32, by ascending attribute. A row with `NULL_KEY` is not kept.
        """
        others = [other for other in range(len(self._windows)) if other != stream]
        if key == NULL_KEY:
            return self._filtered(stream, others, codes, [np.empty(0, np.int64)] * len(others), time)
        self._expire(time)
        earliest, latest = time - self._windows[others], time + int(self._windows[stream])
        partners = [
            self.buffer.probe(other, key, int(low), latest) for other, low in zip(others, earliest, strict=True)
        ]
        found = self._filtered(stream, others, codes, partners, time)
        found.rows[:, stream] = self.buffer.insert(stream, key, time, np.ascontiguousarray(codes, np.int32))
        return found

    def _expire(self, time: int) -> None:
        self._latest = time if self._latest is None else max(self._latest, time)
        if self._lateness is not None:
            for stream, window in enumerate(self._windows.tolist()):
                self.buffer.expire(stream, self._latest - self._lateness - window)

    def _filtered(
        self, stream: int, others: list[int], codes: np.ndarray, partners: list[np.ndarray], time: int
    ) -> Arrival:
        """Forms the joined rows of an arriving row with its partners, the arrivals of each other stream, and finds
        their queries."""
        begin = offsets_of(np.array([len(each) for each in partners]))
        times = np.concatenate([self.buffer.times(*pair) for pair in zip(others, partners, strict=True)])
        combinations = combine(begin, times, self._windows[others], time, int(self._windows[stream]))
        rows = np.empty((len(combinations), len(self._windows)), np.int64)
        rows[:, others] = np.concatenate(partners)[combinations]
        self.counters["joined_rows"] += len(rows)
        if not len(rows):
            return Arrival(rows, np.zeros(1, np.int64), np.empty(0, np.int32))
        joined = np.empty((len(rows), len(self._stream_of)), np.int32)
        joined[:, self._attributes[stream]] = codes
        for place, other in enumerate(others):
            known = self.buffer.codes(other, partners[place])
            joined[:, self._attributes[other]] = known[combinations[:, place] - begin[place]]
        totals = np.zeros(2, np.int64)
        offsets, keys = self._filter(stream, others, joined, totals)
        self.counters["nodes"] += int(totals[NODES])
        self.counters["entries"] += int(totals[ENTRIES])
        return Arrival(rows, offsets, keys)

    def _filter(
        self, stream: int, others: list[int], joined: np.ndarray, totals: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns offsets [joined rows + 1] int64 and keys [.] int32: the boxes that contain joined rows with the codes
        `joined` [joined rows, attributes]. Adds to totals [2] int64."""
        tree = self.index
        if self._search == "scan":
            return searches.scan_boxes(joined, tree.boxes, totals)
        if self._search == "naive":
            offsets, keys, cost = tree.search_rows(joined.T)
            *nodes, entries = cost.values()
            totals += np.array([sum(nodes), entries])
            return offsets, keys
        own_attributes = self._stream_of == stream
        slots = self._search_first(joined[0], own_attributes, totals)
        attributes = np.concatenate([self._attributes[other] for other in others])
        survivors = searches.list_survivors(slots, attributes, tree.boxes, tree.sizes)
        self.counters["second"] += len(joined)
        return searches.search_list(joined[:, attributes], survivors, totals)

    def _search_first(self, row: np.ndarray, own_attributes: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """FIRST with a new stamp: the slots [.] int32 that survive."""
        tree = self.index
        if len(self._marks.node) < len(tree.nodes.level) or len(self._marks.entry) < len(tree.boxes.key):
            self._marks = Marks(np.zeros(len(tree.nodes.level), np.int64), np.zeros(len(tree.boxes.key), np.int64))
        self._stamp += 1
        self.counters["first"] += 1
        return searches.search_first(
            row, own_attributes, tree.nodes, tree.boxes, tree.dimensions, self._marks, self._stamp, totals
        )
