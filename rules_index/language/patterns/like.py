"""LIKE and ILIKE: `%` for any string, `_` for one code point, in time linear in the value.

A pattern is a list of segments between its `%`. The first and the last are anchored. Each other segment is searched for
leftmost behind the one before, which never needs backtracking.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.errors import RuleError
from rules_index.kernels.jit import jit
from rules_index.language.patterns.strings import buffers, with_nulls
from rules_index.language.patterns.utf8 import decode

ANY_ONE = -1
"""Stands for `_` among the code points of a segment."""


def segments(pattern: str, escape: str) -> list[list[int]]:
    """The code points between the `%` of a pattern, ANY_ONE for `_`; a single segment if there is no `%`.

    Raises `RuleError` (`PATTERN`) where the escape character is misused.
    """
    found: list[list[int]] = [[]]
    index = 0
    while index < len(pattern):
        character = pattern[index]
        if character == escape:
            index += 1
            if index == len(pattern):
                _refuse("it must not end in its escape character; write that twice", index - 1)
            if pattern[index] not in ("_", "%", escape):
                _refuse(f"its escape character must not precede '{pattern[index]}'", index - 1)
            found[-1].append(ord(pattern[index]))
        elif character == "%":
            found.append([])
        else:
            found[-1].append(ANY_ONE if character == "_" else ord(character))
        index += 1
    return found


def _refuse(message: str, position: int) -> None:
    raise RuleError("PATTERN", f"The LIKE pattern cannot be used: {message}.", position)


def check_like(pattern: str, escape: str, ignore_case: bool = False) -> None:
    """Raises `RuleError` (`PATTERN`) where LIKE (or ILIKE, which lower-cases it first) does not accept the pattern."""
    segments(lowered(pattern) if ignore_case else pattern, escape)


def like_prefix(pattern: str, escape: str) -> tuple[str, bool] | None:
    """(text, True) for a pattern that only the text matches, (text, False) for all strings that start with it, else
    None."""
    parts = segments(pattern, escape)
    if len(parts) > 2 or ANY_ONE in parts[0] or (len(parts) == 2 and parts[1]):
        return None
    return "".join(map(chr, parts[0])), len(parts) == 1


def lower(strings: pa.Array) -> pa.Array:
    """Lower case as Spark's `lower`: by Unicode's full mapping, including the final sigma."""
    series = pl.Series(strings.cast(pa.large_string(), safe=False), dtype=pl.String)
    return series.str.to_lowercase().to_arrow().cast(pa.large_string())


def lowered(pattern: str) -> str:
    """A pattern in lower case, as ILIKE uses it."""
    return str(lower(pa.array([pattern]))[0].as_py())


@dataclass(frozen=True)
class LikeMatcher:
    """A compiled pattern: `codes` int32 are its segments concatenated, `ends` int64 the end of each."""

    ignore_case: bool
    codes: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int64]
    failures: npt.NDArray[np.int32]
    wild: npt.NDArray[np.bool_]
    plain: tuple[str, str] | None
    """Arrow's function and its text for the most common patterns: `a`, `a%`, `%a` and `%a%`."""

    def match(self, strings: pa.Array) -> pa.BooleanArray:
        """BOOLEAN for each string: whether the whole string matches the pattern; NULL for NULL."""
        if self.ignore_case:
            strings = lower(strings)
        if self.plain is not None:
            kernel, text = self.plain
            if not pa.types.is_string(strings.type):
                strings = strings.cast(pa.large_string(), safe=False)
            return getattr(pc, kernel)(strings, text)
        data, offsets, valid = buffers(strings)
        alphabet = np.unique(self.codes)
        found = _match(data, offsets, valid, self.codes, self.ends, self.failures, self.wild, alphabet)
        return with_nulls(found, valid)


@lru_cache(maxsize=1024)
def like_matcher(pattern: str, escape: str = "\\", ignore_case: bool = False) -> LikeMatcher:
    """The matcher of a pattern. ILIKE lower-cases value and pattern, but not the escape character, as Spark does."""
    if ignore_case:
        pattern = lowered(pattern)
    parts = segments(pattern, escape)
    codes = np.array([code for part in parts for code in part], np.int32)
    return LikeMatcher(
        ignore_case=ignore_case,
        codes=codes,
        ends=np.cumsum([len(part) for part in parts]).astype(np.int64),
        failures=np.array([length for part in parts for length in _failures(part)], np.int32),
        wild=np.array([ANY_ONE in part for part in parts], np.bool_),
        plain=_plain(parts),
    )


def _plain(parts: list[list[int]]) -> tuple[str, str] | None:
    text = [part for part in parts if part]
    if len(text) != 1 or ANY_ONE in text[0]:
        return None
    kernels = {(True,): "equal", (True, False): "starts_with", (False, True): "ends_with"}
    shape = tuple(map(bool, parts))
    inside = not shape[0] and not shape[-1]
    kernel = "match_substring" if inside else kernels.get(shape)
    return None if kernel is None else (kernel, "".join(map(chr, text[0])))


