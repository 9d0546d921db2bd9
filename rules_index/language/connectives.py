"""AND and OR: whether their operands may stand beside each other, and their value as a part of an expression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rules_index.language import operations
from rules_index.language.analysis import Analysis
from rules_index.language.coercion import BOOLEAN, NULL, STRING
from rules_index.language.nodes import Node
from rules_index.language.typed import Constant, Expression, Operation, has_null, may_be_constant, operations_of

CONDITIONS = frozenset(("and", "or", "not", "compare", "distinct", "between", "in", "in_list", "like", "rlike", "is"))
"""Kinds of nodes that are always BOOLEAN."""
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def may_be_texts(analyser: Analysis, first: Node, second: Node) -> bool:
    """Whether two adjacent operands may both be STRING, which only Spark knows. Spark casts a STRING only beside a
    condition.

    Raises `RuleError` if both are known to be STRING, or one is and the other is NULL.
    """
    if first.kind in CONDITIONS or second.kind in CONDITIONS:
        return False
    types = (analyser.value(first).type, analyser.value(second).type)
    if None in types:
        return all(each in (None, STRING, NULL) for each in types)
    if types in ((STRING, STRING), (STRING, NULL), (NULL, STRING)):
        raise analyser.error("NOT_BOOLEAN", "A condition is needed here, and this is STRING.", first)
    return False


def operands(analyser: Analysis, node: Node) -> list[Node]:
    """The operands of an AND or OR. Two adjacent ones that may both be STRING become a single node, of kind `beside`,
    with the value that the connective has for these two."""
    pairs = {id(pair[0]): pair for pair in node.value if may_be_texts(analyser, *pair)}
    seconds = {id(second) for _, second in pairs.values()}
    found = []
    for child in node.children:
        pair = pairs.get(id(child))
        if pair is not None:
            found.append(Node("beside", node.kind, [*pair], pair[0].first, pair[1].last))
        elif id(child) not in seconds:
            found.append(child)
    return found


def combined(name: str, operands: Sequence[Expression | None]) -> Expression | None:
    """The AND or OR of some operands, or NOT of one; None if only Spark can evaluate it.

    Spark's optimiser may know the result without an operand that can raise, and then does not evaluate it. If one
    operand is a constant that decides the result, as TRUE does in an OR, the result is that constant. In all other such
    cases it is left to Spark.
    """
    tree = operations.operation(name, list(operands), BOOLEAN)
    if not isinstance(tree, Operation):
        return tree
    if name == "not":
        return _without_not(tree) if isinstance(tree.operands[0], Constant) else tree
    decisive = Constant(name == "or", BOOLEAN)
    if decisive in tree.operands and all(each.name != "raise" for each in operations_of(tree)):
        return decisive
    if not any(map(operations.can_raise, tree.operands)):
        return tree
    return None if any(map(_is_constant, tree.operands)) or _repeats_operands(tree) else tree


def _is_constant(tree: Expression) -> bool:
    """Whether Spark may know a condition that cannot raise, though it is not written as a constant."""
    if not isinstance(tree, Operation) or operations.can_raise(tree):
        return False
    return may_be_constant(tree) or _names_null(tree)


def _names_null(tree: Expression) -> bool:
    """Whether a condition is or compares with NULL, or is made of one that does. Where NULL is as good as FALSE, as in
    CASE WHEN, Spark takes `NULL`, `a <> NULL` and `a NOT IN (1, NULL)` for FALSE."""
    if not isinstance(tree, Operation):
        return has_null([tree])
    if tree.name in ("and", "or", "not"):
        return any(map(_names_null, tree.operands))
    return (tree.name == "in" or tree.name in _OPPOSITE) and has_null(tree.operands)


def _repeats_operands(tree: Operation) -> bool:
    """Whether an operand is the negation of another; or whether an operand or its negation also occurs in an operand of
    the other kind, as in `(a OR b) AND a`, which becomes `a`."""
    inverse = "or" if tree.name == "and" else "and"
    seen: set[Expression] = set()
    for each in tree.operands:
        parts = each.operands if isinstance(each, Operation) and each.name == inverse else ()
        both = {_without_not(part) for part in parts} | {_negation(part) for part in parts}
        if not seen.isdisjoint(both):
            return True
        seen |= both
    single = {_without_not(each) for each in tree.operands}
    return not seen.isdisjoint(single) or any(_negation(each) in single for each in single)


def _without_not(tree: Expression) -> Expression:
    """A condition without a NOT that its comparison can express."""
    return _negation(tree.operands[0]) if isinstance(tree, Operation) and tree.name == "not" else tree


def _negation(tree: Expression) -> Expression:
    """The negation of a condition, as the opposite comparison if it is a comparison."""
    if isinstance(tree, Constant):
        return Constant(None if tree.value is None else not tree.value, BOOLEAN)
    if isinstance(tree, Operation) and tree.name == "not":
        return _without_not(tree.operands[0])
    if isinstance(tree, Operation) and tree.name in _OPPOSITE:
        return replace(tree, name=_OPPOSITE[tree.name])
    return Operation("not", (tree,), BOOLEAN)
