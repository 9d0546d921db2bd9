"""Needles: a string that contains none of a pattern's needles does not match the pattern, and can be skipped."""

from __future__ import annotations

from rules_index.errors import RuleError
from rules_index.language.patterns.java_syntax import parse
from rules_index.language.patterns.like import ANY_ONE, lowered, segments
from rules_index.language.patterns.syntax import Characters, Choice, Node, Repeat, Sequence

_REPLACEMENT = 0xFFFD
"""Malformed bytes are decoded as this code point, so that a text with it can match bytes that do not contain its
UTF-8."""
_MOST = 4_096
"""The most needles of one pattern."""


def like_needles(pattern: str, escape: str, ignore_case: bool) -> frozenset[bytes] | None:
    """The needle of a pattern of LIKE: its longest text without `%` and `_`; None if that cannot be used.

    For ILIKE the needle is in lower case, and the string must be converted to lower case as well.
    """
    found: list[list[int]] = [[]]
    for segment in segments(lowered(pattern) if ignore_case else pattern, escape):
        found.append([])
        for code in segment:
            if code == ANY_ONE:
                found.append([])
            else:
                found[-1].append(code)
    return _usable(max(found, key=len))


def like_is_contains(pattern: str, escape: str, ignore_case: bool) -> bool:
    """Whether the pattern is `%text%`, so that every string that contains the text matches it."""
    parts = segments(lowered(pattern) if ignore_case else pattern, escape)
    return len(parts) == 3 and not parts[0] and not parts[2] and bool(parts[1]) and ANY_ONE not in parts[1]


def rlike_needles(pattern: str) -> frozenset[bytes] | None:
    """The needles of a regular expression: each string that it matches contains one of them. None if there are none."""
    try:
        return _of(parse(pattern))
    except RuleError:
        return None


def _of(node: Node) -> frozenset[bytes] | None:
    """The needles of a node; None if there are none."""
    match node:
        case Characters():
            code = _single(node)
            return _usable([code]) if code is not None else None
        case Repeat(item, low, _):
            return _of(item) if low > 0 else None
        case Choice(items):
            return _any_of(items)
        case Sequence(items):
            return _of_sequence(items)
        case _:
            return None


def _any_of(items: tuple[Node, ...]) -> frozenset[bytes] | None:
    """The needles of all items together; None if an item has none, or there are too many."""
    found: set[bytes] = set()
    for item in items:
        texts = _of(item)
        if texts is None or len(found) + len(texts) > _MOST:
            return None
        found |= texts
    return frozenset(found) or None


def _of_sequence(items: tuple[Node, ...]) -> frozenset[bytes] | None:
    """The most selective needles of a sequence: its longest run of single characters, or the needles of another
    item."""
    runs: list[list[int]] = [[]]
    others: list[frozenset[bytes]] = []
    for item in items:
        code = _single(item)
        if code is not None:
            runs[-1].append(code)
            continue
        runs.append([])
        texts = _of(item)
        if texts is not None:
            others.append(texts)
    longest = _usable(max(runs, key=len))
    return max([*others, *([longest] if longest is not None else [])], key=_worth, default=None)


def _worth(texts: frozenset[bytes]) -> tuple[int, int]:
    """The rank of a set of needles: higher if its shortest needle is longer, then if it has fewer needles."""
    return min(map(len, texts)), -len(texts)


def _single(node: Node) -> int | None:
    """The code point that a node matches, if there is only one."""
    if not isinstance(node, Characters):
        return None
    members = node.members
    if members.start or len(members.cuts) != 2 or members.cuts[1] != members.cuts[0] + 1:
        return None
    return int(members.cuts[0])


def _usable(codes: list[int]) -> frozenset[bytes] | None:
    """The text of code points as the only needle; None if it is empty, or if a string can match without containing its
    UTF-8."""
    if not codes or _REPLACEMENT in codes or any(0xD800 <= code < 0xE000 for code in codes):
        return None
    return frozenset(["".join(map(chr, codes)).encode()])
