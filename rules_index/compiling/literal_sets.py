"""All literals of a rule set by number, with their value sets in flat arrays by attribute."""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rules_index.arrays import gather_indices, offsets_of
from rules_index.compiling.conjunctions import Literal
from rules_index.domains.interned_constants import ByteKeys, Keys, keys_of
from rules_index.domains.value_sets import SetArrays, as_arrays, join
from rules_index.domains.values import ValueSet
from rules_index.language.typed import Expression

NEVER, ALWAYS = -1, -2
"""These replace the number of a literal that no row satisfies, and of one that every row satisfies."""
_BLOCK = 1 << 14
"""The number of sets, added one by one, that are kept as objects until they become arrays."""


class SetColumn:
    """The value sets that rules test one attribute with, in the order in which they were added."""

    def __init__(self, data_type: pa.DataType) -> None:
        self.keys: Keys = keys_of(data_type)
        self._parts: list[SetArrays] = []
        self._begins = [0]
        self._single: list[tuple[ValueSet, bool]] = []

    def __len__(self) -> int:
        """Number of sets."""
        return self._begins[-1] + len(self._single)

    def add(self, values: ValueSet, null: bool) -> None:
        """Adds a set whose cuts are keys of the type, with or without NULL."""
        self._single.append((values, null))
        if len(self._single) == _BLOCK:
            self._close()

    def referring(self, sets: SetArrays, strings: pa.LargeBinaryArray | None) -> SetArrays:
        """The sets with cuts as references to `keys`. Their cuts are given as keys, which are their own references, or
        as references to `strings`."""
        if strings is None:
            return sets
        assert isinstance(self.keys, ByteKeys)
        return SetArrays(sets.start, sets.null, sets.offsets, sets.cuts + 2 * self.keys.extend(strings))

    def extend(self, sets: SetArrays) -> None:
        """Adds sets whose cuts are references to `keys`."""
        self._close()
        self._append(sets)

    def __getitem__(self, place: int) -> tuple[ValueSet, bool]:
        """The set with this number, and whether NULL is in it."""
        if place >= self._begins[-1]:
            return self._single[place - self._begins[-1]]
        which = bisect.bisect_right(self._begins, place) - 1
        part, place = self._parts[which], place - self._begins[which]
        references = part.cuts[part.offsets[place] : part.offsets[place + 1]].tolist()
        values = ValueSet(bool(part.start[place]), tuple(self.keys.key(reference) for reference in references))
        return values, bool(part.null[place])

    def settle(self) -> SetArrays:
        """Returns all sets, with cuts as positions in the ascending keys. No set can be added afterwards."""
        self._close()
        self.keys.settle()
        sets = join(self._parts)
        self._parts.clear()
        return SetArrays(sets.start, sets.null, sets.offsets, self.keys.positions(sets.cuts))

    def _close(self) -> None:
        if self._single:
            sets, null = zip(*self._single, strict=True)
            self._single.clear()
            self._append(as_arrays(sets, null, [self.keys.refer(key) for values in sets for key in values.cuts]))

    def _append(self, sets: SetArrays) -> None:
        self._parts.append(sets)
        self._begins.append(self._begins[-1] + len(sets))


@dataclass(frozen=True)
class SettledLiterals:
    """Distinct literals.

    number       [literals] int32, for each literal that was added its number here, or `NEVER` or `ALWAYS`
    attribute    [distinct] int32
    begin        [attributes + 1] int64, the literals of attribute a have the numbers begin[a] to begin[a + 1] - 1
    sets         for each attribute the sets of its literals, by number
    keys         for each attribute its keys
    """

    number: np.ndarray
    attribute: np.ndarray
    begin: np.ndarray
    sets: list[SetArrays]
    keys: list[Keys]


