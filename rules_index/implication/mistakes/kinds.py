"""The kinds of mistakes, and the class for one."""

from __future__ import annotations

from dataclasses import dataclass

ALWAYS_RAISES, MAY_RAISE, NEVER_TRUE = "always_raises", "may_raise", "never_true"
TRUE_UNLESS_NULL, MISSING_BRACKETS = "true_unless_null", "missing_brackets"
UNKNOWN_VALUE, PADDED_TEXT, NULL_TEXT, UNIT = "unknown_value", "padded_text", "null_text", "unit"
NO_WILDCARD, SEPARATED_NUMBER, PADDED_ID = "no_wildcard", "separated_number", "padded_id"
MISTAKES = (
    ALWAYS_RAISES, NEVER_TRUE, UNKNOWN_VALUE, TRUE_UNLESS_NULL, MISSING_BRACKETS, NULL_TEXT, PADDED_TEXT, UNIT,
    SEPARATED_NUMBER, NO_WILDCARD, MAY_RAISE, PADDED_ID,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake in a rule: its kind, its position in the rule's text, and what to write instead."""

    kind: str
    begin: int
    end: int
    message: str
