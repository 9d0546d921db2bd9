"""The position in a rule's text that the modules of the grammar share."""

from __future__ import annotations

from abc import ABC, abstractmethod

from rules_index.errors import RuleError
from rules_index.language.nodes import Node
from rules_index.language.tokens import END, Tokens


class Cursor(ABC):
    """A position in a rule's tokens. `at` is the number of the next token, `level` the current nesting depth of the
    grammar, and `zone` the time zone of timestamps written without one."""

    __slots__ = ("at", "level", "tokens", "zone")

    def __init__(self, tokens: Tokens, zone: str) -> None:
        self.tokens = tokens
        self.zone = zone
        self.at = 0
        self.level = 0

    @abstractmethod
    def expression(self) -> Node:
        """The expression that starts here, ending before the first token that cannot continue it."""

    @abstractmethod
    def value(self) -> Node:
        """A value expression of the grammar: arithmetic and comparisons, but no bare AND, OR, IN, ..."""

    @abstractmethod
    def list_of_expressions(self) -> list[Node]:
        """Expressions separated by commas, at least one, including the closing bracket."""

    def expect(self, kind: str, message: str) -> None:
        """Steps over a token of this kind, or raises with the message."""
        if self.tokens.kinds[self.at] != kind:
            raise self.unexpected(message)
        self.at += 1

    def unexpected(self, message: str = "", at: int | None = None) -> RuleError:
        """The syntax error at token `at`, by default the one at the cursor. It names the token behind `message`."""
        at = self.at if at is None else at
        kind = self.tokens.kinds[at]
        if kind == END:
            return RuleError(
                "SYNTAX",
                message or "The expression ends too early.",
                self.tokens.starts[at],
            )
        spelling = self.tokens.spelling(at)
        shown = spelling if len(spelling) <= 40 else spelling[:37] + "..."
        where = f"Found {shown} where it is not allowed."
        return RuleError("SYNTAX", f"{message} {where}".strip(), self.tokens.starts[at])
