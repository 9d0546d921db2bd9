"""What may stand beside what in AND and OR."""

from __future__ import annotations

from rules_index.language.analysis import Analysis
from rules_index.language.coercion import NULL, STRING
from rules_index.language.nodes import Node

CONDITIONS = frozenset(("and", "or", "not", "compare", "distinct", "between", "in", "in_list", "like", "rlike", "is"))
"""Kinds of nodes that are BOOLEAN, whatever they are made of."""


def may_be_texts(analyser: Analysis, first: Node, second: Node) -> bool:
    """Whether only Spark knows if two operands beside each other are both STRING: it casts one beside a condition.

    Raises `RuleError` where they are known to be STRING, or one is and the other NULL.
    """
    if first.kind in CONDITIONS or second.kind in CONDITIONS:
        return False
    types = (analyser.value(first).type, analyser.value(second).type)
    if None in types:
        return all(each in (None, STRING, NULL) for each in types)
    if types in ((STRING, STRING), (STRING, NULL), (NULL, STRING)):
        raise analyser.error("NOT_BOOLEAN", "A condition is needed here, and this is STRING.", first)
    return False
