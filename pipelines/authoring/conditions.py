"""Translates two-valued conditions of other rule languages into Spark SQL expressions.

In those languages a comparison with a missing value is FALSE, and its NOT is TRUE; in SQL both are NULL. So NOT is
pushed down to the comparisons, where it becomes: the value is NULL, or the comparison does not hold. Then both
languages agree on what is TRUE, and the index can read every part itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rules_index.names import quoted_text


@dataclass(frozen=True, slots=True)
class Test:
    """A comparison: `sql` is TRUE exactly where it holds, `otherwise` exactly where it does not."""

    sql: str
    otherwise: str


@dataclass(frozen=True, slots=True)
class All:
    """AND of some conditions; TRUE without any."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Any:
    """OR of some conditions; FALSE without any."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """NOT of a condition."""

    part: Condition


Condition = Test | All | Any | Not
TRUE, FALSE = Test("TRUE", "FALSE"), Test("FALSE", "TRUE")


def expression(condition: Condition) -> str:
    """The condition as the expression of a rule."""
    return _sql(condition, True, "")


def _sql(condition: Condition, wanted: bool, around: str) -> str:
    """A condition, negated unless `wanted`, as an operand of `around`: AND, OR or nothing."""
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
    """A comparison of a column; `negated` is its negation for values that are not NULL."""
    return Test(sql, f"({column} IS NULL OR {negated})")


def any_of(parts: Sequence[Condition]) -> Condition:
    """OR of at least one condition."""
    return parts[0] if len(parts) == 1 else Any(tuple(parts))


def all_of(parts: Sequence[Condition]) -> Condition:
    """AND of at least one condition."""
    return parts[0] if len(parts) == 1 else All(tuple(parts))


def readable_literal(text: str) -> str:
    """A text as a SQL literal for people to read: a raw one if it has backslashes and at most one kind of quote."""
    if "\\" not in text:
        return "'" + text.replace("'", "''") + "'"
    if "'" not in text:
        return f"r'{text}'"
    if '"' not in text:
        return f'r"{text}"'
    return quoted_text(text)


def like_text(text: str) -> str:
    """A text as a pattern of LIKE, with wildcards escaped."""
    return "".join("\\" + each if each in "%_\\" else each for each in text)
