"""Finds all mistakes in the texts of rules."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping

import pyarrow as pa

from rules_index.implication.mistakes.connective_mistakes import missing_brackets, true_unless_null
from rules_index.implication.mistakes.constant_mistakes import spellings, units, wildcards
from rules_index.implication.mistakes.known_values import KnownValues
from rules_index.implication.mistakes.mistake import Mistake
from rules_index.implication.mistakes.parsed_rule import ParsedRule
from rules_index.implication.mistakes.time_mistakes import midnights, patterns
from rules_index.implication.mistakes.type_mistakes import (
    may_raise,
    never_true,
    quoted_names,
    raises_always,
    separated_numbers,
)
from rules_index.language.formula import Formula
from rules_index.language.scope import Scope

_LOOKS: tuple[Callable[[ParsedRule], Iterator[Mistake]], ...] = (
    raises_always,
    never_true,
    quoted_names,
    spellings,
    true_unless_null,
    missing_brackets,
    units,
    separated_numbers,
    wildcards,
    midnights,
    patterns,
    may_raise,
)
_LONGEST = 100_000
"""Texts with more characters are not searched."""


def mistakes(
    texts: pa.LargeStringArray, scope: Scope, known: Mapping[str, KnownValues]
) -> Iterator[tuple[int, Mistake]]:
    """Yields the mistakes in rules, all of which compile, each with the rule's number. known: by column name, what
    `known_values` returns."""
    remembered: dict[Hashable, Formula] = {}
    for place, text in enumerate(texts.to_pylist()):
        if len(text) > _LONGEST:
            continue
        try:
            rule = ParsedRule(text, scope, known, remembered)
            found: dict[tuple[str, int, int], Mistake] = {}
            for look in _LOOKS:
                for each in look(rule):
                    # all wrong items of a list are at the same position: only the first is reported
                    found.setdefault((each.kind, each.begin, each.end), each)
        except MemoryError:
            raise
        except Exception:  # this rule gets no findings; the others still do
            continue
        for each in found.values():
            yield place, each
