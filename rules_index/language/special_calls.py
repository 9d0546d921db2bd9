"""Calls whose type or tree depends on more than the function's name: conditionals, operators by another name, fields of
dates. A function in `SPECIAL` returns None if the tables for functions (`function_signatures`, `function_registry`)
give all there is to know about the call."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa

from rules_index.domains.values import is_indexable
from rules_index.language import operations
from rules_index.language.analysis import Analysis, Value, evaluated_once
from rules_index.language.array_calls import ARRAY_CALLS
from rules_index.language.coercion import (
    BIGINT,
    BOOLEAN,
    DATE,
    INT,
    MAX_PRECISION,
    NULL,
    STRING,
    arithmetic_type,
    is_decimal,
    is_float,
    is_integer,
    is_joined_as_text,
    is_nested,
    is_number,
)
from rules_index.language.constant_folding import folded, folded_call
from rules_index.language.nodes import Node
from rules_index.language.tokens import words
from rules_index.language.type_names import DAY_INTERVAL, TIMESTAMP, TIMESTAMP_NTZ
from rules_index.language.typed import Constant

_FIELDS = {
    **dict.fromkeys(words("year y years yr yrs"), "year"),
    **dict.fromkeys(words("quarter qtr"), "quarter"),
    **dict.fromkeys(words("month mon mons months"), "month"),
    **dict.fromkeys(words("week w weeks"), "weekofyear"),
    **dict.fromkeys(words("day d days"), "day"),
    **dict.fromkeys(words("dayofweek dow"), "dayofweek"),
    **dict.fromkeys(words("dayofweek_iso dow_iso"), "dayofweek_iso"),
    **dict.fromkeys(words("hour h hours hr hrs"), "hour"),
    **dict.fromkeys(words("minute m min mins minutes"), "minute"),
    "yearofweek": "yearofweek",
    "doy": "dayofyear",
}
"""Names of whole fields of dates and times, and the functions that return these fields."""


def _choice(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`if(condition, a, b)`."""
    return analyser.choice(node, [analyser.truth(node.children[0], (BOOLEAN, NULL))], arguments[1:])


