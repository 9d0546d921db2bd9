"""The result of analysing a node, and the interface of the analyser that the analysis of calls and costs uses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from rules_index.errors import RuleError
from rules_index.language.coercion import BOOLEAN, NULL, STRING, Type
from rules_index.language.nodes import Node
from rules_index.language.scope import Scope
from rules_index.language.tokens import Tokens
from rules_index.language.typed import Expression

CONDITION_TYPES: tuple[Type, ...] = (BOOLEAN, NULL, STRING)
"""The types of an operand of AND, OR and NOT. Spark casts a STRING there, but not as a condition of CASE or IF."""


@dataclass(slots=True)
class Value:
    """The result for a node: its type, and its tree if it can be evaluated without Spark.

    `type` is None if only Spark knows it. `collated` says that only Spark can compare it: its strings may have a
    collation other than the binary one, or may be bytes that are not valid UTF-8.
    """

    node: Node
    type: Type
    local: Expression | None = None
    collated: bool = False


def evaluated_once(value: Value) -> Value:
    """The same value, no longer seen as a literal: Spark evaluates it once for several comparisons, in which its
    analyser then sees no literal."""
    if value.node.kind != "literal":
        return value
    return replace(value, node=Node("shared", None, [], value.node.first, value.node.last))


class Analysis(Protocol):
    """The analysis of one rule, implemented by `rules_index.language.analyser.Analyser`.

    `variables` are the types of the variables of the lambdas around a node, the innermost last. All methods raise
    `RuleError` if a node is refused.
    """

    tokens: Tokens
    scope: Scope
    variables: list[dict[str, Type]]

    def value(self, node: Node) -> Value:
        """The typed value of a node."""

    def attribute(self, value: Value) -> Expression | None:
        """The expression that the index encodes for a value, if necessary a derived column; None if Spark must compare
        the value."""

    def make_value(self, node: Node, data_type: Type, tree: Expression | None = None, collated: bool = False) -> Value:
        """A value of this type. It has no tree inside a lambda, and without a tree only Spark can evaluate it."""

    def error(self, code: str, message: str, node: Node) -> RuleError:
        """The error for a node, at its position in the text."""

    def body(self, node: Node, types: list[Type]) -> Value:
        """The value of a lambda's body, with parameters of these types."""

    def over(self, scope: Scope) -> Analysis:
        """An analyser of the same text over another scope."""

    def truth(self, node: Node, kinds: tuple[Type, ...] = CONDITION_TYPES) -> Expression | None:
        """The tree of a condition, whose type must be among `kinds`; None if only Spark can evaluate it."""

    def comparison(self, node: Node, operator: str, left: Node, right: Node) -> Value:
        """A comparison of two nodes."""

    def compared(self, node: Node, operator: str, first: Value, second: Value) -> Value:
        """A comparison of two values."""

    def common_of(self, node: Node, values: list[Value]) -> Type:
        """The common type of a list of values; None if only Spark can compare them."""

    def pattern(self, node: Node) -> str | None:
        """The text of a pattern; None for NULL. Raises `PATTERN` if the pattern is not constant."""

    def refuse_rlike(self, pattern: str, node: Node) -> None:
        """Raises `RuleError` for a regular expression that Java refuses, or that can take too long."""

    def cast(self, node: Node, value: Value, target: Type, quiet: bool = False) -> Value:
        """A value cast to a type."""

    def choice(self, node: Node, conditions: list[Expression | None], results: list[Value]) -> Value:
        """The value of CASE, IF or NVL2: the result of the first condition that is TRUE, else the last result."""
