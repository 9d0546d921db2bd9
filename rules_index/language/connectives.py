"""Whether the operands of AND and OR may stand beside each other."""

from __future__ import annotations

from rules_index.language.analysis import Analysis
from rules_index.language.coercion import NULL, STRING
from rules_index.language.nodes import Node

CONDITIONS = frozenset(("and", "or", "not", "compare", "distinct", "between", "in", "in_list", "like", "rlike", "is"))
"""Kinds of nodes that are always BOOLEAN."""


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
