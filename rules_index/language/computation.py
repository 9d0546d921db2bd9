"""The values of operators on numbers and strings. Raises `RuleError` if an operator does not accept the types."""

from __future__ import annotations

from rules_index.language import intervals, literals, operations
from rules_index.language.analysis import Analysis, Value
from rules_index.language.coercion import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    Type,
    arithmetic_type,
    is_decimal,
    is_integer,
    is_nested,
    is_number,
    literal_type,
    name_of,
)
from rules_index.language.constant_folding import folded_call
from rules_index.language.implicit_casts import in_text
from rules_index.language.nodes import Node
from rules_index.language.source_text import MAX_OPERATORS, too_deep
from rules_index.language.type_names import TIMESTAMP, TIMESTAMP_NTZ
from rules_index.language.typed import Constant, Expression

_OF_INTERVALS = {
    False: (("time_add", literals.MICROS, BIGINT), ("time_months_add", literals.MONTHS, INT)),
    True: (("date_add", literals.DAYS, INT), ("add_months", literals.MONTHS, INT)),
}
"""The functions that add an INTERVAL to timestamps (False) and dates (True), with the interval's units and the type of
the number that is added."""
_OF_DATES = {"+": "date_add", "-": "date_sub"}
"""The functions of `date + days` and `date - days`."""


def arithmetic(analysis: Analysis, node: Node) -> Value:
    """The value of a chain of operators of one precedence, such as `a + b - c` or `a || b`."""
    if len(node.value) > MAX_OPERATORS:
        raise too_deep(analysis.tokens, node)
    values = [analysis.value(child) for child in node.children]
    collated = any(value.collated for value in values)
    value = values[0]
    is_short = len(values) <= operations.MAX_CHAIN
    for operator, right in zip(node.value, values[1:], strict=True):
        value = _binary(analysis, node, operator, value, right, is_short)
    return Value(node, value.type, value.local, collated)


def _binary(analysis: Analysis, node: Node, operator: str, left: Value, right: Value, with_tree: bool) -> Value:
    """The value of `left operator right`; without a tree unless `with_tree`. `node` is the chain to which it
    belongs."""
    first, second = type_beside(left, right.type), type_beside(right, left.type)
    moved = _moved_time(analysis, operator, left, right)
    if moved is not None:
        return Value(node, left.type, moved)
    result = arithmetic_type(operator, first, second)
    for value in (left, right):
        if operator != "||" and (value.type == BOOLEAN or is_nested(value.type)):
            raise analysis.error("TYPE_MISMATCH", f"{operator} does not work with {name_of(value.type)}.", value.node)
    tree = None
    if with_tree and left.local is not None and right.local is not None and result is not None:
        tree = operations.arithmetic(operator, left.local, right.local, result, analysis.scope.time_zone)
        if operator == "||" and not left.collated and not right.collated:
            tree = _joined([in_text(each.local, analysis.scope.time_zone) for each in (left, right)], analysis)
        elif operator in _OF_DATES and result == DATE:
            tree = folded_call(_OF_DATES[operator], [left.local, right.local], DATE, analysis.scope.time_zone)
    return Value(node, result, tree)


def _joined(parts: list[Expression | None], analysis: Analysis) -> Expression | None:
    """Two texts joined to one, as a constant if both are constants; None if only Spark can evaluate one."""
    texts = [each.value for each in parts if isinstance(each, Constant)]
    if len(texts) == len(parts):
        return Constant(None if None in texts else "".join(texts), STRING)
    return folded_call("concat", parts, STRING, analysis.scope.time_zone)


def _moved_time(analysis: Analysis, operator: str, left: Value, right: Value) -> Expression | None:
    """A date or timestamp plus or minus an INTERVAL literal; None for anything else, and if only Spark can evaluate
    it."""
    sign, zone = {"+": 1, "-": -1}.get(operator), analysis.scope.time_zone
    if sign is None or left.type not in (TIMESTAMP, TIMESTAMP_NTZ, DATE):
        return None
    for name, units, kind in _OF_INTERVALS[left.type == DATE]:
        length = intervals.literal_length(analysis, right, units)
        if length is not None and abs(length) < 1 << (kind.bit_width - 1):
            return folded_call(name, [left.local, Constant(sign * length, kind)], left.type, zone)
    return None


def unary(analysis: Analysis, node: Node) -> Value:
    """The value of a number with a sign, or with its bits inverted."""
    value = analysis.value(node.children[0])
    if value.type == BOOLEAN or is_nested(value.type):
        raise analysis.error("TYPE_MISMATCH", f"{node.value} does not work with {name_of(value.type)}.", node)
    if value.type == STRING and node.value != "~":
        return Value(node, DOUBLE)
    if not is_number(value.type):
        return Value(node, None, None, value.collated)
    if node.value == "~":
        if not is_integer(value.type):
            return Value(node, None)
        return Value(node, value.type, folded_call("~", [value.local], value.type, analysis.scope.time_zone))
    if node.value == "+":
        return Value(node, value.type, value.local)
    return Value(node, value.type, None if value.local is None else operations.negated(value.local))


def type_beside(value: Value, other: Type) -> Type:
    """The type of a value in an operation with a value of type `other`: an integer literal beside a DECIMAL is a
    DECIMAL."""
    if is_decimal(other) and is_integer(value.type) and value.node.kind == "literal":
        return literal_type(value.node.value.value, value.type)
    return value.type
