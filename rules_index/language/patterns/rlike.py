"""RLIKE: whether a string contains a match of a java.util.regex pattern."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from rules_index.language.patterns.automaton import build, check
from rules_index.language.patterns.java_syntax import parse
from rules_index.language.patterns.search import MOST_MATCHERS, Searcher
from rules_index.language.patterns.strings import buffers, with_nulls
from rules_index.work_budget import Work


class RlikeMatcher:
    """A compiled pattern."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._searcher = Searcher(build(parse(pattern)))

    def match(self, strings: pa.Array) -> pa.BooleanArray:
        """BOOLEAN for each string: whether the pattern occurs in it; NULL for NULL."""
        data, offsets, valid = buffers(strings)
        return with_nulls(self._searcher.search(data, offsets, valid), valid)


@lru_cache(maxsize=MOST_MATCHERS)
def rlike_matcher(pattern: str) -> RlikeMatcher:
    """The matcher of a pattern that `check_rlike` accepts."""
    return RlikeMatcher(pattern)


def check_rlike(pattern: str, work: Work | None = None) -> None:
    """Raises `RuleError`: `PATTERN`, with the position in the pattern, if RLIKE does not accept it; `TOO_COMPLEX` if
    too little of the budget of work is left for it."""
    work = work or Work()
    check(parse(pattern, work), work)