class LiteralSets:
    """Literals by number: for each its attribute, and the number of its set among those of the attribute."""

    def __init__(self) -> None:
        self.columns: list[SetColumn] = []
        self._attribute = array("i")
        self._place = array("i")
        self._groups: list[tuple[int, np.ndarray, np.ndarray]] = []

    def __len__(self) -> int:
        """Number of literals."""
        return len(self._attribute)

    def grow(self, attributes: Sequence[Expression]) -> None:
        """Makes room for the literals of more attributes; the attributes known before come first."""
        self.columns += [SetColumn(attribute.type) for attribute in attributes[len(self.columns) :]]

    def add(self, literal: Literal) -> int:
        """Adds a literal; returns its number."""
        column = self.columns[literal.attribute]
        self._attribute.append(literal.attribute)
        self._place.append(len(column))
        column.add(literal.values, literal.null)
        return len(self) - 1

    def extend(self, attribute: int, sets: SetArrays) -> np.ndarray:
        """Adds literals; returns their numbers [sets], `NEVER` for an empty set. Cuts are references to keys."""
        column = self.columns[attribute]
        numbers = self._extend(np.full(len(sets), attribute), len(column) + np.arange(len(sets)))
        column.extend(sets)
        return np.where(sets.is_empty, np.int32(NEVER), numbers)

    def intersect(self, attribute: np.ndarray, members: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Adds the intersection of each group of literals; returns the new literals' numbers [groups] int32.

        attribute: [groups], that of all members of a group; group i has the literals members[offsets[i]:offsets[i +
        1]]. The intersections are computed in `settle`.
        """
        self._groups.append((len(self), members, offsets))
        return self._extend(attribute, np.full(len(attribute), -1))

    def _extend(self, attribute: np.ndarray, place: np.ndarray) -> np.ndarray:
        first = len(self)
        self._attribute.frombytes(attribute.astype(np.int32).tobytes())
        self._place.frombytes(place.astype(np.int32).tobytes())
        return np.arange(first, len(self), dtype=np.int32)

    def __getitem__(self, number: int) -> Literal:
        """A literal that is not an intersection."""
        attribute = self._attribute[number]
        return Literal(attribute, *self.columns[attribute][self._place[number]])

    def settle(self, raising: np.ndarray) -> SettledLiterals:
        """Returns all distinct literals. No literal can be added afterwards. raising: [attributes] bool, the attributes
        that can raise: no literal on these is satisfied by every row."""
        attribute = np.array(self._attribute, np.int32)
        place = np.array(self._place, np.int64)
        groups = _joined(self._groups)
        number = np.empty(len(self), np.int32)
        begin = [0]
        settled: list[SetArrays] = []
        order = np.argsort(attribute, kind="stable")
        bounds = offsets_of(np.bincount(attribute, minlength=len(self.columns)))
        for which, column in enumerate(self.columns):
            mine = order[bounds[which] : bounds[which + 1]]
            sets = column.settle()
            merged = mine[place[mine] < 0]
            if len(merged):
                sets = _with_intersections(sets, place, merged, groups)
            first, same = sets.distinct()
            number[mine] = begin[-1] + same[place[mine]]
            if len(merged):
                special = np.select([sets.is_empty, sets.is_full & ~raising[which]], [NEVER, ALWAYS], 0)[place[merged]]
                number[merged[special < 0]] = special[special < 0]
            settled.append(sets.take(first))
            begin.append(begin[-1] + len(first))
        of_number = np.repeat(np.arange(len(settled), dtype=np.int32), np.diff(begin))
        keys = [column.keys for column in self.columns]
        return SettledLiterals(number, of_number, np.array(begin, np.int64), settled, keys)


@dataclass(frozen=True)
class _Groups:
    """Groups of literals: literal first[i] is the intersection of members[offsets[i]:offsets[i + 1]]."""

    first: np.ndarray
    members: np.ndarray
    offsets: np.ndarray


def _joined(groups: list[tuple[int, np.ndarray, np.ndarray]]) -> _Groups:
    lengths = [np.diff(offsets) for _, _, offsets in groups]
    firsts = [first + np.arange(len(length)) for (first, _, _), length in zip(groups, lengths, strict=True)]
    nothing = np.empty(0, np.int64)
    return _Groups(
        np.concatenate([nothing, *firsts]),
        np.concatenate([nothing, *(members for _, members, _ in groups)]),
        offsets_of(np.concatenate([nothing, *lengths])),
    )


def _with_intersections(sets: SetArrays, place: np.ndarray, merged: np.ndarray, groups: _Groups) -> SetArrays:
    """Appends the intersections of groups to the sets of an attribute, and writes their numbers to `place` [literals].

    merged: [.] int64, the literals of the attribute that are intersections.
    """
    gather, offsets = gather_indices(groups.offsets, np.searchsorted(groups.first, merged))
    found = sets.intersections(place[groups.members[gather]], offsets)
    place[merged] = len(sets) + np.arange(len(merged))
    return join([sets, found])
