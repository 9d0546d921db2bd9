"""Compiles the text of a rule to its formula."""

from __future__ import annotations

from collections.abc import Hashable

from rules_index.language.analyser import Analyser
from rules_index.language.build_formula import Splitter
from rules_index.language.connectives import CONDITIONS
from rules_index.language.formula import Formula
from rules_index.language.parser import parse
from rules_index.language.scope import Scope


class Compiler:
    """Compiles the rules of one scope, and caches comparisons that rules have in common."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._known: dict[Hashable, Formula] = {}

    def compile(self, text: str) -> Formula:
        """The formula of one rule. Raises `RuleError` if it is refused."""
        node, tokens = parse(text, self.scope.time_zone)
        return Splitter(Analyser(tokens, self.scope), self._known).rule(node)

    def compile_clause(self, text: str) -> Formula | None:
        """The formula of a text between two connectives of a rule. None if the text is not a single clause. Also None
        if it may be a STRING, which is a condition between connectives but not as a whole rule.

        Raises `RuleError` like `compile`, with a position within the clause.
        """
        node, tokens = parse(text, self.scope.time_zone)
        if node.kind in ("and", "or", "not"):
            return None
        analyser = Analyser(tokens, self.scope)
        if node.kind not in CONDITIONS and analyser.value(node).type is None:
            return None
        return Splitter(analyser, self._known).rule(node)


def compile_expression(text: str, scope: Scope) -> Formula:
    """The formula of one rule. Raises `RuleError` if it is refused."""
    return Compiler(scope).compile(text)
