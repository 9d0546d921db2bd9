"""Summaries of the values that a column is known to have: the distinct strings, the range of numbers, or whether times
are more than days."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.arrays import is_text
from rules_index.language.patterns.strings import decodable

MOST_TEXTS = 10_000
"""A column with more distinct strings counts as unknown."""
_MOST_COMPARED = 1_000
"""The most distinct strings of a column for a search for one with nearly the same spelling."""
_LEAST_LETTERS = 4
_CLOSE = 0.8
"""The shortest string that is compared with others, and the least similarity of these (`difflib.SequenceMatcher`)."""
_MOST_MIDNIGHTS = 8
"""The most times of day, in UTC, that the midnights of one time zone have ever been."""
_DAY = 86_400_000_000
"""Microseconds."""
_BETWEEN_WORDS = re.compile(r"[\s_\-./]+")


@dataclass(frozen=True, slots=True, eq=False)
class KnownValues:
    """A summary of one column's values on some rows, or on all.

    rows: the number of rows; complete: whether these are all rows. texts: the distinct values of a STRING, the items of
    an ARRAY of strings or the keys of a MAP; None for other types. low, high: the least and the greatest finite number,
    None for other types. has_zero: whether a number is 0; has_fraction: whether one is between 0 and 1, both excluded.
    has_times: whether timestamps have more times of day than the midnights of one time zone.
    """

    rows: int
    complete: bool
    texts: frozenset[str] | None = None
    low: float | None = None
    high: float | None = None
    has_zero: bool = False
    has_fraction: bool = False
    has_times: bool = False
    _near: dict[str, str | None] = field(default_factory=dict, init=False, repr=False)
    _folded: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    def near(self, text: str) -> str | None:
        """The known string that was probably meant by an unknown one; None if there is none."""
        if self.texts is None or text in self.texts:
            return None
        if text not in self._near:
            self._near[text] = self._found(text, self.texts)
        return self._near[text]

    def _found(self, text: str, texts: frozenset[str]) -> str | None:
        if not self._folded:
            self._folded.update((folded(each), each) for each in sorted(texts, reverse=True))
        same = self._folded.get(folded(text))
        if same is not None:
            return same
        if len(text) < _LEAST_LETTERS or len(texts) > _MOST_COMPARED or any(map(str.isdigit, text)):
            return None
        close = difflib.get_close_matches(folded(text), self._folded, 1, _CLOSE)
        return self._folded[close[0]] if close else None


def folded(text: str) -> str:
    """A string without the differences between spellings of one value: in lower case, without accents, and without
    blanks, underscores, dashes, dots and slashes."""
    plain = unicodedata.normalize("NFKD", text).casefold()
    return _BETWEEN_WORDS.sub("", "".join(each for each in plain if not unicodedata.combining(each)))


def known_values(column: pa.ChunkedArray | pa.Array, complete: bool) -> KnownValues | None:
    """Summarises a column from some of its rows; None if there are none, or no finite number, or more than `MOST_TEXTS`
    distinct strings, or if its type is not supported."""
    return known_values_in(column.type, column.chunks if isinstance(column, pa.ChunkedArray) else [column], complete)


def known_values_in(kind: pa.DataType, arrays: Iterable[pa.Array], complete: bool) -> KnownValues | None:
    """`known_values` of a column of type `kind` that comes in chunks, which need not fit into memory together."""
    t = pa.types
    if t.is_dictionary(kind):
        return known_values_in(kind.value_type, (each.cast(kind.value_type) for each in arrays), complete)
    if is_text(kind):
        return _of_texts(arrays, lambda each: each, complete)
    if (t.is_list(kind) or t.is_large_list(kind)) and is_text(kind.value_type):
        return _of_texts(arrays, lambda each: each.flatten(), complete)
    if t.is_map(kind) and is_text(kind.key_type):
        return _of_texts(arrays, lambda each: each.drop_null().keys, complete)
    if t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind):
        return _of_numbers(arrays, complete)
    if t.is_timestamp(kind):
        return _of_times(arrays, complete)
    return None


def _of_texts(arrays: Iterable[pa.Array], texts: Callable[[pa.Array], pa.Array], complete: bool) -> KnownValues | None:
    found: set[str] = set()
    rows = 0
    for each in arrays:
        distinct = pc.unique(texts(each))
        if len(distinct) > MOST_TEXTS:
            return None
        found.update(text for text in decodable(distinct).to_pylist() if text is not None)
        rows += len(each)
        if len(found) > MOST_TEXTS:
            return None
    return KnownValues(rows, complete, frozenset(found)) if rows else None


def _of_numbers(arrays: Iterable[pa.Array], complete: bool) -> KnownValues | None:
    rows, lows, highs, zero, fraction = 0, [], [], False, False
    for each in arrays:
        rows += len(each)
        numbers = each.cast(pa.float64(), safe=False)
        numbers = numbers.filter(pc.fill_null(pc.is_finite(numbers), False))
        if len(numbers):
            ends = pc.min_max(numbers).as_py()
            lows.append(ends["min"])
            highs.append(ends["max"])
            zero = zero or bool(pc.any(pc.equal(numbers, 0.0)).as_py())
            inside = pc.and_(pc.greater(numbers, 0.0), pc.less(numbers, 1.0))
            fraction = fraction or bool(pc.any(inside).as_py())
    if not lows:
        return None
    return KnownValues(rows, complete, None, min(lows), max(highs), zero, fraction)


def _of_times(arrays: Iterable[pa.Array], complete: bool) -> KnownValues | None:
    rows, found = 0, np.zeros(0, np.int64)
    for each in arrays:
        rows += len(each)
        if len(found) <= _MOST_MIDNIGHTS:
            times = each.drop_null().cast(pa.timestamp("us", each.type.tz), safe=False).cast(pa.int64()).to_numpy()
            found = np.union1d(found, times % _DAY)
    return KnownValues(rows, complete, has_times=len(found) > _MOST_MIDNIGHTS) if rows else None
