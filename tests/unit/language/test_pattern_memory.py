"""Patterns with very many nodes keep little memory together, and match the same."""

from __future__ import annotations

import gc
import random

import pyarrow as pa
import pytest

from rules_index.language.patterns import search
from rules_index.language.patterns.rlike import RlikeMatcher

PATTERNS = [f"a.{{{length}}}b.{{3}}x" for length in range(8, 12)]


def test_large_caches_are_kept_only_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(1)
    rows = pa.array(["".join(draw.choice("abcx ") for _ in range(60)) for _ in range(2_000)])
    search._large.clear()

    def kept(most: int) -> tuple[list[int], int]:
        """How many rows match each pattern, and the bytes that stay afterwards while the patterns are held."""
        monkeypatch.setattr(search, "_MOST_BYTES", most)
        matchers = [RlikeMatcher(pattern) for pattern in PATTERNS]
        found = [matcher.match(rows).true_count for matcher in matchers for _ in range(2)]
        return found, sum(each.nbytes for each in search._large.values())

    expected, all_bytes = kept(1 << 30)
    assert min(expected) > 100 and all_bytes > 4 * search._SMALL_BYTES
    gc.collect()
    assert not sum(each.nbytes for each in search._large.values()), "forgotten with their patterns"
    found, some_bytes = kept(all_bytes // 2)
    assert found == expected and 0 < some_bytes <= all_bytes // 2
    assert kept(0) == (expected, 0)
