"""LIKE and ILIKE: `%` for any string, `_` for one code point, in time linear in the value.

The segments of a pattern are the parts between its `%`. The first one is anchored at the string's start, and the last
one at its end. The most common patterns are evaluated by functions of Arrow, the others by the automaton of regular
expressions.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from rules_index.domains.values import points
from rules_index.errors import RuleError
from rules_index.language.patterns import code_points as cp
from rules_index.language.patterns.automaton import STATE_LIMIT, build, spend_on_sets
from rules_index.language.patterns.search import MOST_MATCHERS, Searcher
from rules_index.language.patterns.strings import buffers, decodable, with_nulls
from rules_index.language.patterns.syntax import Assertion, Characters, Node, Place, Repeat, Sequence
from rules_index.work_budget import Work

ANY_ONE = -1
"""Stands for `_` among the code points of a segment."""
_ANY_CHARACTER = Characters(cp.ALL)
_ANY_STRING = Repeat(_ANY_CHARACTER, 0, None)


def segments(pattern: str, escape: str) -> list[list[int]]:
    """The code points between the `%` of a pattern, ANY_ONE for `_`; a single segment if there is no `%`.

    Raises `RuleError` (`PATTERN`) if the escape character is misused.
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
                twice = " (a backslash is four of them in '...', two in r'...')" if escape == "\\" else ""
                wrong = f"its escape character must not precede '{pattern[index]}'"
                _refuse(f"{wrong}; to match it, write it twice{twice}", index - 1)
            found[-1].append(ord(pattern[index]))
        elif character == "%":
            found.append([])
        else:
            found[-1].append(ANY_ONE if character == "_" else ord(character))
        index += 1
    return found


def _refuse(message: str, position: int) -> None:
    raise RuleError("PATTERN", f"The LIKE pattern cannot be used: {message}.", position)


def check_like(pattern: str, escape: str, ignore_case: bool = False, work: Work | None = None) -> None:
    """Raises `RuleError`: `PATTERN` if LIKE (or ILIKE, which first converts the pattern to lower case) does not accept
    the pattern; `TOO_COMPLEX` if too little of the budget of work is left for its different characters."""
    parts = segments(lowered(pattern) if ignore_case else pattern, escape)
    if _plain(parts) is None:
        if sum(map(len, parts)) > STATE_LIMIT:
            _refuse(f"with % or _ inside it must not have more than {STATE_LIMIT:,} other characters", STATE_LIMIT)
        if work is not None:
            spend_on_sets(len({code for part in parts for code in part}), work)


def text_like(pattern: str, escape: str = "\\") -> str:
    """A string that a pattern of LIKE matches: without `%`, and with x for `_`. For a regular expression, whose escape
    is a backslash, the pattern without backslashes, which it often matches."""
    found, letters = [], iter(pattern)
    for letter in letters:
        if letter == escape:
            found.append(next(letters, ""))
        elif letter != "%":
            found.append("x" if letter == "_" else letter)
    return "".join(found)


def like_prefix(pattern: str, escape: str) -> tuple[str, bool] | None:
    """(text, True) for a pattern that matches only the text, (text, False) for one that matches all strings that start
    with the text, else None."""
    parts = segments(pattern, escape)
    if len(parts) > 2 or ANY_ONE in parts[0] or (len(parts) == 2 and parts[1]):
        return None
    return "".join(map(chr, parts[0])), len(parts) == 1


def lower(strings: pa.Array) -> pa.Array:
    """Lower case as Spark's `lower`: by Unicode's full mapping, including the final sigma."""
    import polars as pl

    series = pl.Series(decodable(strings.cast(pa.large_string(), safe=False)), dtype=pl.String)
    return series.str.to_lowercase().to_arrow().cast(pa.large_string())


def lowered(pattern: str) -> str:
    """A pattern in lower case, as ILIKE uses it."""
    # Python's own is the same for ASCII in a thousandth of the time, and a rule may have tens of thousands of patterns
    return pattern.lower() if pattern.isascii() else str(lower(pa.array([pattern]))[0].as_py())


class LikeMatcher:
    """A compiled pattern."""

    def __init__(self, parts: list[list[int]], ignore_case: bool) -> None:
        """parts: as `segments` returns them, in lower case if `ignore_case`."""
        self._ignore_case = ignore_case
        self._plain = _plain(parts)
        self._searcher = None if self._plain else Searcher(build(_node(parts)))

    def match(self, strings: pa.Array) -> pa.BooleanArray:
        """BOOLEAN for each string: whether the whole string matches the pattern; NULL for NULL."""
        if self._ignore_case:
            strings = lower(strings)
        if self._searcher is not None:
            data, offsets, valid = buffers(strings)
            return with_nulls(self._searcher.search(data, offsets, valid), valid)
        assert self._plain is not None
        kernel, text = self._plain
        if not pa.types.is_string(strings.type):
            strings = strings.cast(pa.large_string(), safe=False)
        return getattr(pc, kernel)(strings, text)


@lru_cache(maxsize=MOST_MATCHERS)
def like_matcher(pattern: str, escape: str = "\\", ignore_case: bool = False) -> LikeMatcher:
    """The matcher of a pattern. ILIKE converts value and pattern to lower case, but not the escape character, as Spark
    does."""
    return LikeMatcher(segments(lowered(pattern) if ignore_case else pattern, escape), ignore_case)


def _plain(parts: list[list[int]]) -> tuple[str, str] | None:
    """The function of `pyarrow.compute` that evaluates a pattern, and the text to look for; None if the automaton must
    do it."""
    text = [part for part in parts if part]
    if len(text) != 1 or ANY_ONE in text[0]:
        return None
    kernels = {(True,): "equal", (True, False): "starts_with", (False, True): "ends_with"}
    shape = tuple(map(bool, parts))
    inside = not shape[0] and not shape[-1]
    kernel = "match_substring" if inside else kernels.get(shape)
    return None if kernel is None else (kernel, "".join(map(chr, text[0])))


def _node(parts: list[list[int]]) -> Node:
    """The segments as a regular expression that is searched for. It is anchored at the string's start unless the
    pattern begins with `%`, and at the end unless it ends with `%`."""
    whole = len(parts) == 1
    items: list[Node] = [Assertion(Place.START)] if parts[0] or whole else []
    for number, part in enumerate(parts):
        if number and (part or number < len(parts) - 1) and items:
            items.append(_ANY_STRING)
        items += [_ANY_CHARACTER if code == ANY_ONE else Characters(points((code,))) for code in part]
    return Sequence((*items, Assertion(Place.END)) if parts[-1] or whole else tuple(items))


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
