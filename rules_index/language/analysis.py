"""What a node of a rule is found to be, and what the analysis of calls and costs asks of the analyser."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from rules_index.errors import RuleError
from rules_index.language.coercion import Type
from rules_index.language.nodes import Node
from rules_index.language.scope import Scope
from rules_index.language.tokens import Tokens
from rules_index.language.typed import Expression


@dataclass(slots=True)
class Value:
    """What a node is: its type, and its tree where it can be evaluated without Spark.

    `type` is None where only Spark knows it. `collated` says that only Spark may compare it: its strings may
    have a collation other than the binary one, or may be bytes that are no proper UTF-8.
    """

    node: Node
    type: Type
    local: Expression | None = None
    collated: bool = False


def evaluated_once(value: Value) -> Value:
    """A value that Spark evaluates once for several comparisons, so that its analyser sees no literal there."""
    if value.node.kind != "literal":
        return value
    return replace(value, node=Node("shared", None, [], value.node.first, value.node.last))


class Analysis(Protocol):
    """The analysis of one rule; `rules_index.language.analyser.Analyser` carries it out.

    `variables` are the types of the variables of the lambdas around a node, the innermost last. Each of the functions
    raises `RuleError` where a node is refused.
    """

    tokens: Tokens
    scope: Scope
    variables: list[dict[str, Type]]

    def value(self, node: Node) -> Value:
        """The typed value of a node."""

    def attribute(self, value: Value) -> Expression | None:
        """The expression whose values the index may code for a value; None where Spark must compare it."""

    def make_value(self, node: Node, data_type: Type, tree: Expression | None = None, collated: bool = False) -> Value:
        """A value of this type; without a tree outside of Spark's reach, or inside a lambda."""

    def error(self, code: str, message: str, node: Node) -> RuleError:
        """The error for a node, at its position in the text."""

    def body(self, node: Node, types: list[Type]) -> Value:
        """The value of a lambda's body for arguments of these types."""

    def truth(self, node: Node) -> Expression | None:
        """The tree of a condition; None where only Spark can evaluate it."""

    def comparison(self, node: Node, operator: str, left: Node, right: Node) -> Value:
        """A comparison of two nodes."""

    def compared(self, node: Node, operator: str, first: Value, second: Value) -> Value:
        """A comparison of two values."""

    def common_of(self, node: Node, values: list[Value]) -> Type:
        """The type to which all values are brought."""

    def pattern(self, node: Node) -> str | None:
        """The pattern that a node is; None where it is no constant."""

    def check_rlike(self, pattern: str, node: Node) -> None:
        """Refuses a pattern that Java refuses, or that may take too long."""

    def cast(self, node: Node, value: Value, target: Type, quiet: bool = False) -> Value:
        """A value cast to a type."""

    def choice(self, node: Node, conditions: list[Expression | None], results: list[Value]) -> Value:
        """The value of CASE, IF and COALESCE: the result behind the first condition that is TRUE, else the last."""
