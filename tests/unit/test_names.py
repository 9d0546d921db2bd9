"""Names: the suggestion for an unknown one."""

from __future__ import annotations

import pytest

from rules_index.names import did_you_mean


@pytest.mark.parametrize(
    ("unknown", "known", "end"),
    [
        ("Carier", ["carrier", "origin"], "; did you mean 'carrier'?"),
        (" carrier", ["CARRIER"], "; did you mean 'CARRIER'?"),
        (1234, [1235, 9], "; did you mean 1235?"),
        ("x", ["carrier"], "; there is carrier."),
        ("x", [], "; there is carrier."),
        ("a" * 1_000_000, ["a" * 100], f"; did you mean {'a' * 100!r}?"),
    ],
)
def test_unknown_name_is_answered_by_the_most_similar(unknown: object, known: list[object], end: str) -> None:
    assert did_you_mean(unknown, known, "; there is carrier.") == end


def test_only_the_first_names_are_compared() -> None:
    assert did_you_mean("carier", (f"{number}" for number in range(10_000))) == "."
    assert did_you_mean("carier", [*(f"{number}" for number in range(10_000)), "carrier"]) == "."
