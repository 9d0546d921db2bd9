"""Function calls: which functions are allowed, the types of their arguments and results."""

from __future__ import annotations

import pyarrow as pa

from rules_index.errors import RuleError
from rules_index.language.analysis import Analysis, Value
from rules_index.language.case_conversions import without_inner
from rules_index.language.coercion import (
    BIGINT,
    BINARY,
    INT,
    STRING,
    IncompatibleTypesError,
    Type,
    is_nested,
    name_of,
)
from rules_index.language.constant_folding import folded_call
from rules_index.language.function_signatures import (
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
from rules_index.language.implicit_casts import cast_arguments
from rules_index.language.nodes import Node
from rules_index.language.patterns import is_safe_in_java
from rules_index.language.results import item_type, result_type
from rules_index.language.special_calls import SPECIAL
from rules_index.language.typed import Constant
from rules_index.names import did_you_mean

_CASTS = frozenset(("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary"))
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
            "twice, and Spark's answers on the rows after such a row are wrong. Look up the key in each of its parts, "
            "as in coalesce(m['key'], n['key'])."
        )
        return RuleError("NOT_ALLOWED", message, position)
    if name in NOT_ALLOWED:
        return RuleError("NOT_ALLOWED", f"The function {name} is not among those that a rule may call.", position)
    hint = did_you_mean(name, FUNCTIONS)
    return RuleError("UNKNOWN_FUNCTION", f"There is no function {name} that a rule may call{hint}", position)


def call(analyser: Analysis, node: Node) -> Value:
    """The value of a call. Raises `RuleError` if the function or its arguments are refused."""
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
    _check_pattern(analyser, node, arguments)
    return _typed(analyser, node, function, arguments)


def _check_count(function: Function, count: int, position: int) -> None:
    if function.least <= count <= function.most:
        return
    bounds = str(function.least)
    if function.most > function.least:
        bounds += f" to {function.most}" if function.most < 100 else " or more"
    raise RuleError("TYPE_MISMATCH", f"{function.name} takes {bounds} arguments, not {count}.", position)


def _with_lambdas(analyser: Analysis, node: Node) -> list[Value]:
    """The values of a call's arguments; the value of a lambda is that of its body."""
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
    """The type of an accumulator, given its start value; None for a STRUCT, whose type only Spark knows.

    All its values must have the same size, since a string could double with every item; else raises `NOT_ALLOWED`.
    """
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
    """Refuses an index into an array that may be the least INT: Spark 4.2 would then read outside of the array."""
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
            f"{node.value} needs a constant place here, because Spark 4.2 fails on the place -2147483648. "
            "Write array[place] or get(array, place) instead, which count from 0, or cast the place to SMALLINT.",
            place.node,
        )


def _check_keys(analyser: Analysis, node: Node, arguments: list[Value]) -> None:
    """Refuses keys with which `map` could raise: Spark would keep the entries that it has read, and add them to the
    next map."""
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


def _check_pattern(analyser: Analysis, node: Node, arguments: list[Value]) -> None:
    """Refuses a regular expression that Spark itself matches if it is not constant, or could stall a job."""
    name: str = node.value
    index = PATTERN_ARGUMENT.get(name)
    if index is None or index >= len(arguments):
        return
    pattern = analyser.pattern(node.children[index])
    if pattern is None:
        return
    analyser.refuse_rlike(pattern, node.children[index])
    if not is_safe_in_java(pattern):
        raise analyser.error(
            "PATTERN",
            f"Matching this pattern in {name} could take very long on some values; simplify its repetitions.",
            node.children[index],
        )


def _typed(analyser: Analysis, node: Node, function: Function, arguments: list[Value]) -> Value:
    """The call's type and, if it can be evaluated without Spark, its tree."""
    name = function.name
    special = SPECIAL.get(name)
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
    zone = analyser.scope.time_zone
    tree = folded_call(name, trees, data_type, zone)
    if tree is None:
        tree = folded_call(name, cast_arguments(name, trees, zone), data_type, zone)
    value = analyser.make_value(node, data_type, tree)
    from_bytes = data_type == STRING and name not in _OF_BYTES and any(each.type == BINARY for each in arguments)
    value.collated = from_bytes or any(argument.collated for argument in arguments)
    return value
