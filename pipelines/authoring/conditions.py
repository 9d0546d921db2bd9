"""Two-valued conditions of other rule languages as expressions of Spark SQL.

There a comparison with a missing value is FALSE, and its NOT is TRUE; in SQL both are NULL. So NOT is brought down to
the comparisons, and says there that the value is NULL or the comparison does not hold: what is TRUE and what is not is
then the same in both languages, and every part stays one that the index reads itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Test:
    """A comparison: `sql` where it holds, `otherwise` where it does not, each TRUE or not TRUE as it should be."""

    sql: str
    otherwise: str


@dataclass(frozen=True, slots=True)
class All:
    """All of some conditions; TRUE of none."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Any:
    """Any of some conditions; FALSE of none."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Not a condition."""

    part: Condition


Condition = Test | All | Any | Not
TRUE, FALSE = Test("TRUE", "FALSE"), Test("FALSE", "TRUE")


def expression(condition: Condition) -> str:
    """The condition as a rule."""
    return _sql(condition, True, "")


def _sql(condition: Condition, wanted: bool, around: str) -> str:
    """A condition, or its opposite, beside others that `around` (AND, OR or nothing) joins."""
    if isinstance(condition, Not):
        return _sql(condition.part, not wanted, around)
    if isinstance(condition, Test):
        return condition.sql if wanted else condition.otherwise
    word = "AND" if isinstance(condition, All) == wanted else "OR"
    if not condition.parts:
        return "TRUE" if word == "AND" else "FALSE"
    if len(condition.parts) == 1:
        return _sql(condition.parts[0], wanted, around)
    joined = f" {word} ".join(_sql(part, wanted, word) for part in condition.parts)
    return f"({joined})" if around not in ("", word) else joined


def comparison(column: str, sql: str, negated: str) -> Test:
    """A comparison of a column, and what it is to be FALSE for a value that is there."""
    return Test(sql, f"({column} IS NULL OR {negated})")


def any_of(parts: Sequence[Condition]) -> Condition:
    """Any of some conditions."""
    return parts[0] if len(parts) == 1 else Any(tuple(parts))


def all_of(parts: Sequence[Condition]) -> Condition:
    """All of some conditions."""
    return parts[0] if len(parts) == 1 else All(tuple(parts))


def text_literal(text: str) -> str:
    """A text as a literal: a raw one where backslashes would double, and no quote is in the way."""
    if "\\" not in text:
        return "'" + text.replace("'", "''") + "'"
    if "'" not in text:
        return f"r'{text}'"
    if '"' not in text:
        return f'r"{text}"'
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def like_text(text: str) -> str:
    """A text as LIKE has it, its wildcards taken as letters."""
    return "".join("\\" + each if each in "%_\\" else each for each in text)
