"""Case conversions that Spark's optimiser removes: of `lower(upper(x))` it evaluates only the outer one.

That changes results: `lower(upper('ß'))` should be 'ss', and is 'ß'. ILIKE compares in lower case, so that in `upper(x)
ILIKE 'a%'` the conversion is removed, too.
"""

from __future__ import annotations

from rules_index.language.nodes import Node
from rules_index.language.typed import Expression, Operation

_CONVERSIONS = ("upper", "ucase", "lower", "lcase")


def without_inner(name: str, arguments: list[Expression | None]) -> list[Expression | None]:
    """A function's arguments. If the function converts case, each argument that is a case conversion is replaced by its
    operand."""
    return [_unconverted(each) for each in arguments] if name in _CONVERSIONS else arguments


def _unconverted(tree: Expression | None) -> Expression | None:
    if isinstance(tree, Operation) and tree.name == "call" and tree.parameters[0] in _CONVERSIONS:
        return tree.operands[0]
    return tree


def in_any_case(node: Node) -> Node:
    """The operand that ILIKE compares: a node without the case conversions around it."""
    while node.kind == "call" and node.value in _CONVERSIONS and len(node.children) == 1:
        node = node.children[0]
    return node
