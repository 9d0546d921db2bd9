"""Function calls: which functions are allowed, the types of their arguments and results."""

from __future__ import annotations

import difflib
from typing import Any

import pyarrow as pa

from rules_index.errors import RuleError
from rules_index.language import operations
from rules_index.language.analysis import Analysis, Value, evaluated_once
from rules_index.language.case_conversions import without_inner
from rules_index.language.coercion import (
    BIGINT,
    BINARY,
    BOOLEAN,
    INT,
    NULL,
    STRING,
    IncompatibleTypesError,
    Type,
    arithmetic_type,
    is_float,
    is_integer,
    is_nested,
    is_number,
    name_of,
)
from rules_index.language.evaluation import functions
from rules_index.language.functions import (
    AGGREGATES,
    FUNCTIONS,
    LAMBDAS,
    MAKE_MAPS,
    NOT_ALLOWED,
    NOT_REPEATABLE,
    PATTERN_ARGUMENT,
    TABLES,
    WINDOWS,
    Function,
)
from rules_index.language.nodes import Node
from rules_index.language.patterns import is_safe_in_java
from rules_index.language.results import item_type, result_type
from rules_index.language.tokens import words
from rules_index.language.typed import Constant

_CASTS = frozenset(("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary"))
_DATE_PARTS = words("""
    year y years yr yrs yearofweek quarter qtr month mon mons months week w weeks day d days dayofweek dow
    dayofweek_iso dow_iso doy hour h hours hr hrs minute m min mins minutes""")
_OF_BYTES = frozenset(("base64", "hex", "md5", "sha", "sha1", "sha2", "decode", "typeof", "quote"))
"""Functions of bytes that always return valid UTF-8."""


def not_repeatable(name: str, position: int) -> RuleError:
    """The error for a function that returns a different value each time."""
    return RuleError(
        "NOT_REPEATABLE",
        f"{name} does not give the same value for the same row every time; a rule may use only a row's own columns "
        "and constants.",
        position,
    )


def refusal(name: str, position: int) -> RuleError:
    """The error for a function that is not on the list of allowed ones."""
    if name in AGGREGATES:
        return RuleError(
            "AGGREGATE", f"A rule looks at one row at a time: the aggregate {name} is not allowed.", position
        )
    if name in WINDOWS:
        return RuleError(
            "WINDOW", f"A rule looks at one row at a time: the window function {name} is not allowed.", position
        )
    if name in TABLES:
        return RuleError("TABLE_FUNCTION", f"{name} makes rows or tables; a rule needs one value per row.", position)
    if name in NOT_REPEATABLE:
        return not_repeatable(name, position)
    if name in MAKE_MAPS:
        message = (
            f"{name} is not among the functions that a rule may call: it raises an error where a key is NULL or comes "
            "twice, and Spark's answers on the rows after such a one are wrong. Look up the key in each of its parts, "
            "as in coalesce(m['key'], n['key'])."
        )
        return RuleError("NOT_ALLOWED", message, position)
    if name in NOT_ALLOWED:
        return RuleError("NOT_ALLOWED", f"The function {name} is not among those that a rule may call.", position)
    close = difflib.get_close_matches(name, FUNCTIONS, n=1, cutoff=0.6)
    hint = f"; did you mean {close[0]}?" if close else "."
    return RuleError("UNKNOWN_FUNCTION", f"There is no function {name} that a rule may call{hint}", position)


def call(analyser: Analysis, node: Node) -> Value:
    """The value of a call. Raises `RuleError` where the function or its arguments are refused."""
    name: str = node.value
    function = FUNCTIONS.get(name)
    position = analyser.tokens.starts[node.first]
    if function is None:
        raise refusal(name, position)
    count = len(node.children)
    if count == 0 and name in ("unix_timestamp", "to_unix_timestamp"):
        raise not_repeatable(f"{name}()", position)
    _check_count(function, count, position)
    arguments = _with_lambdas(analyser, node) if name in LAMBDAS else [analyser.value(child) for child in node.children]
    _check_place(analyser, node, arguments)
    _check_keys(analyser, node, arguments)
    _check_patterns(analyser, node, arguments)
    return _typed(analyser, node, function, arguments)


def _check_count(function: Function, count: int, position: int) -> None:
    if function.least <= count <= function.most:
        return
    bounds = str(function.least)
    if function.most > function.least:
        bounds += f" to {function.most}" if function.most < 100 else " or more"
    raise RuleError("TYPE_MISMATCH", f"{function.name} takes {bounds} arguments, not {count}.", position)


def _with_lambdas(analyser: Analysis, node: Node) -> list[Value]:
    """The values of arguments; that of a lambda is the value of its body."""
    name: str = node.value
    arguments: list[Value] = []
    for index, child in enumerate(node.children):
        if index not in LAMBDAS[name]:
            arguments.append(analyser.value(child))
            continue
        if child.kind != "lambda":
            raise analyser.error("TYPE_MISMATCH", f"{name} needs a lambda here, like x -> x > 1.", child)
        item = item_type(arguments[0].type)
        if name in ("aggregate", "reduce"):
            start = _accumulator(analyser, arguments[1])
            arguments.append(analyser.body(child, [start, item] if index == 2 else [start]))
        else:
            arguments.append(analyser.body(child, [item, INT]))
    return arguments


