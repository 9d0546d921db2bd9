"""The kinds of lint's findings, the most harmful first: by the rules alone, by a source, and by earlier runs."""

from __future__ import annotations

from rules_index.implication.kinds import (
    ALWAYS_RAISES,
    CONTRADICTION,
    DUPLICATE,
    IMPLIED,
    IMPLIED_BY_UNION,
    MAY_RAISE,
    MIDNIGHT,
    MISSING_BRACKETS,
    NEVER_TRUE,
    NO_WILDCARD,
    NULL_COMPARISON,
    NULL_TEXT,
    PADDED_ID,
    PADDED_TEXT,
    REDUNDANT_ALTERNATIVE,
    REJECTED,
    SEPARATED_NUMBER,
    TAUTOLOGY,
    TIME_PATTERN,
    TRUE_UNLESS_NULL,
    UNIT,
    UNKNOWN_VALUE,
    UNREACHABLE_ALTERNATIVE,
)

OUT_OF_RANGE, RUN_TIME_ERRORS, DEAD, NOISY = "out_of_range", "run_time_errors", "dead", "noisy"
IMPLIED_BY_STREAM = "implied_by_stream"
"""About a whole stream: another stream's rules imply its rules, so that it could read fewer rows; nothing is wrong."""

KINDS = (
    # it matches nothing, or not what it says
    REJECTED, ALWAYS_RAISES, CONTRADICTION, NEVER_TRUE, UNKNOWN_VALUE, OUT_OF_RANGE,
    # it matches too much
    TAUTOLOGY, TRUE_UNLESS_NULL, MISSING_BRACKETS,
    # a part of it says something else than it seems to
    NULL_COMPARISON, NULL_TEXT, PADDED_TEXT, UNIT, SEPARATED_NUMBER, NO_WILDCARD, TIME_PATTERN,
    MIDNIGHT, UNREACHABLE_ALTERNATIVE,
    # it does not do what was expected on some rows
    RUN_TIME_ERRORS, MAY_RAISE, DEAD, NOISY,
    # nothing is wrong in what it matches
    PADDED_ID, DUPLICATE, REDUNDANT_ALTERNATIVE, IMPLIED, IMPLIED_BY_UNION, IMPLIED_BY_STREAM,
)  # fmt: skip
HARM = {kind: place for place, kind in enumerate(KINDS)}
"""Each kind's rank: 0 is the most harmful."""
