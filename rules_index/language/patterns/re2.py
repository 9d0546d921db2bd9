"""Patterns of java.util.regex in RE2's syntax, if both match the same texts, or find the same parts of a text."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from rules_index.domains.values import ValueSet
from rules_index.errors import RuleError
from rules_index.language.patterns import code_points as cp
from rules_index.language.patterns.automaton import check
from rules_index.language.patterns.java_syntax import parse
from rules_index.language.patterns.syntax import Assertion, Characters, Choice, Node, Place, Repeat, Sequence, size
from rules_index.work_budget import Work

GROUP = "g"
"""The name of the group that is captured."""
_MOST_KNOWN = 1 << 14
"""The most translated patterns that are cached. Each batch asks for those of all rules."""
_MOST_REPEATS = 1_000
"""RE2's limit of a counted repetition."""
_MOST_STATES, _MOST_RANGES = 100, 300
"""The largest patterns that RE2 evaluates, with counted repetitions expanded. Each state may cost some nanoseconds for
each byte of text. The ranges of code points in the sets take time to compile."""
_LINE_END = r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z"
_REFUSAL = (
    "This regular expression is inside a larger expression, where the edges of words and lines, blocks of Unicode "
    "and properties of Java's own cannot be matched in linear time. Use RLIKE by itself, joined to the rest by AND, OR "
    "and NOT, or simplify its repetitions."
)


class _InexpressibleError(Exception):
    """RE2 lacks a part of a pattern, or may find other parts of a text with it than Java."""


@lru_cache(maxsize=_MOST_KNOWN)
def captured(pattern: str, group: int) -> str | None:
    """The pattern in RE2's syntax, in which the group with this number (0: the whole match) is called `GROUP`. None if
    there is no such group, or RE2 may capture something else than Java."""
    translated = _translated(pattern, group)
    return translated and _accepted(translated)


@lru_cache(maxsize=_MOST_KNOWN)
def divided(pattern: str, at_start: bool = False) -> str | None:
    """The pattern in RE2's syntax, for finding all its matches from left to right. None if RE2 may find others than
    Java, or if a match can be empty.

    at_start: whether the pattern may test for the start of a text. Some functions of Arrow also take the place behind
    each match for a start.
    """
    try:
        node = parse(pattern)
    except RuleError:
        return None
    if not _least_length(node) or (_tests_start(node) and (not at_start or r"\G" in pattern)):
        return None  # in Java, \G is the end of the previous match
    translated = _translated(pattern, 0)
    return translated and _accepted(translated.replace(f"(?P<{GROUP}>", "(?:", 1))


def rlike_as_re2(pattern: str) -> str:
    """The same pattern in RE2's syntax, to be searched for anywhere in a text.

    Raises `RuleError` (`PATTERN`) if the pattern is refused, or has what RE2 defines differently: word boundaries, line
    ends (except a last `$` that no carriage return can precede), or properties that only Java knows.
    """
    node = parse(pattern)
    check(node, Work())
    try:
        return _Writer().text(node, True, cp.ALL)
    except _InexpressibleError as error:
        raise RuleError("PATTERN", str(error) or _REFUSAL, 0) from None


def fewest_bytes(pattern: str) -> int:
    """A lower bound of the bytes of UTF-8 in a match of the pattern. Raises `RuleError` if the pattern is malformed."""
    return _least_length(parse(pattern))


def _least_length(node: Node) -> int:
    """The fewest code points in a match."""
    match node:
        case Characters():
            return 1
        case Assertion():
            return 0
        case Sequence(items):
            return sum(map(_least_length, items))
        case Choice(items):
            return min(map(_least_length, items))
        case Repeat(item, low, _):
            return low * _least_length(item)


def _translated(pattern: str, group: int) -> str | None:
    """The pattern in RE2's syntax, in which the group is called `GROUP`; None if RE2 lacks a part, or the pattern is
    too large."""
    try:
        node = parse(pattern)
        if size(node) > _MOST_STATES or _ranges(node) > _MOST_RANGES:
            return None
        found = _Writer(group or _WHOLE)
        text = found.text(node if group else Sequence((node,), _WHOLE), True, cp.ALL)
    except (RuleError, _InexpressibleError):
        return None
    return text if found.has_group else None


