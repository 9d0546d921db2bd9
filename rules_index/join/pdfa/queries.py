"""The conjunctions of a join's rules as the queries of the paper's system: boxes over the dimensions of all streams.

A dimension is an attribute of one stream, or a shared disjunction over attributes of one stream, whose code is 1 if it
is TRUE and else 0. An attribute computed from several streams is not a dimension (section 2.2 has no such thing): it is
tested on the joined rows that are left, as in the batch form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rules_index.arrays import gather_indices, offsets_of, segment_ids
from rules_index.index.boxes import Boxes, boxes_of
from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.hybrid import Hybrid
from rules_index.join.local_conjuncts import NOTHING, Parts, Split

INDEXED_DIMENSIONS = 8
"""The number of dimensions that are indexed, divided equally among the streams but at least two of each: the most
selective ones. Bounds on the others are tested at a box."""


class QueryTerms(NamedTuple):
    """The exact terms of conjunctions on each stream.

    start      [conjunctions * streams + 1] int64, offsets into terms, by conjunction and then by stream
    terms      [., 2] int32 (dimension, counted within its stream; set)
    set_start  [sets + 1] int64 into intervals
    intervals  [., 2] int32, closed, ascending, disjoint ranges of codes
    """

    start: np.ndarray
    terms: np.ndarray
    set_start: np.ndarray
    intervals: np.ndarray


@dataclass(frozen=True)
class Queries:
    """All conjunctions of a join's rules.

    first  [streams + 1] int64, the first dimension of each stream; attributes come before shared disjunctions
    boxes  the conjunctions' boxes over all dimensions; the key is the conjunction's number
    terms  the conjunctions' terms
    disjunctions  for each stream the engine that evaluates its shared disjunctions; None if it has none
    """

    first: np.ndarray
    boxes: Boxes
    terms: QueryTerms
    disjunctions: tuple[Hybrid | None, ...]

    @classmethod
    def of(cls, split: Split) -> Queries:
        """Makes queries from conjunctions that are divided by stream."""
        streams = len(split.parts)
        each = [_dimensions(parts) for parts in split.parts]
        first = offsets_of(np.array([len(c.sizes) for c, _ in each]))
        sets = offsets_of(np.array([len(c.set_start) - 1 for c, _ in each]))
        terms, owner = [], []
        for stream, ((c, _), parts) in enumerate(zip(each, split.parts, strict=True)):
            named = np.flatnonzero(parts.number != NOTHING)
            gather, start = gather_indices(c.start, parts.number[named])
            terms.append(c.terms[gather] + np.array([first[stream], sets[stream]]))
            owner.append(named[segment_ids(start)] * streams + stream)
        owner_of = np.concatenate(owner)
        order = np.argsort(owner_of, kind="stable")
        all_terms = np.concatenate(terms)[order].astype(np.int32)
        start = offsets_of(np.bincount(owner_of, minlength=len(split.target) * streams))
        queries = Conjunctions(
            sizes=np.concatenate([c.sizes for c, _ in each]).astype(np.int32),
            set_start=offsets_of(np.concatenate([np.diff(c.set_start) for c, _ in each])),
            intervals=np.concatenate([c.intervals for c, _ in each]).astype(np.int32),
            start=start[::streams].copy(),
            terms=all_terms,
            target=np.arange(len(split.target), dtype=np.int32),
            disjunction_start=np.zeros(1, np.int32),
        )
        within = all_terms - np.stack([first[owner_of[order] % streams], np.zeros(len(order), np.int64)], axis=1)
        return cls(
            first,
            boxes_of(queries),
            QueryTerms(start, within.astype(np.int32), queries.set_start, queries.intervals),
            tuple(disjunctions for _, disjunctions in each),
        )

    def codes(self, stream: int, codes: np.ndarray) -> np.ndarray:
        """Returns the codes [rows, dimensions of the stream] int32 of a stream's rows, given those of its attributes
        [attributes, rows] int32."""
        width = int(self.first[stream + 1] - self.first[stream])
        found = np.zeros((codes.shape[1], width), np.int32)
        found[:, : len(codes)] = codes.T
        disjunctions = self.disjunctions[stream]
        if disjunctions is not None and codes.shape[1]:
            offsets, held = disjunctions.match(codes)
            found[segment_ids(offsets), len(codes) + held] = 1
        return found

    def indexed(self) -> np.ndarray:
        """The dimensions [.] int64 that are indexed. FIRST searches with the dimensions of one stream alone, so each
        stream has its own share of them."""
        boxes = self.boxes
        width = boxes.high.astype(np.int64) - boxes.low + 1
        share = 1 - width / boxes.sizes[boxes.attributes]
        spared = np.bincount(boxes.attributes, weights=share, minlength=len(boxes.sizes))
        most = max(2, INDEXED_DIMENSIONS // len(self.disjunctions))
        chosen = [
            first + np.argsort(-spared[first:end], kind="stable")[:most]
            for first, end in zip(self.first[:-1], self.first[1:], strict=True)
        ]
        found = np.concatenate(chosen)
        found = found[spared[found] > 0]
        return np.asarray(found[np.argsort(-spared[found], kind="stable")])


def _dimensions(parts: Parts) -> tuple[Conjunctions, Hybrid | None]:
    """Returns the parts of a stream with their shared disjunctions replaced by dimensions, numbered after its
    attributes; and the engine that evaluates the shared disjunctions, None if there are none."""
    c = parts.rules
    disjunction_conjunctions = int(c.disjunction_start[-1])
    begin = int(c.start[disjunction_conjunctions])
    terms = c.terms[begin:].copy()
    is_disjunction = terms[:, 0] == DISJUNCTION
    disjunctions = np.unique(terms[is_disjunction, 1])
    terms[is_disjunction, 0] = len(c.sizes) + np.searchsorted(disjunctions, terms[is_disjunction, 1])
    terms[is_disjunction, 1] = len(c.set_start) - 1
    flat = Conjunctions(
        sizes=np.append(c.sizes, np.full(len(disjunctions), 2)).astype(np.int32),
        set_start=np.append(c.set_start, c.set_start[-1] + 1).astype(np.int64),
        intervals=np.append(c.intervals, [[1, 1]], axis=0).astype(np.int32),
        start=c.start[disjunction_conjunctions:] - begin,
        terms=terms,
        target=np.arange(len(parts), dtype=np.int32),
        disjunction_start=np.zeros(1, np.int32),
    )
    if not len(disjunctions):
        return flat, None
    named = np.stack([np.full(len(disjunctions), DISJUNCTION), disjunctions], axis=1)
    evaluated = Conjunctions(
        sizes=c.sizes,
        set_start=c.set_start,
        intervals=c.intervals,
        start=np.append(c.start[: disjunction_conjunctions + 1], begin + 1 + np.arange(len(disjunctions))).astype(
            np.int64
        ),
        terms=np.concatenate([c.terms[:begin], named]).astype(np.int32),
        target=np.append(c.target[:disjunction_conjunctions], np.arange(len(disjunctions))).astype(np.int32),
        disjunction_start=c.disjunction_start,
    )
    return flat, Hybrid.scanning(evaluated)
