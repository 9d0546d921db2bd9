"""The nodes of a parsed rule; each knows the tokens that it was read from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rules_index.errors import RuleError
from rules_index.language.tokens import Tokens

MAX_VALUE_DEPTH = 100
"""The deepest nesting of value expressions (calls, arithmetic, CASE, ...)."""

MAX_BOOLEAN_DEPTH = 200
"""The deepest nesting of AND, OR and NOT."""

STEPS_OF_NODE, STEPS_OF_LEAF, STEPS_OF_LITERAL = 4, 2, 1
"""Steps of work for a node from parsing to its formula: with children, without children, and as a literal in a list."""

_BOOLEAN = frozenset(("and", "or", "not"))


class Node:
    """One construct of the grammar.

    | kind | value | children |
    |---|---|---|
    | literal | typed.Constant | |
    | opaque | type of a literal that has no Constant (INTERVAL, TIME, ...), None if only Spark knows it | |
    | column | parts of the name | |
    | and or | the pairs of adjacent operands that are not an AND or OR of the same kind | operands, two or more |
    | not | | operand |
    | beside | `and` or `or` | two of its operands, which Spark evaluates together (`connectives.operands`) |
    | compare | = <> < <= > >= <=> | left, right |
    | between | negated | value, low, high |
    | in | negated | value, list ... |
    | in_list | negated, name of a list | value |
    | like | (LIKE or ILIKE, negated, ANY or ALL or None, escape) | value, patterns ... |
    | rlike | negated | value, pattern |
    | is | (NULL, TRUE, FALSE or UNKNOWN; negated) | value |
    | distinct | negated (that is IS NOT DISTINCT FROM) | left, right |
    | arithmetic | operators, one fewer than operands | operands, all of one precedence |
    | unary | - + ~ | operand |
    | cast | (type, None if Arrow does not have it; True for TRY_CAST) | operand |
    | collate | | operand |
    | case | True if an operand follows CASE | [operand], condition, value, ..., [else] |
    | call | lower-case name | arguments |
    | lambda | parameter names | body |
    | field | name | base |
    | subscript | | base, index |
    | row | field names, None for the default | values |

    `first` and `last` are the numbers of the node's first and last token, without brackets around the node; `depth` is
    the number of levels.
    """

    __slots__ = ("children", "depth", "first", "kind", "last", "value")

    def __init__(self, kind: str, value: Any, children: list[Node], first: int, last: int) -> None:
        self.kind = kind
        self.value = value
        self.children = children
        self.first = first
        self.last = last
        self.depth = 0

    def __repr__(self) -> str:
        parts = [repr(self.value)] if self.value is not None else []
        return f"{self.kind}({', '.join(parts + [repr(child) for child in self.children])})"


def make(tokens: Tokens, kind: str, value: Any, children: list[Node], first: int, last: int) -> Node:
    """A node over children, with its depth set and its work counted. Raises `TOO_DEEP` if the nesting exceeds the
    limit."""
    node = Node(kind, value, children, first, last)
    depth = 1
    for child in children:
        if child.depth >= depth:
            depth = child.depth + 1
    tokens.work.spend(STEPS_OF_NODE, tokens.starts[first])
    return checked(tokens, node, depth)


def checked(tokens: Tokens, node: Node, depth: int) -> Node:
    """Sets a node's depth and returns the node. Raises `TOO_DEEP` if the depth exceeds the limit."""
    node.depth = depth
    kind, first = node.kind, node.first
    if depth > MAX_VALUE_DEPTH and (depth > MAX_BOOLEAN_DEPTH or kind not in _BOOLEAN):
        raise too_deep(tokens, first)
    return node


def inside(node: Node) -> Iterator[Node]:
    """A node and all its descendants, in the order of the text."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.children)


def words_of(tokens: Tokens, node: Node) -> str:
    """A node as its author wrote it, without brackets around it."""
    return tokens.text[tokens.starts[node.first] : tokens.ends[node.last]]


def too_deep(tokens: Tokens, first: int) -> RuleError:
    """The error for nesting beyond the limits."""
    return RuleError(
        "TOO_DEEP",
        f"The expression is nested too deeply here: at most {MAX_VALUE_DEPTH} levels of values and "
        f"{MAX_BOOLEAN_DEPTH} of AND, OR and NOT. Flatten it, or split it into several rules.",
        tokens.starts[first],
    )


def is_never_null(node: Node) -> bool:
    """Whether Spark knows from the text alone that a condition is not NULL.

    A NULL test of such a condition is decided without evaluating it, so it cannot raise an error.
    """
    if node.kind in ("and", "or", "not"):
        return all(map(is_never_null, node.children))
    if node.kind == "call":
        return node.value in ("isnull", "isnotnull", "isnan", "equal_null")
    return node.kind in ("is", "distinct") or (node.kind == "compare" and node.value == "<=>")