def _ranges(node: Node) -> int:
    """The number of ranges of code points in a node's sets, with counted repetitions expanded."""
    match node:
        case Characters(members):
            return len(members.cuts) // 2
        case Assertion():
            return 0
        case Sequence(items) | Choice(items):
            return sum(map(_ranges, items))
        case Repeat(item, low, high):
            return _ranges(item) * max(low + 1 if high is None else high, 1)


def _accepted(translated: str) -> str | None:
    """The pattern, or None if RE2 refuses it as too large."""
    try:
        pc.match_substring_regex(pa.array([""]), translated)
    except pa.ArrowInvalid:
        return None
    return translated


_WHOLE = -1
"""The number of the group around a whole pattern."""


class _Writer:
    """Writes a pattern in RE2's syntax. Raises `_InexpressibleError`.

    group: the number of the group to capture; None if it only matters which texts match, not what is found in them.
    """

    def __init__(self, group: int | None = None) -> None:
        self._group = group
        self.has_group = False
        self._in_group = self._in_repeat = False

    def text(self, node: Node, is_last: bool, before: ValueSet) -> str:
        """Writes a node. `is_last`: nothing follows it; `before`: the code points that can precede it."""
        match node:
            case Characters(members, True):
                return _class(members)
            case Sequence():
                return self._sequence(node, is_last, before)
            case Choice(items):
                return f"(?:{'|'.join(self.text(item, is_last, before) for item in items)})"
            case Repeat():
                return self._repeat(node, before)
            case Assertion(Place.START, False):
                return r"\A"
            case Assertion(Place.END, False):
                return r"\z"
            case Assertion(Place.DOLLAR, False) if is_last and not self._in_group and 0x0D not in before:
                return _LINE_END  # consumes a line terminator, which Java leaves
            case Assertion(Place.DOLLAR_UNIX, False) if is_last and not self._in_group:
                return r"\n?\z"
        raise _InexpressibleError

    def _sequence(self, node: Sequence, is_last: bool, before: ValueSet) -> str:
        is_wanted = node.group == self._group
        if is_wanted and self._in_repeat:
            raise _InexpressibleError
        self._in_group |= is_wanted
        self.has_group |= is_wanted
        parts = []
        for index, item in enumerate(node.items):
            parts.append(self.text(item, is_last and index == len(node.items) - 1, before))
            before = _ends(item, before)
        self._in_group &= not is_wanted
        return f"({f'?P<{GROUP}>' if is_wanted else '?:'}{''.join(parts)})"

    def _repeat(self, node: Repeat, before: ValueSet) -> str:
        """Writes a repetition. If its item can be empty, Java and RE2 end the repetition in different ways."""
        low, high = node.low, node.high
        if max(low, high or 0) > _MOST_REPEATS:
            raise _InexpressibleError(
                f"Inside a larger expression a regular expression repeats at most {_MOST_REPEATS:,} times."
            )
        if self._group is not None and not _least_length(node.item):
            raise _InexpressibleError
        outer, self._in_repeat = self._in_repeat, self._in_repeat or (low, high) != (0, 1)
        item = self.text(node.item, False, before | _ends(node.item, before))
        self._in_repeat = outer
        count = f"{{{low},{'' if high is None else high}}}"
        return f"(?:{item}){_SHORT.get((low, high), count)}{'?' if node.is_lazy else ''}"


_SHORT = {(0, None): "*", (1, None): "+", (0, 1): "?"}


def _tests_start(node: Node) -> bool:
    """Whether a node has the assertion that it is at the start of a text."""
    match node:
        case Assertion(place):
            return place == Place.START
        case Sequence(items) | Choice(items):
            return any(map(_tests_start, items))
        case Repeat(item):
            return _tests_start(item)
    return False


def _ends(node: Node, before: ValueSet) -> ValueSet:
    """The code points that can stand before what follows the node; `before` are those that can stand before the
    node."""
    match node:
        case Characters(members):
            return members
        case Assertion():
            return before
        case Sequence(items):
            for item in items:
                before = _ends(item, before)
            return before
        case Choice(items):
            found = ValueSet(False, ())
            for item in items:
                found |= _ends(item, before)
            return found
        case Repeat(item, low, high):
            once = _ends(item, before) if high != 0 else before
            return once if low else once | before


def _class(members: ValueSet) -> str:
    cuts = (members & cp.ALL).cuts
    ranges = "".join(f"\\x{{{low:x}}}-\\x{{{high - 1:x}}}" for low, high in zip(cuts[::2], cuts[1::2], strict=True))
    return f"[{ranges}]" if ranges else r"[^\x{0}-\x{10FFFF}]"
