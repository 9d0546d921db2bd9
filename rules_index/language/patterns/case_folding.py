"""Sets of the characters that a character or range matches when case is ignored."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from rules_index.domains.values import ValueSet, interval, points, union
from rules_index.language.patterns.code_points import ASCII_LOWER, ASCII_UPPER, CODE_POINTS, _assigned


def _upper(character: str) -> str:
    """The simple upper case mapping of Unicode: from one code point to one."""
    for mapped in (character.upper(), character.title()):
        if len(mapped) == 1:
            return mapped
    return character


def _lower(character: str) -> str:
    return mapped[0] if (mapped := character.lower()) else character


@cache
def _cased_codes() -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The code points that case conversion changes, ascending; their upper case; and their folded case, the lower case
    of the upper case. [cased] int32 each."""
    known = np.zeros(CODE_POINTS, np.bool_)
    cuts = _assigned().cuts
    for low, high in zip(cuts[::2], cuts[1::2], strict=True):
        known[low:high] = True
    upper = np.arange(CODE_POINTS, dtype=np.int32)
    lower = upper.copy()
    for code in range(CODE_POINTS):
        character = chr(code)
        if known[code] and character.upper() != character:
            mapped = ord(_upper(character))
            upper[code] = mapped if known[mapped] else code
        if known[code] and character.lower() != character:
            mapped = ord(_lower(character))
            lower[code] = mapped if known[mapped] else code
    codes, folded = np.arange(CODE_POINTS, dtype=np.int32), lower[upper]
    cased = (upper != codes) | (folded != codes)
    return codes[cased], upper[cased], folded[cased]


def _ascii_variants(members: ValueSet) -> ValueSet:
    """The set, with each ASCII letter also in the other case."""
    shifted = [
        interval(low + shift, high + shift)
        for part, shift in ((members & ASCII_UPPER, 32), (members & ASCII_LOWER, -32))
        for low, high in zip(part.cuts[::2], part.cuts[1::2], strict=True)
    ]
    return union((members, *shifted))


def single(code: int, ignore_case: bool, unicode_case: bool) -> ValueSet:
    """The code points that match one literal code point."""
    if not ignore_case:
        return points((code,))
    if not unicode_case:
        return _ascii_variants(points((code,)))
    codes, upper, folded = _cased_codes()
    index = int(np.searchsorted(codes, code))
    if index == len(codes) or codes[index] != code or upper[index] == folded[index]:
        return points((code,))
    lowest = int(folded[index])
    return points((lowest, *codes[folded == lowest].tolist()))


def span(low: int, high: int, ignore_case: bool, unicode_case: bool) -> ValueSet:
    """The code points that match the class range [low, high], both included."""
    members = interval(low, high + 1)
    if not ignore_case:
        return members
    if not unicode_case:
        return _ascii_variants(members)
    codes, upper, folded = _cased_codes()
    matched = (low <= upper) & (upper <= high) | (low <= folded) & (folded <= high)
    return members | points(codes[matched].tolist())
