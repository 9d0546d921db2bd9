"""Evaluates a suite's expectations over its measures like Great Expectations, without importing it.

The measures of a suite are a table of one row, so its expectations just compare one or two values. Importing Great
Expectations would take seconds. `quality.validation` runs a suite in Great Expectations; tests check that both give the
same findings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from quality.findings import ERROR, Expectation, Finding, MatchesByRule

EXAMPLES = 5
"""Maximum number of values that a message names."""


@dataclass(frozen=True, slots=True)
class Suite:
    """Expectations about measures, a table of one row; `name` is also that of the page in Data Docs."""

    name: str
    expectations: Sequence[Expectation]
    measures: Mapping[str, Any]


class MeasuredSuites(NamedTuple):
    """What a gate evaluates.

    measures: those of all suites; counts: for a tagged table, the matches by rule; note_judged: for a tagged table,
    records that its micro-batches are judged.
    """

    suites: Sequence[Suite]
    measures: Mapping[str, Any]
    counts: MatchesByRule = ()
    note_judged: Callable[[], None] = lambda: None


def evaluate(suites: Sequence[Suite]) -> tuple[Finding, ...]:
    """The findings of every suite, in order."""
    return tuple(_finding(suite.measures, expectation) for suite in suites for expectation in suite.expectations)


def message(expectation: Expectation, result: Mapping[str, Any]) -> str:
    """The message for people about a failed expectation; result: in the form of Great Expectations."""
    arguments = expectation.arguments
    if "column_A" in arguments:
        pairs = result.get("partial_unexpected_list") or []
        found = f"{pairs[0][0]} is not {pairs[0][1]}" if pairs else "they differ"
    elif "observed_value" in result:
        found = f"found {_number(result['observed_value'])}, {_allowed(arguments)}"
    else:
        found = _unexpected(result)
    return f"{expectation.description}: {found}"


def observed_value(result: Mapping[str, Any]) -> Any:
    """The observed value: a measure, or how many values are unexpected."""
    return result.get("observed_value", result.get("unexpected_count"))


def unjudged_finding(expectation: Expectation, problem: str) -> Finding:
    """The finding for an expectation that could not be evaluated: it has failed, with severity ERROR."""
    text = f"{expectation.description}. This could not be judged: {problem}"
    return Finding(expectation.name, ERROR, False, None, text)


def _finding(measures: Mapping[str, Any], expectation: Expectation) -> Finding:
    arguments = expectation.arguments
    named = [arguments[key] for key in ("column", "column_A", "column_B") if key in arguments]
    if absent := [name for name in named if name not in measures]:
        return unjudged_finding(expectation, f'The column "{absent[0]}" does not exist.')
    success, result = _KINDS[expectation.kind](measures, arguments)
    text = expectation.description if success else message(expectation, result)
    return Finding(expectation.name, expectation.severity, success, observed_value(result), text)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _max_between(measures: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
    value = measures[arguments["column"]]
    low, high = arguments.get("min_value"), arguments.get("max_value")
    within = not _is_missing(value) and (low is None or value >= low) and (high is None or value <= high)
    return bool(within), {"observed_value": None if _is_missing(value) else value}


def _pair_equal(measures: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
    pair = measures[arguments["column_A"]], measures[arguments["column_B"]]
    if all(map(_is_missing, pair)):
        return True, _counted(())
    return (True, _counted(())) if pair[0] == pair[1] else (False, _counted((pair,)))


def _in_set(measures: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
    value = measures[arguments["column"]]
    # a missing value is ignored
    known = _is_missing(value) or value in arguments["value_set"]
    return known, _counted(() if known else (value,))


def _counted(unexpected: Sequence[Any]) -> dict[str, Any]:
    return {
        "element_count": 1,
        "unexpected_count": len(unexpected),
        "partial_unexpected_list": list(unexpected),
    }


_KINDS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[bool, dict[str, Any]]]] = {
    "ExpectColumnMaxToBeBetween": _max_between,
    "ExpectColumnPairValuesToBeEqual": _pair_equal,
    "ExpectColumnValuesToBeInSet": _in_set,
}
"""Class of Great Expectations -> the function that evaluates its expectations on one row: success and result."""


def _unexpected(result: Mapping[str, Any]) -> str:
    listed = dict.fromkeys(str(value) for value in result.get("partial_unexpected_list") or [])
    examples = ", ".join(list(listed)[:EXAMPLES])
    more = f", such as {examples}" if examples and examples != "None" else ""
    if result.get("element_count") == 1:
        return f"found: {examples}"
    return f"not so for {result.get('unexpected_count')} of {result.get('element_count')}{more}"


def _allowed(arguments: Mapping[str, Any]) -> str:
    low, high = arguments.get("min_value"), arguments.get("max_value")
    if low == high:
        return f"expected {_number(low)}"
    if high is None:
        return f"at least {_number(low)} is expected"
    return f"at most {_number(high)} is allowed"


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
