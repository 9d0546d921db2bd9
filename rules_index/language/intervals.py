"""Compares day-time intervals (differences of dates and times, and literals) as their numbers of microseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rules_index.language import literals, operations
from rules_index.language.analysis import Analysis, Value
from rules_index.language.coercion import BIGINT, NULL
from rules_index.language.constant_folding import folded_call
from rules_index.language.source_text import text_of
from rules_index.language.type_names import DAY_INTERVAL
from rules_index.language.typed import Constant, Expression


def in_micros(analysis: Analysis, values: Sequence[Value]) -> list[Value]:
    """Day-time intervals, and NULLs among them, as BIGINTs of microseconds.

    Returns the values unchanged if one is neither an interval nor NULL, if all are NULL, or if only Spark can evaluate
    one.
    """
    if {value.type for value in values} - {NULL} != {DAY_INTERVAL}:
        return list(values)
    trees = [_micros(analysis, value) for value in values]
    if any(tree is None for tree in trees):
        return list(values)
    return [Value(value.node, BIGINT, tree) for value, tree in zip(values, trees, strict=True)]


def literal_length(analysis: Analysis, value: Value, units: Mapping[str, int] = literals.MICROS) -> int | None:
    """The length of an INTERVAL literal in microseconds, or as `units` defines it. None for any other value, and for
    forms that only Spark reads."""
    return (
        literals.length_of_interval(text_of(analysis.tokens, value.node), units)
        if value.node.kind == "opaque"
        else None
    )


def _micros(analysis: Analysis, value: Value) -> Expression | None:
    """The microseconds of a day-time interval, or NULL, as a BIGINT; None if only Spark can evaluate it."""
    node = value.node
    if value.type == NULL:
        return Constant(None, BIGINT)
    known = literal_length(analysis, value)
    if known is not None:
        return Constant(known, BIGINT)
    if node.kind == "call" and node.value == "abs":
        inner = _micros(analysis, analysis.value(node.children[0]))
        return None if isinstance(inner, Constant) else operations.operation("abs", [inner], BIGINT)
    if node.kind != "arithmetic" or list(node.value) != ["-"]:
        return None
    ends = [analysis.value(child).local for child in node.children]
    return folded_call("time_between", ends, BIGINT, analysis.scope.time_zone)
