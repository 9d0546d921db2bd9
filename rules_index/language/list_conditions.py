"""`x [NOT] IN LIST('name')`: whether a value is in a value list (`domains/value_lists.py`).

It is NULL where x is NULL, else TRUE or FALSE: a list has no NULL. Spark does not know such lists, so the condition can
only be an operand of AND, OR and NOT, or part of what is evaluated without Spark.
"""

from __future__ import annotations

from rules_index.domains.list_names import NAMED
from rules_index.errors import RuleError
from rules_index.language import operations
from rules_index.language.analysis import Analysis, Value
from rules_index.language.coercion import BOOLEAN, NULL, is_float, is_integer, name_of
from rules_index.language.cursor import Cursor
from rules_index.language.nodes import Node, inside, make
from rules_index.language.typed import Constant, Operation


def in_list(cursor: Cursor, left: Node, negated: bool, first: int) -> Node:
    """Reads `LIST('name')` behind IN; the cursor is at the word LIST. Raises `RuleError` if no name follows it."""
    tokens, at = cursor.tokens, cursor.at
    found = NAMED.match(tokens.text, tokens.starts[at])
    if found is None:
        message = "Name a list of values as IN LIST('name'), with letters, digits, points, - and _ in its name."
        raise RuleError("SYNTAX", message, tokens.starts[at])
    while tokens.ends[cursor.at] < found.end():
        cursor.at += 1
    cursor.at += 1
    tokens.names_lists = True
    return make(tokens, "in_list", (negated, found[1] or found[2]), [left], first, cursor.at - 1)


def in_list_value(analyser: Analysis, node: Node) -> Value:
    """The value of `x IN LIST('name')`. Raises `RuleError` for an unknown list, or one of another type."""
    negated, name = node.value
    wanted = analyser.scope.value_list(name, analyser.tokens.starts[node.last - 3])
    value = analyser.value(node.children[0])
    if value.type == NULL:
        return Value(node, BOOLEAN, Constant(None, BOOLEAN))
    same = value.type == wanted.type or (is_integer(value.type) and is_integer(wanted.type))
    if not same and not (is_float(value.type) and is_float(wanted.type)):
        shown = "of a type that only Spark knows" if value.type is None else name_of(value.type)
        message = (
            f"The list {name} holds {name_of(wanted.type)}, and this is {shown}; cast it to {name_of(wanted.type)}."
        )
        raise analyser.error("TYPE_MISMATCH", message, node.children[0])
    attribute = analyser.attribute(value)
    if attribute is None:
        message = "Only Spark can compare this value, and it knows no lists: in a lambda or with a collation write IN."
        raise analyser.error("NOT_ALLOWED", message, node.children[0])
    operand = operations.as_type(attribute, wanted.type, analyser.scope.time_zone)
    assert operand is not None
    tree = Operation("in_list", (operand,), BOOLEAN, (wanted,))
    return Value(node, BOOLEAN, Operation("not", (tree,), BOOLEAN) if negated else tree)


def refuse_lists(analyser: Analysis, node: Node) -> None:
    """Raises `NOT_ALLOWED` if a part of a rule that Spark has to evaluate names a list."""
    for each in inside(node):
        if each.kind == "in_list":
            raise analyser.error(
                "NOT_ALLOWED",
                "Only Spark can evaluate what is around this, and it knows no lists: write IN LIST(...) as a "
                "condition of its own, joined by AND, OR and NOT.",
                each,
            )
