"""Patterns for expressions that Spark itself evaluates: LIKE for java.util.regex, RLIKE for RE2."""

from __future__ import annotations

from rules_index.domains.values import ValueSet
from rules_index.errors import RuleError
from rules_index.language.patterns import code_points as cp
from rules_index.language.patterns.automaton import build
from rules_index.language.patterns.java_syntax import parse
from rules_index.language.patterns.like import ANY_ONE, segments
from rules_index.language.patterns.syntax import Assertion, Characters, Choice, Node, Place, Repeat, Sequence

_RE2_MOST = 1_000
"""The greatest repetition count of RE2."""
_LINE_END = r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z"


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


def rlike_as_re2(pattern: str) -> str:
    """The same pattern in RE2's syntax, to be searched for anywhere in a string.

    Raises `RuleError` (`PATTERN`) where it is refused, tests word boundaries or line ends, which RE2 defines
    differently from Java, or has a property that only Java knows.
    """
    node = parse(pattern)
    build(node)
    return _re2(node, True, cp.ALL)


def _re2(node: Node, is_last: bool, before: ValueSet) -> str:
    """A node in RE2's syntax; `before` are the code points that can precede it."""
    match node:
        case Characters(members, True):
            return _re2_class(members)
        case Sequence(items):
            parts = []
            for index, item in enumerate(items):
                parts.append(_re2(item, is_last and index == len(items) - 1, before))
                before = _ends(item, before)
            return f"(?:{''.join(parts)})"
        case Choice(items):
            return f"(?:{'|'.join(_re2(item, is_last, before) for item in items)})"
        case Repeat(item, low, high):
            return _re2_repeat(_re2(item, False, before | _ends(item, before)), low, high)
        case Assertion(Place.START, False):
            return r"\A"
        case Assertion(Place.END, False):
            return r"\z"
        case Assertion(Place.DOLLAR, False) if is_last and 0x0D not in before:
            return _LINE_END
        case Assertion(Place.DOLLAR_UNIX, False) if is_last:
            return r"\n?\z"
    raise RuleError(
        "PATTERN",
        "This regular expression stands inside a larger expression, where the edges of words and lines, blocks of "
        "Unicode and properties of Java's own cannot be matched in linear time. Use RLIKE by itself, joined to the "
        "rest by AND, OR and NOT, or simplify its repetitions.",
        0,
    )


def _ends(node: Node, before: ValueSet) -> ValueSet:
    """The code points that can precede what follows the node."""
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


def _re2_repeat(item: str, low: int, high: int | None) -> str:
    if max(low, high or 0) > _RE2_MOST:
        raise RuleError(
            "PATTERN",
            f"Inside a larger expression a regular expression repeats at most {_RE2_MOST:,} times.",
            0,
        )
    if high is None:
        return f"(?:{item})*" if low == 0 else f"(?:{item})+" if low == 1 else f"(?:{item}){{{low},}}"
    return f"(?:{item}){{{low},{high}}}" if (low, high) != (0, 1) else f"(?:{item})?"


def _re2_class(members: ValueSet) -> str:
    cuts = (members & cp.ALL).cuts
    ranges = "".join(f"\\x{{{low:x}}}-\\x{{{high - 1:x}}}" for low, high in zip(cuts[::2], cuts[1::2], strict=True))
    return f"[{ranges}]" if ranges else r"[^\x{0}-\x{10FFFF}]"
