"""Runs the paper's system over a batch of sides, row after row, with the same result as `join.joined_batches`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rules_index.arrays import offsets_of
from rules_index.engines.grid_file.structure import GridFile
from rules_index.engines.r_tree.box_tree import BoxTree
from rules_index.engines.r_tree.structure import RTree
from rules_index.join.candidates import list_rules
from rules_index.join.joined_batches import Piece
from rules_index.join.local_conjuncts import Split
from rules_index.join.pdfa.arrivals import Arrivals, QueryIndex, Work, let_arrive
from rules_index.join.pdfa.filtering import Marks, stack_size
from rules_index.join.pdfa.join_buffer import LEAST_ROOM, make_rows
from rules_index.join.pdfa.queries import Queries
from rules_index.join.residual_predicates import AcrossTests, AcrossValues
from rules_index.join.window_partners import OrderedRows

COUNTERS = ("nodes", "entries", "first", "second", "probes")
_LARGEST_KEY = 1 << 60


class RowByRow:
    """The rules of one join as queries in one index.

    counters: summed over all batches: `nodes` visited and `entries` of leaves checked, by FIRST and along marked paths
    by SECOND; `first` and `second` searches; and rows that probed the join buffer (`probes`).
    """

    def __init__(self, split: Split, engine: str) -> None:
        """engine: `r_tree`; with any other one the index is the paper's choice, a multilevel grid file."""
        self._target = split.target
        self._queries = Queries.of(split)
        index = RTree if engine == "r_tree" else GridFile
        self._tree: BoxTree = index.build(self._queries.boxes, dimensions=self._queries.indexed())
        self.counters = dict.fromkeys(COUNTERS, 0)

    def pieces(
        self, rows: OrderedRows, codes: Sequence[np.ndarray], tests: AcrossTests, values: AcrossValues, most: int
    ) -> Iterator[Piece]:
        """Yields pieces of joined rows, each made from at most `most` pairs of a joined row and a conjunction, unless
        one joined row has more. `rows` are ordered by time within each side.

        codes: per stream [attributes, rows] int32.
        """
        index, arriving = self._index(), self._arriving(rows, codes)
        work = self._work(arriving)
        at, count = 0, len(rows)
        while at < count:
            at, found = let_arrive(at, arriving, index, work, most)
            query, number, joined = found.query, found.number, np.ascontiguousarray(found.rows.T)
            if tests.needed:
                held = tests.hold(query, number, joined, rows, codes, values)
                query, number = query[held], number[held]
            listed, offsets, ordinals = list_rules(query, number, joined, self._target, rows.row)
            if len(offsets) > 1:
                yield Piece(tuple(listed), offsets, ordinals)
        self._count(work)

    def _arriving(self, rows: OrderedRows, codes: Sequence[np.ndarray]) -> Arrivals:
        order = np.lexsort((-rows.stream, rows.time))
        stream = rows.stream[order]
        key = rows.key[order]
        if key.max(initial=0) >= _LARGEST_KEY:
            key = np.unique(key, return_inverse=True)[1].reshape(-1).astype(np.int64)
        flat = [self._queries.codes(number, each) for number, each in enumerate(codes)]
        at = offsets_of(np.array([each.size for each in flat]))[:-1]
        width = np.diff(self._queries.first)
        return Arrivals(
            windows=rows.windows,
            stream=stream,
            key=key,
            time=rows.time[order],
            new=rows.new[order],
            owned=rows.owned[order],
            position=order.astype(np.int32),
            code_at=at[stream] + (order - rows.begin[stream]) * width[stream],
            codes=np.concatenate([each.reshape(-1) for each in flat]),
        )

    def _work(self, arriving: Arrivals) -> Work:
        rows, streams = len(arriving.time), len(arriving.windows)
        room = LEAST_ROOM
        while room < rows:
            room *= 2
        # there are no more pairs of a key and a stream than rows, so at most half of the slots are used
        return Work(
            buffer=make_rows(room, 2 * room, 0, 0),
            marks=Marks(np.zeros(len(self._tree.nodes.level), np.int64), np.zeros(len(self._tree.boxes.key), np.int64)),
            partners=np.empty((streams, rows), np.int64),
            left=np.empty((streams, len(self._tree.boxes.key)), np.int32),
            stack=np.empty(stack_size.py_func(self._tree.nodes), np.int32),
            row=np.empty(len(self._tree.sizes), np.int32),
            begin=np.zeros(streams, np.int64),
            counters=np.zeros(len(COUNTERS), np.int64),
        )

    def _index(self) -> QueryIndex:
        tree = self._tree
        first = self._queries.first
        dimension = np.arange(first[-1])
        chosen = (dimension >= first[:-1, None]) & (dimension < first[1:, None])
        return QueryIndex(tree.nodes, tree.boxes, tree.dimensions, first, chosen, self._queries.terms)

    def _count(self, work: Work) -> None:
        for name, count in zip(COUNTERS, work.counters.tolist(), strict=True):
            self.counters[name] += count
