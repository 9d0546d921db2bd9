"""Executes the subqueries of a WHERE first: what is left is a condition on one row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import NeedsSparkError, StatementError
from pipelines.local_sql.grammar import parse_statement
from pipelines.local_sql.syntax import Select
from rules_index.domains.value_lists import ValueList, value_list
from rules_index.implication.sql import literal_of
from rules_index.language.coercion import name_of
from rules_index.language.constants import key_of
from rules_index.language.tokens import END, Tokens, tokenise
from rules_index.language.typed import Constant

_COMPARISONS = frozenset(("=", "<=>", "<>", "<", "<=", ">", ">="))
_BESIDE = frozenset(("AND", "OR", END))
"""What stands beside a condition where NULL means what FALSE means, and where no operator binds tighter than IN."""

_TIMES = ("DATE'", "TIMESTAMP'", "TIMESTAMP_NTZ'")
"""The beginnings of literals of times."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A condition without subqueries, and the value lists that it names.

    unfolded: the condition with calls in place of the literals of times. Spark moves the cast of a date or time to a
    literal, but not to a subquery, so that the condition means what Spark means only if this one needs no Spark.
    """

    where: str
    unfolded: str
    lists: tuple[ValueList, ...] = ()


def resolved(where: str, execute: Callable[[Select], pa.Table]) -> Resolved:
    """The condition with what its subqueries give, which `execute` finds, in their place.

    `column [NOT] IN (SELECT ...)`, if it is an operand of ANDs and ORs, becomes a condition with a value list; an
    aggregate that is compared with something becomes a literal. NeedsSparkError for other subqueries, such as those
    that name columns of the outer query.
    """
    tokens = tokenise(where)
    pieces: list[str] = []
    unfolded: list[str] = []
    lists: list[ValueList] = []
    asked: dict[tuple[str, Select], bool] = {}
    copied = 0
    for first, last, depth in _subqueries(tokens):
        query = _query(where[tokens.starts[first + 1] : tokens.starts[last]])
        before, behind = tokens.kinds[first - 1] if first else END, tokens.kinds[last + 1]
        if before == "IN":
            begin = _operand(tokens, first, last, depth)
            is_negated = tokens.kinds[first - 2] == "NOT"
            column = where[tokens.starts[begin] : tokens.ends[first - 2 - is_negated]]
            if asked.setdefault((column.lower(), query), is_negated) != is_negated:
                raise NeedsSparkError(
                    "it has a subquery and its opposite, one of which Spark takes for TRUE even of NULL"
                )
            values = _first_column(execute, query if query.is_grouped else replace(query, is_distinct=True))
            lists.append(value_list(f"subquery.{len(lists)}", values))
            text = call = _within(column, is_negated, lists[-1], values.null_count > 0)
        else:
            begin = first
            if not {before, behind} & _COMPARISONS:
                raise NeedsSparkError("it has a subquery that is neither compared nor in IN")
            text = _literal(execute, query)
            call = f"coalesce({text})" if text.startswith(_TIMES) else text
        for parts, part in ((pieces, text), (unfolded, call)):
            parts.append(where[copied : tokens.starts[begin]] + part)
        copied = tokens.ends[last]
    if pieces and ("LIST", "(") in zip(tokens.kinds, tokens.kinds[1:], strict=False):
        raise NeedsSparkError("it names a list of values")
    rest = where[copied:]
    return Resolved("".join(pieces) + rest, "".join(unfolded) + rest, tuple(lists))


def _subqueries(tokens: Tokens) -> list[tuple[int, int, int]]:
    """The first and the last bracket of each subquery, and how many brackets and CASEs are around it."""
    kinds = tokens.kinds
    found, depth, begin = [], 0, -1
    for place, kind in enumerate(kinds):
        if kind == "SELECT" and begin >= 0:
            if place > begin + 1:
                raise NeedsSparkError("it has a subquery in a subquery")
        elif kind == "SELECT":
            raise NeedsSparkError("it has SELECT without a bracket")
        if kind == "(" and begin < 0 and kinds[place + 1] == "SELECT":
            begin, outside = place, depth
        depth += (kind in ("(", "CASE")) - (kind in (")", "END"))
        if kind == ")" and begin >= 0 and depth == outside:
            found.append((begin, place, depth))
            begin = -1
    if begin >= 0:
        raise NeedsSparkError("it lacks a bracket")
    return found


def _query(text: str) -> Select:
    query = parse_statement(text)
    if not isinstance(query, Select) or len(query.items) != 1 or query.items[0].is_star:
        raise NeedsSparkError("it has a subquery that does not select one column")
    if query.order_by or query.limit is not None:
        raise NeedsSparkError("it has a subquery whose rows are sorted or limited")
    return query


def _operand(tokens: Tokens, first: int, last: int, depth: int) -> int:
    """The first token of `column [NOT] IN (...)`, the bracket of which is at `first`."""
    begin = first - 2 - (tokens.kinds[first - 2] == "NOT")
    while begin > 1 and tokens.is_name(begin) and tokens.kinds[begin - 1] == ".":
        begin -= 2
    before = tokens.kinds[begin - 1] if begin > 0 else END
    if (
        depth
        or begin < 0
        or not tokens.is_name(begin)
        or before not in _BESIDE
        or tokens.kinds[last + 1] not in _BESIDE
    ):
        raise NeedsSparkError("it has IN with a subquery in an expression")
    return begin


def _within(column: str, is_negated: bool, values: ValueList, has_null: bool) -> str:
    """Whether a column's value is among some values. A list ignores NULL, and is NULL for a NULL even if it is empty;
    for SQL, a NULL among the values may be any value, and nothing is in an empty set."""
    if not is_negated:
        return f"{column} IN LIST('{values.name}')"
    found = f"{column} NOT IN LIST('{values.name}')"
    if has_null:
        return f"({found} AND {column} IS NULL)"
    return found if values.count else f"({found} OR {column} IS NULL)"


def _literal(execute: Callable[[Select], pa.Table], query: Select) -> str:
    """The value of an aggregate without groups, which is one row, as a literal."""
    if query.group_by or query.having or query.is_distinct or not query.items[0].has_aggregate:
        raise NeedsSparkError("it has a subquery that may give several rows")
    values, t = _first_column(execute, query), pa.types
    kind = values.type
    if values.null_count or not (t.is_integer(kind) or t.is_string(kind) or t.is_date32(kind) or t.is_timestamp(kind)):
        raise NeedsSparkError("it has a subquery whose value is not written as a literal")
    if t.is_timestamp(kind) or t.is_date32(kind):
        return literal_of(pc.cast(values, pa.int64() if t.is_timestamp(kind) else pa.int32())[0].as_py(), kind)
    text = literal_of(key_of(Constant(values[0].as_py(), kind)), kind)
    # Spark compares a whole number that is written there with a DECIMAL otherwise than one that is not
    return f"CAST({text} AS {name_of(kind)})" if t.is_integer(kind) else text


def _first_column(execute: Callable[[Select], pa.Table], query: Select) -> pa.ChunkedArray:
    try:
        return execute(query).column(0)
    except StatementError as error:  # the column may be one of the outer query
        raise NeedsSparkError(str(error)) from error
