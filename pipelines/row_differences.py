"""Removes the rows that two long sequences have in common, even if runs of them come in another order.

A writer that filters a file may read its parts concurrently, and write their batches in any order. So the common rows
form long runs, between which few rows are missing, changed or inserted. A run is found and compared as a whole.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_MOST_STEPS = 4_000
"""Maximum number of runs that are looked for; the remaining rows then count as different."""
_MOST_BETWEEN = 32
"""Maximum number of missing, changed or inserted rows between two runs; after more, the next run is searched for."""
_EQUAL_AGAIN = 4
"""Number of equal rows that make the beginning of a run."""
_RUN = 1 << 16
"""Maximum number of rows that are compared at once."""

Rows = tuple[pa.ChunkedArray, pa.ChunkedArray]


def differing(one: pa.Array, two: pa.Array) -> Rows:
    """The rows of each sequence that the other one lacks, and some that both have.

    A common row is removed from both sequences the same number of times. Rows outside of runs may be left in both.
    """
    return _Comparison(one, two).differing()


class _Comparison:
    """`gaps` are the parts of `one` that no run has covered yet; `two` is compared up to `position`."""

    def __init__(self, one: pa.Array, two: pa.Array) -> None:
        self.one, self.two, self.position = one, two, 0
        self.gaps = [(0, len(one))]
        self.left: tuple[list[pa.Array], list[pa.Array]] = ([], [])
        self.failures = 0

    def differing(self) -> Rows:
        """See the function of the same name."""
        place = 0
        for _ in range(_MOST_STEPS):
            first, last = self.gaps[place]
            run = _equal_rows(self.one[first:last], self.two[self.position :])
            self.gaps[place] = first + run, last
            self.position += run
            if self.position == len(self.two):
                break
            place = self._next(place)
        self.left[0].extend(self.one[first:last] for first, last in self.gaps)
        self.left[1].append(self.two[self.position :])
        return pa.chunked_array(self.left[0], self.one.type), pa.chunked_array(self.left[1], self.two.type)

    def _next(self, place: int) -> int:
        """The index of the gap that begins with the next run; the rows before that run are set aside as different."""
        head = self.two[self.position : self.position + _EQUAL_AGAIN]
        gaps = [place, *(each for each in range(len(self.gaps)) if each != place)]
        for each in gaps[1:]:
            if self._begins(each, head):
                return each
        for each in gaps:
            first, last = self.gaps[each]
            between = _between(self.one[first : min(last, first + 2 * _MOST_BETWEEN)], self.two[self.position :])
            if between is not None:
                self.left[0].append(self.one[first : first + between[0]])
                self.gaps[each] = first + between[0], last
                self._set_aside(between[1])
                return each
        found = self._searched(head)
        if found is None:
            # probably inserted rows, of which there may be many: set aside twice as many each time
            self._set_aside(_EQUAL_AGAIN << self.failures)
            self.failures += 1
        return place if found is None else found

    def _set_aside(self, rows: int) -> None:
        self.left[1].append(self.two[self.position : self.position + rows])
        self.position = min(self.position + rows, len(self.two))

    def _begins(self, gap: int, head: pa.Array) -> bool:
        first, last = self.gaps[gap]
        return bool(self.one[first : min(last, first + len(head))].equals(head))

    def _searched(self, head: pa.Array) -> int | None:
        """Divides a gap at the first occurrence of the first row of `head`; returns the index of the gap's second part.

        None if that occurrence is not inside a gap.
        """
        row = pc.index(self.one, head[0]).as_py() if head[0].is_valid else -1
        for each, (first, last) in enumerate(self.gaps):
            if first < row < last:
                self.gaps[each] = first, row
                self.gaps.append((row, last))
                return len(self.gaps) - 1
        return None


def _equal_rows(one: pa.Array, two: pa.Array) -> int:
    """How many rows two sequences have in common at their beginning, by comparing ever longer, then shorter pieces."""
    equal, size, has_differed = 0, _EQUAL_AGAIN, False
    most = min(len(one), len(two))
    while equal < most:
        size = min(size, most - equal)
        if one[equal : equal + size].equals(two[equal : equal + size]):
            equal += size
            size = size if has_differed else min(2 * size, _RUN)
        elif size == 1:
            break
        else:
            size, has_differed = size // 2, True
    return equal


def _between(one: pa.Array, two: pa.Array) -> tuple[int, int] | None:
    """How many rows of each sequence come before the next equal rows; None if more than `_MOST_BETWEEN`.

    The sequences begin with different rows: as many were removed, changed or inserted.
    """
    for shift in range(1, _MOST_BETWEEN + 1):
        for first, second in ((shift, 0), (shift, shift), (0, shift)):
            run = one[first : first + _EQUAL_AGAIN]
            if len(run) and run.equals(two[second : second + _EQUAL_AGAIN]):
                return first, second
    return None
