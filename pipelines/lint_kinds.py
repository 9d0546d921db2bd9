"""The kinds of findings, the most harmful first."""

from __future__ import annotations

REJECTED = "rejected"
OUT_OF_RANGE, RUN_TIME_ERRORS, DEAD, NOISY = "out_of_range", "run_time_errors", "dead", "noisy"
IMPLIED_BY_STREAM = "implied_by_stream"
"""About a whole stream, whose rules another stream's rules imply: nothing is wrong, but less could be read."""

KINDS = (
    # it matches nothing, or not what it says
    REJECTED, "always_raises", "contradiction", "never_true", "unknown_value", OUT_OF_RANGE,
    # it matches too much
    "tautology", "true_unless_null", "missing_brackets",
    # a part of it says something else than it seems to
    "null_comparison", "null_text", "padded_text", "unit", "separated_number", "no_wildcard", "unreachable_alternative",
    # it does not do what was expected on some rows
    RUN_TIME_ERRORS, "may_raise", DEAD, NOISY,
    # nothing is wrong in what it matches
    "padded_id", "duplicate", "redundant_alternative", "implied", "implied_by_union", IMPLIED_BY_STREAM,
)  # fmt: skip
HARM = {kind: place for place, kind in enumerate(KINDS)}
"""Each kind's rank: 0 is the most harmful."""
