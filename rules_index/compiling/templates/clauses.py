"""Splits rules into skeletons and distinct clauses, and these into shapes and literals (`kernels/rule_texts.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rules_index.arrays import distinct, gather_indices, offsets_of
from rules_index.kernels.encode import build_table
from rules_index.kernels.rule_texts import Pool, cut_rules, shape_clauses

LONGEST = 1 << 16
"""Texts with more bytes are not split: they are compiled one by one, which limits their work."""
_BLOCK_BYTES = 1 << 22
"""Bytes of the texts that are split at a time."""
_BLOCK_CLAUSES = 1 << 18
"""Clauses whose literals are read at a time."""


class StringPool:
    """A growing set of distinct byte strings, by number."""

    def __init__(self) -> None:
        self.pool = Pool(np.empty(0, np.uint8), np.zeros(1, np.int64), np.full(2, -1, np.int32), np.zeros(1, np.int64))

    def __len__(self) -> int:
        """Number of strings."""
        return int(self.pool.used[0])

    def __getitem__(self, number: int) -> bytes:
        """The string with this number."""
        return self.pool.data[self.pool.offsets[number] : self.pool.offsets[number + 1]].tobytes()

    def reserve(self, strings: int, size: int) -> Pool:
        """The pool, with room for `strings` more strings of `size` bytes in all."""
        pool = self.pool
        needed = len(self) + strings
        data = _longer(pool.data, int(pool.offsets[len(self)]) + size)
        offsets = _longer(pool.offsets, needed + 1)
        table = pool.table
        if len(table) < 2 * needed:
            table = np.full(1 << (2 * needed).bit_length(), -1, np.int32)
            build_table(offsets[: len(self) + 1], data, table)
        self.pool = Pool(data, offsets, table, pool.used)
        return self.pool


def _longer(array: np.ndarray, length: int) -> np.ndarray:
    """The array with at least this length; if it has to grow, it is at least doubled."""
    if len(array) >= length:
        return array
    grown = np.empty(max(length, 2 * len(array)), array.dtype)
    grown[: len(array)] = array
    return grown


@dataclass(frozen=True)
class SplitRules:
    """Rules by skeleton and clauses.

    skeletons, clauses  the distinct ones
    skeleton            [rules] int32, -1 for a rule whose text is not split
    start               [rules + 1] int64, offsets into clause
    clause              [.] int32, the numbers of the clauses
    """

    skeletons: StringPool
    clauses: StringPool
    skeleton: np.ndarray
    start: np.ndarray
    clause: np.ndarray


def split_clauses(texts: pa.LargeStringArray) -> SplitRules:
    """Splits the texts of rules, none of which is NULL."""
    count = len(texts)
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset :][: count + 1] if count else np.zeros(1, int)
    buffer = texts.buffers()[2] if count else None
    data = np.frombuffer(buffer, np.uint8) if buffer is not None else np.empty(0, np.uint8)
    lengths = np.diff(offsets)
    longest = int(lengths.max(initial=0, where=lengths <= LONGEST))
    spans, scratch = np.empty((longest + 1, 2), np.int64), np.empty(longest + 1, np.uint8)
    skeletons, clauses = StringPool(), StringPool()
    skeleton = np.full(count, -1, np.int32)
    start = np.zeros(count + 1, np.int64)
    found: list[np.ndarray] = []
    for first, last in _blocks(offsets, lengths):
        start[first + 1 : last + 1] = start[first]
        if lengths[first] > LONGEST:
            continue
        size = int(offsets[last] - offsets[first])
        # a clause has at least a letter and, except for the last one of a rule, a connective of two letters
        most = size // 3 + last - first
        numbers = np.empty(most, np.int32)
        pools = skeletons.reserve(last - first, size), clauses.reserve(most, size)
        named = cut_rules(data, offsets, first, last, spans, scratch, *pools, skeleton, start, numbers)
        found.append(numbers[:named].copy())
    return SplitRules(skeletons, clauses, skeleton, start, np.concatenate([np.empty(0, np.int32), *found]))


def _blocks(offsets: np.ndarray, lengths: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yields ranges [first, last) of rules that are split together; a text that is too long to be split is alone in
    its range."""
    first = 0
    overlong = [*np.flatnonzero(lengths > LONGEST).tolist(), len(lengths)]
    for stop in overlong:
        while first < stop:
            last = int(np.searchsorted(offsets, offsets[first] + _BLOCK_BYTES, side="right")) - 1
            last = min(max(last, first + 1), stop)
            yield first, last
            first = last
        if stop < len(lengths):
            yield stop, stop + 1
            first = stop + 1


@dataclass(frozen=True)
class Literals:
    """The literals of some clauses as `shape_clauses` writes them; spans: [literals, 2] int64, offsets into `data`."""

    data: np.ndarray
    spans: np.ndarray
    kinds: np.ndarray
    values: np.ndarray
    scales: np.ndarray

    def take(self, chosen: np.ndarray) -> Literals:
        """The literals with these numbers, which ascend."""
        return Literals(self.data, self.spans[chosen], self.kinds[chosen], self.values[chosen], self.scales[chosen])

    def __len__(self) -> int:
        """Number of literals."""
        return len(self.kinds)

    def texts(self) -> pa.LargeBinaryArray:
        """The texts of the literals, without quotes."""
        # spans ascend, so they serve as offsets of strings: every second one lies between two literals and is dropped
        offsets = pa.py_buffer(np.ascontiguousarray(self.spans).reshape(-1))
        pieces = max(0, 2 * len(self) - 1)
        strings = pa.LargeBinaryArray.from_buffers(pa.large_binary(), pieces, [None, offsets, pa.py_buffer(self.data)])
        return strings.take(pa.array(np.arange(0, pieces, 2)))


@dataclass(frozen=True)
class ClausesOfShape:
    """Clauses of one shape: their numbers [clauses]; clause i has the literals offsets[i] to offsets[i + 1] - 1."""

    shape: bytes
    clauses: np.ndarray
    literals: Literals
    offsets: np.ndarray


def grouped_by_shape(clauses: StringPool) -> Iterator[ClausesOfShape]:
    """Yields all clauses grouped by shape, block by block: a shape with clauses in several blocks comes several
    times."""
    pool = clauses.pool
    shapes = StringPool()
    for first in range(0, len(clauses), _BLOCK_CLAUSES):
        last = min(first + _BLOCK_CLAUSES, len(clauses))
        lengths = np.diff(pool.offsets[first : last + 1])
        size = int(lengths.sum())
        most = size // 2 + last - first
        shape_of, start = np.empty(last - first, np.int32), np.zeros(last - first + 1, np.int64)
        spans, kinds = np.empty((most, 2), np.int64), np.empty(most, np.uint8)
        values, scales = np.empty(most, np.int64), np.empty(most, np.int8)
        scratch = np.empty(int(lengths.max()), np.uint8)
        into = shapes.reserve(last - first, size)
        found = shape_clauses(pool, first, last, scratch, into, shape_of, start, spans, kinds, values, scales)
        literals = Literals(pool.data, spans[:found], kinds[:found], values[:found], scales[:found])
        order = np.argsort(shape_of, kind="stable")
        bounds = offsets_of(np.bincount(shape_of, minlength=len(shapes)))
        for shape in distinct(shape_of).tolist():
            chosen = order[bounds[shape] : bounds[shape + 1]]
            gather, offsets = gather_indices(start, chosen)
            yield ClausesOfShape(shapes[shape], first + chosen, literals.take(gather), offsets)
