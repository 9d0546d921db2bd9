"""Comparisons of a cast date or time with a constant, in time zones whose clocks change.

Spark's optimiser moves the cast from the value to the constant: `CAST(ntz AS TIMESTAMP) < constant` becomes `ntz <
CAST(constant AS TIMESTAMP_NTZ)`. Where clocks change the two differ on some rows: on local times that a change skips,
and on instants whose local time a change repeats. WHERE follows the moved cast, and so do rules.
"""

from __future__ import annotations

import pyarrow as pa

from rules_index.domains.values import Key
from rules_index.language import constants
from rules_index.language.analysis import Analysis, Value
from rules_index.language.coercion import DATE
from rules_index.language.evaluation import datetime_parser
from rules_index.language.operations import can_raise
from rules_index.language.simplified_casts import past_float
from rules_index.language.type_names import TIMESTAMP, TIMESTAMP_NTZ
from rules_index.language.typed import Constant, Expression, Leaf, may_be_constant

_CASTS = (
    *("date", "to_date", "try_to_date"),
    *("timestamp", "to_timestamp", "try_to_timestamp", "to_timestamp_ltz", "to_timestamp_ntz"),
)
"""Functions that are casts if their only argument is a date or time."""
_KINDS = (DATE, TIMESTAMP, TIMESTAMP_NTZ)


def source(analyser: Analysis, value: Value, zone: str) -> Value | None:
    """The operand of `value`, if that is a cast between kinds of dates and times whose result depends on clock changes
    in the zone. None for any other value: its cast, if it is one, can stay.

    A cast can stay in a zone with a fixed offset, and between DATE and TIMESTAMP_NTZ: the comparison is the same then.
    An operand whose type only Spark knows may be any kind.
    """
    node = value.node
    if value.type not in _KINDS or datetime_parser.zone_offset(zone) is not None:
        return None
    if node.kind != "cast" and not (node.kind == "call" and node.value in _CASTS and len(node.children) == 1):
        return None
    inner = analyser.value(node.children[0])
    if (
        inner.type not in (*_KINDS, None)
        or inner.type == value.type
        or {inner.type, value.type} == {DATE, TIMESTAMP_NTZ}
    ):
        return None
    return inner


def cut(
    analyser: Analysis, operator: str, value: Value, attribute: Expression, constant: Constant, zone: str
) -> tuple[Expression, Key, Key] | None:
    """The attribute that is compared in place of `value`, and the constant's bounds among its values (`constants.cut`).

    `attribute` evaluates `value`; `constant` is in the common type. None if only Spark's own comparison is correct.
    """
    inner = source(analyser, value, zone)
    if inner is None:
        operand = past_float(attribute, constant.type)
        if operand is None:
            return None
        bounds = constants.cut(operand.type, constant, zone) or moved(operand.type, constant, zone)
        if bounds is None:
            return None
        # Spark does not evaluate what equals the constant for no value
        is_decided = operator in ("=", "<=>") and bounds[0] >= bounds[1]
        return None if is_decided and can_raise(operand) else (operand, *bounds)
    column = inner.local
    # Spark does not move the cast of a cast to DATE in <=>
    if value.type != constant.type or not _is_column(column) or (operator == "<=>" and value.type == DATE):
        return None
    assert column is not None
    bounds = moved(column.type, constant, zone)
    return None if bounds is None else (column, *bounds)


def moved(column: pa.DataType, constant: Constant, zone: str) -> tuple[int, int] | None:
    """The bounds of a constant among the values of a column of another kind of date or time, after its cast to that
    kind.

    None if Spark does not move the cast, or only Spark knows the local times.
    """
    if datetime_parser.zone_offset(zone) is not None or constant.value is None:
        return None
    if (column, constant.type) == (DATE, TIMESTAMP):
        return _among_dates(constant.value, zone)
    if (column, constant.type) == (TIMESTAMP, DATE):
        begin = datetime_parser.to_instant(constant.value * datetime_parser.DAY, zone)
        end = datetime_parser.to_instant((constant.value + 1) * datetime_parser.DAY, zone)
        return None if begin is None or end is None else (begin, end)
    # Spark moves the cast only if the constant is the same after a cast to the other kind and back
    if (column, constant.type) == (TIMESTAMP_NTZ, TIMESTAMP):
        found = datetime_parser.to_local(constant.value, zone)
        back = None if found is None else datetime_parser.to_instant(found, zone)
    elif (column, constant.type) == (TIMESTAMP, TIMESTAMP_NTZ):
        found = datetime_parser.to_instant(constant.value, zone)
        back = None if found is None else datetime_parser.to_local(found, zone)
    else:
        return None
    return (found, found + 1) if found is not None and back == constant.value else None


def _among_dates(instant: int, zone: str) -> tuple[int, int] | None:
    """The bounds of an instant among dates, each of which counts as the instant at which it begins."""
    local = datetime_parser.to_local(instant, zone)
    begin = (
        None if local is None else datetime_parser.to_instant(local // datetime_parser.DAY * datetime_parser.DAY, zone)
    )
    if local is None or begin is None:
        return None
    day = local // datetime_parser.DAY
    return (day if begin == instant else day + 1), day + 1


def _is_column(expression: Expression | None) -> bool:
    return isinstance(expression, Leaf) and expression.text is None


def is_moved(analyser: Analysis, first: Value, second: Value, zone: str) -> bool:
    """Whether Spark moves the cast of one of two compared values to the other one, which it may know as a constant."""
    return any(
        may_be_constant(constant.local) and source(analyser, value, zone) is not None
        for value, constant in ((first, second), (second, first))
    )


def is_moved_in_list(analyser: Analysis, values: list[Value], common: pa.DataType, zone: str) -> bool:
    """Whether Spark may move the cast of the value of an IN. It does so if the list has a single distinct value, since
    the IN is then an equality with a constant."""
    if source(analyser, values[0], zone) is None:
        return False
    listed = [each.local for each in values[1:]]
    members = {constants.cast(each, common, zone) for each in listed if isinstance(each, Constant)}
    return len(members) == 1 or any(may_be_constant(each) and not isinstance(each, Constant) for each in listed)
