"""The kinds of findings about rules."""

from __future__ import annotations

REJECTED, NULL_COMPARISON = "rejected", "null_comparison"

CONTRADICTION, TAUTOLOGY, DUPLICATE = "contradiction", "tautology", "duplicate"
IMPLIED, IMPLIED_BY_UNION = "implied", "implied_by_union"
REDUNDANT_ALTERNATIVE, UNREACHABLE_ALTERNATIVE = "redundant_alternative", "unreachable_alternative"
OF_RULE_SETS = (
    CONTRADICTION, TAUTOLOGY, DUPLICATE, IMPLIED, IMPLIED_BY_UNION, REDUNDANT_ALTERNATIVE, UNREACHABLE_ALTERNATIVE,
)  # fmt: skip
"""The kinds that are found in a compiled rule set."""

ALWAYS_RAISES, MAY_RAISE, NEVER_TRUE = "always_raises", "may_raise", "never_true"
TRUE_UNLESS_NULL, MISSING_BRACKETS = "true_unless_null", "missing_brackets"
UNKNOWN_VALUE, PADDED_TEXT, NULL_TEXT, UNIT = "unknown_value", "padded_text", "null_text", "unit"
NO_WILDCARD, SEPARATED_NUMBER, MIDNIGHT, PADDED_ID = "no_wildcard", "separated_number", "midnight", "padded_id"
TIME_PATTERN = "time_pattern"
MISTAKES = (
    ALWAYS_RAISES, NEVER_TRUE, UNKNOWN_VALUE, TRUE_UNLESS_NULL, MISSING_BRACKETS, NULL_TEXT, PADDED_TEXT, UNIT,
    SEPARATED_NUMBER, NO_WILDCARD, TIME_PATTERN, MIDNIGHT, MAY_RAISE, PADDED_ID,
)  # fmt: skip
"""The kinds that are found in the text of a single rule."""

LINT_KINDS = (
    REJECTED, CONTRADICTION, TAUTOLOGY, NULL_COMPARISON, DUPLICATE, IMPLIED, IMPLIED_BY_UNION, REDUNDANT_ALTERNATIVE,
    UNREACHABLE_ALTERNATIVE, *MISTAKES,
)  # fmt: skip
"""All kinds, in the order in which lint lists the findings of one rule."""