def _choice_of_null(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`nvl2(value, a, b)`: a if the value is not NULL, else b."""
    is_null = operations.null_test(node.children[0], arguments[0].local)
    return analyser.choice(node, [operations.operation("not", [is_null], BOOLEAN)], arguments[1:])


def _trimmed(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`ltrim(letters, text)`, which is also `TRIM(LEADING letters FROM text)`."""
    if len(arguments) < 2 or any(each.type != STRING or each.collated for each in arguments):
        return None
    trees = [each.local for each in arguments]
    tree = folded_call(f"{node.value}_letters", trees, STRING, analyser.scope.time_zone)
    return analyser.make_value(node, STRING, tree)


def _coalesce(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`coalesce`, `ifnull` or `nvl` in the common type of its arguments."""
    common = analyser.common_of(node, arguments)
    if common is None or common == NULL or is_nested(common):
        return None
    trees = [
        None if each.local is None else operations.as_type(each.local, common, analyser.scope.time_zone)
        for each in arguments
    ]
    return analyser.make_value(node, common, operations.operation("coalesce", trees, common))


def _nullif(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    first = arguments[0]
    if first.type is None or first.type == NULL or is_nested(first.type):
        return None
    equal = analyser.compared(node, "=", evaluated_once(first), arguments[1]).local
    tree = operations.operation("case", [equal, Constant(None, first.type), first.local], first.type)
    return analyser.make_value(node, first.type, tree, first.collated)


def _absolute(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    first = arguments[0]
    if first.type == DAY_INTERVAL:
        return analyser.make_value(node, first.type)
    if not is_number(first.type):
        return None
    tree = folded(operations.operation("abs", [first.local], first.type))
    return analyser.make_value(node, first.type, tree)


def _negative(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    first = arguments[0]
    if not is_number(first.type) or first.local is None:
        return None
    return analyser.make_value(node, first.type, operations.negated(first.local))


def _positive(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`positive(number)`, which is the number."""
    first = arguments[0]
    return analyser.make_value(node, first.type, first.local) if is_number(first.type) else None


def _beside_zero(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`nullifzero(number)` or `zeroifnull`, as `nullif(number, 0)` and `coalesce(number, 0)`."""
    if not (is_integer(arguments[0].type) or is_float(arguments[0].type)):
        return None
    zero = Value(node, INT, Constant(0, INT))
    return (_nullif if node.value == "nullifzero" else _coalesce)(analyser, node, [arguments[0], zero])


def _nan_replaced(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`nanvl(number, other)` of two DOUBLEs or two FLOATs: the other one where the number is NaN."""
    number, other = arguments
    if not is_float(number.type) or number.type != other.type or isinstance(number.local, Constant):
        return None
    nan = Constant(math.nan, number.type)
    is_nan = operations.operation("<=>", [evaluated_once(number).local, nan], BOOLEAN)
    tree = operations.operation("case", [is_nan, other.local, number.local], number.type)
    return analyser.make_value(node, number.type, tree)


def _is_null(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    tree = operations.null_test(node.children[0], arguments[0].local)
    if node.value == "isnotnull":
        tree = operations.operation("not", [tree], BOOLEAN)
    return analyser.make_value(node, BOOLEAN, tree)


def _equal_null(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    return analyser.comparison(node, "<=>", node.children[0], node.children[1])


def _matches(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`like(text, pattern)` and similar calls, as the operator of that name."""
    return analyser.value(as_operator(analyser, node))


def as_operator(analyser: Analysis, node: Node) -> Node:
    """The operator that a call such as `like(text, pattern, escape)` is equivalent to."""
    if node.value in ("like", "ilike"):
        escape: Any = "\\"
        if len(node.children) == 3:
            tree = analyser.value(node.children[2]).local
            escape = tree.value if isinstance(tree, Constant) else None
            if not isinstance(escape, str) or len(escape) != 1 or escape > "\uffff":  # Spark counts UTF-16 units
                raise analyser.error(
                    "LITERAL", "The escape must be a string of exactly one character.", node.children[2]
                )
        operator = Node("like", (node.value.upper(), False, None, escape), node.children[:2], node.first, node.last)
    else:
        operator = Node("rlike", False, node.children, node.first, node.last)
    operator.depth = node.depth
    return operator


_OPERATORS = {"mod": "%", "pmod": "PMOD", "div": "DIV"}
_TRIED = {"try_mod": "%", "try_add": "+", "try_subtract": "-", "try_multiply": "*", "try_divide": "/"}


def _arithmetic(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`mod`, `pmod`, `div` and `try_...`: typed like their operators. A chain of `try_add` and the like, or over `+`,
    is left to Spark, which may reorder it."""
    first, second = arguments[0], arguments[1]
    operator = _OPERATORS.get(node.value)
    typed = "%" if operator == "PMOD" else operator or _TRIED[node.value]
    data_type, tree = None, None
    if all(is_integer(each.type) or is_float(each.type) for each in (first, second)):
        data_type = arithmetic_type(typed, first.type, second.type)
    if data_type is not None and first.local is not None and second.local is not None:
        tree = operations.arithmetic(operator or typed, first.local, second.local, data_type, analyser.scope.time_zone)
        is_chain = any(operations.is_sum(each.local) for each in (first, second))
        tree = tree if operator else None if is_chain else operations.quiet(tree)
    return analyser.make_value(node, data_type, tree)


def _extreme(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`greatest` or `least` in the common type of its arguments."""
    common = analyser.common_of(node, arguments)
    if common is None or common == NULL or not is_indexable(common):
        return None
    kinds = {each.type for each in arguments} - {NULL}
    if STRING in kinds and len(kinds) > 1:
        return None  # Spark casts no text here, and refuses the call
    zone = analyser.scope.time_zone
    trees = [None if each.local is None else operations.as_type(each.local, common, zone) for each in arguments]
    return analyser.make_value(node, common, folded(operations.operation(node.value, trees, common)))


def _round(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`round` or `bround` of a DECIMAL, whose type follows from the number of digits; None for other numbers."""
    kind, digits = arguments[0].type, arguments[1].local if len(arguments) > 1 else Constant(0, INT)
    if (
        kind is None
        or not is_decimal(kind)
        or not isinstance(digits, Constant)
        or type(digits.value) is not int
        or digits.value < 0
    ):
        return None
    scale = min(kind.scale, digits.value)
    precision = kind.precision - kind.scale + 1 + scale
    if precision > MAX_PRECISION or kind.precision == MAX_PRECISION:
        return None
    result, trees = pa.decimal128(precision, scale), [arguments[0].local, Constant(scale, INT)]
    return analyser.make_value(
        node, result, folded_call(f"{node.value}_decimal", trees, result, analyser.scope.time_zone)
    )


def _date_trunc(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`date_trunc(unit, time)` of a TIMESTAMP; Spark casts anything else to one."""
    time, zone = arguments[1], analyser.scope.time_zone
    kind = TIMESTAMP
    if time.type not in (TIMESTAMP, TIMESTAMP_NTZ, DATE) or time.collated:
        return None
    trees = [arguments[0].local, None if time.local is None else operations.as_type(time.local, TIMESTAMP, zone)]
    return analyser.make_value(node, kind, folded_call("date_trunc", trees, kind, analyser.scope.time_zone))


_PARSED = {
    "to_date": "parse_date",
    "try_to_date": "try_parse_date",
    **dict.fromkeys(("to_timestamp", "to_timestamp_ltz"), "parse_timestamp"),
    "try_to_timestamp": "try_parse_timestamp",
    "to_timestamp_ntz": "parse_timestamp_ntz",
}


def _spelled(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`to_date(text)`, which is a cast; `to_date(text, pattern)` and similar functions."""
    text, zone = arguments[0], analyser.scope.time_zone
    if text.type != STRING or text.collated:
        return None
    kind = DATE if node.value.endswith("date") else TIMESTAMP_NTZ if node.value.endswith("ntz") else TIMESTAMP
    if len(arguments) == 1:
        return analyser.cast(node, text, kind, node.value.startswith("try_"))
    trees = [each.local for each in arguments]
    return analyser.make_value(node, kind, folded_call(_PARSED[node.value], trees, kind, zone))


def _unix_timestamp(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`unix_timestamp(text, pattern)` with a pattern without fractions of seconds."""
    text, zone = arguments[0], analyser.scope.time_zone
    pattern = arguments[1].local if len(arguments) > 1 else Constant("yyyy-MM-dd HH:mm:ss", STRING)
    if text.type != STRING or text.collated or not isinstance(pattern, Constant) or "S" in str(pattern.value):
        return None
    time = folded_call("parse_timestamp", [text.local, pattern], TIMESTAMP, zone)
    return analyser.make_value(node, BIGINT, folded_call("unix_seconds", [time], BIGINT, zone))


_MICROS = {"MICROSECOND": 1, "MILLISECOND": 1_000, "SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000,
           "DAY": 86_400_000_000, "WEEK": 604_800_000_000}  # fmt: skip
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def _timestampadd(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`timestampadd(unit, count, time)` with a constant count: adds days and months by the local clock, shorter units
    to the instant."""
    unit, count, time = (each.local for each in arguments) if len(arguments) == 3 else (None,) * 3
    kind = arguments[-1].type
    if not (isinstance(unit, Constant) and isinstance(count, Constant) and kind in (TIMESTAMP, TIMESTAMP_NTZ)):
        return None
    if not is_integer(count.type) or count.value is None:
        return None
    word = str(unit.value).upper()
    name = "time_months_add" if word in _MONTHS else "time_add" if word in ("DAY", "WEEK") else "instant_add"
    length, count_type = count.value * (_MONTHS | _MICROS).get(word, 0), INT if word in _MONTHS else BIGINT
    if not 0 < abs(length) < 1 << (count_type.bit_width - 1):
        return None
    tree = folded_call(name, [time, Constant(length, count_type)], kind, analyser.scope.time_zone)
    return analyser.make_value(node, kind, tree)


def _concat_ws(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`concat_ws(separator, a, b)` with a constant separator. It joins the arguments that are not NULL."""
    separator, texts = arguments[0], [each for each in arguments[1:] if each.type != NULL]
    if not texts or not isinstance(separator.local, Constant) or not isinstance(separator.local.value, str):
        return None
    if any(not is_joined_as_text(each.type) or each.collated for each in texts):
        return None
    zone = analyser.scope.time_zone
    trees = [None if each.local is None else operations.as_type(each.local, STRING, zone) for each in texts]
    tree = operations.operation("concat_ws", trees, STRING, separator.local.value)
    return analyser.make_value(node, STRING, folded(tree))


def _is_nan(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`isnan(number)`, which is FALSE for NULL."""
    number = arguments[0]
    if number.type is None or not is_float(number.type) or isinstance(number.local, Constant):
        return None
    nan = Constant(math.nan, number.type)
    return analyser.make_value(node, BOOLEAN, operations.operation("<=>", [number.local, nan], BOOLEAN))


def _extract(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`extract(field FROM time)`: INT for whole fields of dates and times."""
    unit, time = arguments[0].local, arguments[1]
    named = unit.value if isinstance(unit, Constant) else None
    function = _FIELDS.get(named.lower()) if isinstance(named, str) else None
    if function is None or time.type is None or not (pa.types.is_timestamp(time.type) or pa.types.is_date(time.type)):
        return analyser.make_value(node, None)
    return analyser.make_value(node, INT, folded_call(function, [time.local], INT, analyser.scope.time_zone))


SPECIAL = {
    **ARRAY_CALLS,
    "if": _choice,
    "nvl2": _choice_of_null,
    **dict.fromkeys(("trim", "ltrim", "rtrim"), _trimmed),
    "coalesce": _coalesce,
    "ifnull": _coalesce,
    "nvl": _coalesce,
    "nullif": _nullif,
    "abs": _absolute,
    "negative": _negative,
    "positive": _positive,
    **dict.fromkeys(("nullifzero", "zeroifnull"), _beside_zero),
    "nanvl": _nan_replaced,
    "isnull": _is_null,
    "isnotnull": _is_null,
    "equal_null": _equal_null,
    "like": _matches,
    "ilike": _matches,
    "rlike": _matches,
    "regexp": _matches,
    "regexp_like": _matches,
    "mod": _arithmetic,
    "pmod": _arithmetic,
    "div": _arithmetic,
    "try_add": _arithmetic,
    "try_subtract": _arithmetic,
    "try_multiply": _arithmetic,
    "try_divide": _arithmetic,
    "try_mod": _arithmetic,
    "greatest": _extreme,
    "least": _extreme,
    **dict.fromkeys(("round", "bround"), _round),
    "date_trunc": _date_trunc,
    **dict.fromkeys(("date", "timestamp", *_PARSED), _spelled),
    **dict.fromkeys(("unix_timestamp", "to_unix_timestamp"), _unix_timestamp),
    "timestampadd": _timestampadd,
    "dateadd": _timestampadd,
    "concat_ws": _concat_ws,
    "isnan": _is_nan,
    "extract": _extract,
    "date_part": _extract,
    "datepart": _extract,
}
