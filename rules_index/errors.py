"""The errors that the matching library raises; each says what was wrong, where, and what to do."""

from __future__ import annotations


class RulesIndexError(Exception):
    """The base of every error that this library raises on purpose."""


class RuleError(RulesIndexError):
    """One rule that cannot be compiled; other rules are not affected.

    `error` is a stable upper-case code (`SYNTAX`, `UNKNOWN_COLUMN`, ...), `message` a sentence for the rule's author,
    `position` the 0-based offset in the rule's text, or None if it is unknown.
    """

    def __init__(self, error: str, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
        self.position = position


def unforeseen(error: Exception) -> RuleError:
    """The error for a rule whose compilation ended in an unexpected exception."""
    if isinstance(error, RecursionError):
        return RuleError("TOO_DEEP", "The expression is nested too deeply; write it with fewer brackets.")
    return RuleError(
        "INTERNAL",
        f"deltatag could not compile this rule ({type(error).__name__}: {error}). Please report it; writing the rule "
        "in another way may help.",
    )


class SchemaError(RulesIndexError):
    """A batch lacks a column that the rules read, or has it with another type."""


class UnknownRuleError(RulesIndexError):
    """An index has no rule of this id: there is none, or it did not compile."""


class ArtifactError(RulesIndexError):
    """The bytes are not an index that this version can read: damaged, truncated, or of another format."""