def _accumulator(analyser: Analysis, start: Value) -> Type:
    """The type of an accumulator, whose values must all have the same size: a string could double with every item."""
    data_type = start.type
    if data_type is None and start.node.kind == "call" and start.node.value in ("named_struct", "struct"):
        parts = [analyser.value(child).type for child in start.node.children]
        if start.node.value == "named_struct":
            parts = parts[1::2]
        if all(_has_one_size(part) for part in parts):
            return None
    if _has_one_size(data_type):
        return data_type
    raise analyser.error(
        "NOT_ALLOWED",
        "The start of an aggregate must be a number, a BOOLEAN, a date or time, or a struct of these: texts and arrays "
        "could grow with every item.",
        start.node,
    )


def _has_one_size(data_type: Type) -> bool:
    return data_type is not None and not is_nested(data_type) and data_type not in (STRING, pa.binary())


def _check_place(analyser: Analysis, node: Node, arguments: list[Value]) -> None:
    """Refuses the least INT as an index into an array: Spark 4.2 then reads outside of the array."""
    if node.value not in ("element_at", "try_element_at"):
        return
    container, place = arguments[0].type, arguments[1]
    if container is not None and pa.types.is_map(container):
        return
    if isinstance(place.local, Constant) and (place.local.value is None or place.local.value != -(1 << 31)):
        return
    if place.type is None or place.type in (INT, BIGINT):
        raise analyser.error(
            "NOT_ALLOWED",
            f"{node.value} needs a constant place here, because Spark 4.2 breaks down on the place -2147483648. "
            "Write array[place] or get(array, place) instead, which count from 0, or cast the place to SMALLINT.",
            place.node,
        )


def _check_keys(analyser: Analysis, node: Node, arguments: list[Value]) -> None:
    """Refuses keys with which `map` could raise: Spark would keep the entries it has, and add them to the next map."""
    if node.value != "map" or len(arguments) <= 2:
        return
    keys = [each.local for each in arguments[::2]]
    values = [each.value for each in keys if isinstance(each, Constant) and each.value is not None]
    if analyser.variables or len(values) < len(keys) or len(set(values)) < len(values):
        raise analyser.error(
            "NOT_ALLOWED",
            "A map of several entries needs different constants as its keys, outside of lambdas: Spark's answers on "
            "the rows after one where a key is NULL or comes twice are wrong.",
            node,
        )


def _check_patterns(analyser: Analysis, node: Node, arguments: list[Value]) -> None:
    """Requires regular expressions that Spark itself matches to be constants that cannot stall a job."""
    name: str = node.value
    indexes = (PATTERN_ARGUMENT[name],) if name in PATTERN_ARGUMENT else ()
    for index in indexes:
        if index >= len(arguments):
            continue
        pattern = analyser.pattern(node.children[index])
        if pattern is None:
            continue
        analyser.check_rlike(pattern, node.children[index])
        if not is_safe_in_java(pattern):
            raise analyser.error(
                "PATTERN",
                f"Matching this pattern in {name} could take very long on some values; simplify its repetitions.",
                node.children[index],
            )


def _typed(analyser: Analysis, node: Node, function: Function, arguments: list[Value]) -> Value:
    """The call's type and, where it can be evaluated without Spark, its tree."""
    name = function.name
    special = _SPECIAL.get(name)
    if special is not None:
        found = special(analyser, node, arguments)
        if found is not None:
            return found
    if name in _CASTS:
        return analyser.cast(node, arguments[0], result_type(function, [arguments[0].type]))
    try:
        data_type = result_type(function, [argument.type for argument in arguments])
    except IncompatibleTypesError:
        shown = ", ".join(sorted({name_of(argument.type) for argument in arguments}))
        raise analyser.error("TYPE_MISMATCH", f"The arguments of {name} have no common type: {shown}.", node) from None
    trees = without_inner(name, [None if argument.collated else argument.local for argument in arguments])
    value = analyser.make_value(node, data_type, functions.build(name, trees, data_type, analyser.scope.time_zone))
    from_bytes = data_type == STRING and name not in _OF_BYTES and any(each.type == BINARY for each in arguments)
    value.collated = from_bytes or any(argument.collated for argument in arguments)
    return value


def _choice(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`if(condition, a, b)`."""
    return analyser.choice(node, [analyser.truth(node.children[0])], arguments[1:])


def _coalesce(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
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
    if not is_number(first.type) or isinstance(first.local, Constant):
        return None
    return analyser.make_value(node, first.type, operations.operation("abs", [first.local], first.type))


def _negative(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    first = arguments[0]
    if not is_number(first.type) or first.local is None:
        return None
    return analyser.make_value(node, first.type, operations.negated(first.local))


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


def _arithmetic(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`mod`, `pmod`, `div` and `try_...`, which have the types of their operators."""
    operators = {"mod": "%", "div": "DIV", "try_add": "+", "try_subtract": "-", "try_multiply": "*", "try_divide": "/"}
    first, second = arguments[0].type, arguments[1].type
    data_type = None
    if (is_integer(first) or is_float(first)) and (is_integer(second) or is_float(second)):
        data_type = arithmetic_type(operators.get(node.value, "%"), first, second)
    return analyser.make_value(node, data_type)


def _extract(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`extract(field FROM time)`: INT for whole fields of dates and times."""
    tree, source = arguments[0].local, arguments[1].type
    whole = isinstance(tree, Constant) and isinstance(tree.value, str) and tree.value.lower() in _DATE_PARTS
    from_time = source is not None and (pa.types.is_timestamp(source) or pa.types.is_date(source))
    return analyser.make_value(node, INT if whole and from_time else None)


_SPECIAL = {
    "if": _choice,
    "coalesce": _coalesce,
    "ifnull": _coalesce,
    "nvl": _coalesce,
    "nullif": _nullif,
    "abs": _absolute,
    "negative": _negative,
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
    "extract": _extract,
    "date_part": _extract,
    "datepart": _extract,
}
