"""The casts that Spark adds: to arguments of functions, as in `last_day(timestamp)` and `concat(text, number)`, and to
constants beside TIMESTAMPs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rules_index.language import operations
from rules_index.language.analysis import Analysis, Value
from rules_index.language.coercion import DATE, DOUBLE, STRING, Type
from rules_index.language.literals import refuse_time_of_day
from rules_index.language.tokens import words
from rules_index.language.type_names import TIMESTAMP
from rules_index.language.typed import Constant, Expression

_DATE_PARTS = words("year quarter month day dayofmonth dayofyear dayofweek weekday weekofyear")
_ARGUMENTS: dict[str, tuple[Type, ...]] = {
    **dict.fromkeys((*_DATE_PARTS, "last_day", "unix_date", "dayname", "monthname"), (DATE,)),
    **dict.fromkeys(("add_months", "date_add", "date_sub", "trunc", "next_day"), (DATE, None)),
    **dict.fromkeys(("datediff", "date_diff"), (DATE, DATE)),
    **dict.fromkeys(("hour", "minute", "second"), (TIMESTAMP,)),
    **dict.fromkeys(("date_format", "from_utc_timestamp", "to_utc_timestamp"), (TIMESTAMP, None)),
    "luhn_check": (STRING,),
    "months_between": (TIMESTAMP, TIMESTAMP),
    **dict.fromkeys(("power", "pow"), (DOUBLE, DOUBLE)),
    **dict.fromkeys(("rint", "sign", "signum", "sqrt"), (DOUBLE,)),
    "timestampdiff": (None, TIMESTAMP, TIMESTAMP),
}
"""The types to which Spark casts the arguments; None for an argument that is not cast."""


def cast_arguments(name: str, arguments: Sequence[Expression | None], zone: str) -> list[Expression | None]:
    """A function's arguments, cast to the types that it needs; None for each that only Spark can cast."""
    if name == "concat":
        return [in_text(each, zone) for each in arguments]
    kinds = _ARGUMENTS.get(name, ())
    wanted = [*kinds, *(None for _ in arguments[len(kinds) :])]
    return [
        each if each is None or kind is None else operations.as_type(each, kind, zone)
        for each, kind in zip(arguments, wanted, strict=False)
    ]


def in_text(value: Expression | None, zone: str) -> Expression | None:
    """A value cast to STRING, as an operand of `||` or concat; None if only Spark knows how it is written."""
    return None if value is None else operations.as_type(value, STRING, zone)


def refuse_times_of_day(analysis: Analysis, kind: Type, values: Iterable[Value]) -> None:
    """Raises `NOT_REPEATABLE` if a constant among the values that Spark casts to `kind` is then a time of the current
    day."""
    for value in values:
        if kind == TIMESTAMP and isinstance(value.local, Constant) and isinstance(value.local.value, str):
            refuse_time_of_day(value.local.value, analysis.tokens.starts[value.node.first])