def _failures(part: list[int]) -> list[int]:
    """The failure function: for each place of a segment, the longest proper border of the part up to and with it."""
    lengths = [0] * len(part)
    border = 0
    for index in range(1, len(part)):
        while border and part[border] != part[index]:
            border = lengths[border - 1]
        border += part[border] == part[index]
        lengths[index] = border
    return lengths


@jit
def _before(data, begin, position):  # type: ignore[no-untyped-def]
    """Where the code point that ends at a position begins, in well-formed UTF-8."""
    position -= 1
    while position > begin and data[position] & 0xC0 == 0x80:
        position -= 1
    return position


@jit
def _fits(data, position, end, codes, low, high):  # type: ignore[no-untyped-def]
    """The position behind the segment `codes[low:high]` if it occurs at a position, else -1."""
    for index in range(low, high):
        if position >= end:
            return -1
        code = np.int32(data[position])
        if code < 0x80:
            position += 1
        else:
            code, position = decode(data, position, end)
        if codes[index] != ANY_ONE and codes[index] != code:
            return -1
    return position


@jit
def _find_plain(data, position, end, codes, failures, low, high):  # type: ignore[no-untyped-def]
    """The position behind the leftmost occurrence of a segment without wildcards (Knuth, Morris and Pratt)."""
    matched = low
    while position < end:
        code = np.int32(data[position])
        if code < 0x80:
            position += 1
        else:
            code, position = decode(data, position, end)
        while matched > low and codes[matched] != code:
            matched = low + failures[matched - 1]
        if codes[matched] == code:
            matched += 1
        if matched == high:
            return position
    return -1


@jit
def _find_wild(data, position, end, codes, low, high, masks, alphabet):  # type: ignore[no-untyped-def]
    """The same for a segment with wildcards; bit-parallel, one bit for each prefix that matches so far (Shift-And)."""
    length = high - low
    words = (length + 63) // 64
    state = np.zeros(words, np.uint64)
    top = np.uint64(1) << np.uint64((length - 1) & 63)
    while position < end:
        code = np.int32(data[position])
        if code < 0x80:
            position += 1
        else:
            code, position = decode(data, position, end)
        row = int(np.searchsorted(alphabet, code))
        if row == len(alphabet) or alphabet[row] != code:
            row = len(alphabet)
        carry = np.uint64(1)
        for word in range(words):
            shifted = (state[word] << np.uint64(1)) | carry
            carry = state[word] >> np.uint64(63)
            state[word] = shifted & masks[row, word]
        if state[words - 1] & top:
            return position
    return -1


@jit
def _wild_masks(codes, low, high, alphabet):  # type: ignore[no-untyped-def]
    """[alphabet + 1, words] uint64: the places of a segment that accept each code point; the last row is for all
    others."""
    masks = np.zeros((len(alphabet) + 1, (high - low + 63) // 64), np.uint64)
    for index in range(low, high):
        bit = np.uint64(1) << np.uint64((index - low) & 63)
        word = (index - low) >> 6
        for row in range(len(alphabet) + 1):
            if codes[index] == ANY_ONE or (row < len(alphabet) and codes[index] == alphabet[row]):
                masks[row, word] |= bit
    return masks


@jit
def _match(data, offsets, valid, codes, ends, failures, wild, alphabet):  # type: ignore[no-untyped-def]
    """Whether each valid string matches; segments as in LikeMatcher."""
    found = np.zeros(len(valid), np.bool_)
    parts = len(ends)
    masks = [_wild_masks(codes, 0 if p == 0 else ends[p - 1], ends[p], alphabet) for p in range(parts)]
    for row in range(len(valid)):
        if not valid[row]:
            continue
        begin, end = offsets[row], offsets[row + 1]
        position = _fits(data, begin, end, codes, 0, ends[0])
        if position < 0:
            continue
        if parts == 1:
            found[row] = position == end
            continue
        for part in range(1, parts - 1):
            low, high = ends[part - 1], ends[part]
            if low == high:
                continue
            if wild[part]:
                position = _find_wild(data, position, end, codes, low, high, masks[part], alphabet)
            else:
                position = _find_plain(data, position, end, codes, failures, low, high)
            if position < 0:
                break
        if position < 0:
            continue
        low, high = ends[parts - 2], ends[parts - 1]
        tail = end
        for _ in range(high - low):
            tail = _before(data, position, tail) if tail > position else -1
            if tail < 0:
                break
        found[row] = tail >= position and _fits(data, tail, end, codes, low, high) == end
    return found


def like_as_java_regex(pattern: str, escape: str) -> str:
    r"""A java.util.regex pattern that finds what LIKE matches, in time linear in the value.

    A segment between two `%` is an atomic group, because its leftmost occurrence never needs backtracking.
    """
    first, *others = map(_java_segment, segments(pattern, escape))
    if not others:
        return rf"(?s)\A{first}\z"
    *inner, last = others
    searched = "".join(f"(?>.*?{segment})" for segment in inner if segment)
    return rf"(?s)\A{first}{searched}.*{last}\z"


def _java_segment(segment: list[int]) -> str:
    return "".join("." if code == ANY_ONE else _java_literal(code) for code in segment)


def _java_literal(code: int) -> str:
    character = chr(code)
    return character if character.isalnum() or code >= 0x80 else f"\\x{code:02x}"
