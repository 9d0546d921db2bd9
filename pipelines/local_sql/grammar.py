"""Parses the statements that are executed without Spark.

A statement is accepted only if it means exactly what Spark means by it. Everything else raises NeedsSparkError: Spark
then executes it, or reports the error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from pipelines.errors import NeedsSparkError
from pipelines.local_sql.syntax import (
    Change,
    Insert,
    Item,
    Merge,
    Numbers,
    Path,
    Select,
    SortKey,
    Statement,
    TableName,
    Term,
)
from rules_index.errors import RuleError
from rules_index.language import literals
from rules_index.language.tokens import END, NUMBER, QUOTED_NAME, STRING, Tokens, tokenise, words

AGGREGATES = words("COUNT MIN MAX SUM")
_NO_NAMES = words(
    "SELECT FROM WHERE GROUP ORDER BY LIMIT HAVING DISTINCT ALL AS ON USING JOIN LEFT RIGHT FULL INNER CROSS NATURAL "
    "SEMI ANTI UNION EXCEPT MINUS INTERSECT LATERAL WINDOW OVER FILTER NULL TRUE FALSE CASE CAST NOT EXISTS INTERVAL "
    "DATE TIMESTAMP TIMESTAMP_NTZ ARRAY MAP STRUCT CURRENT_DATE CURRENT_TIMESTAMP CURRENT_USER CURRENT_TIME "
    "LOCALTIMESTAMP SESSION_USER USER DEFAULT VALUES SET TABLE OFFSET QUALIFY SORT CLUSTER DISTRIBUTE TABLESAMPLE "
    "PIVOT UNPIVOT WITH"
)
"""Words that Spark may read as something else than a name; a column with such a name needs back-quotes."""
_OPERATORS = words("AND OR DIV COLLATE LIKE ILIKE RLIKE REGEXP IN BETWEEN IS")
"""Words that Spark may read as an operator behind a column; an alias with such a name needs AS."""
_LARGEST = (1 << 31) - 1
_CLAUSES = words("GROUP ORDER LIMIT HAVING")
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_T = TypeVar("_T")


def parse_statement(text: str) -> Statement:
    """The statement of a text; NeedsSparkError if it is not executed here."""
    try:
        tokens = tokenise(text)
        reader = _Reader(tokens)
        readers: dict[str, Callable[[], Statement]] = {
            "SELECT": reader.select,
            "INSERT": reader.insert,
            "UPDATE": reader.update,
            "DELETE": reader.delete,
            "MERGE": reader.merge,
        }
        return readers[tokens.kinds[0]]()
    except (RuleError, KeyError) as error:
        raise NeedsSparkError("it is not a statement about one table") from error


class _Reader:
    """A recursive-descent parser of a statement; `position` is the index of the next token."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens, self.position = tokens, 0

    @property
    def kind(self) -> str:
        """The kind of the next token."""
        return self.tokens.kinds[self.position]

    @property
    def is_qualified(self) -> bool:
        """True if a dot follows the next token."""
        return "." in self.tokens.kinds[self.position + 1 : self.position + 2]

    def takes(self, *kinds: str) -> bool:
        """Consume the next tokens if they are of these kinds; returns whether they were."""
        if tuple(self.tokens.kinds[self.position : self.position + len(kinds)]) != kinds:
            return False
        self.position += len(kinds)
        return True

    def expect(self, *kinds: str) -> None:
        """Like `takes`, but NeedsSparkError if the next tokens are others."""
        if not self.takes(*kinds):
            raise NeedsSparkError(f"it has {self.kind or 'an end'} where only Spark knows what that means")

    def listed(self, item: Callable[[], _T]) -> tuple[_T, ...]:
        """Items separated by commas."""
        found = [item()]
        while self.takes(","):
            found.append(item())
        return tuple(found)

    def select(self) -> Select | Numbers:
        """A whole query."""
        self.expect("SELECT")
        if self.kind == NUMBER:
            numbers = self.listed(self.named_number)
            self.expect(END)
            return Numbers(numbers)
        items: tuple[Item, ...] = () if self.takes("*") else self.listed(self.item)
        self.expect("FROM")
        table = self.table(versioned=True)
        where = self.expression(_CLAUSES) if self.takes("WHERE") else None
        group_by = self.listed(self.reference) if self.takes("GROUP", "BY") else ()
        order_by = self.listed(self.sort_key) if self.takes("ORDER", "BY") else ()
        limit = self.number() if self.takes("LIMIT") else None
        self.expect(END)
        return Select(table, items, where, group_by, order_by, limit)

    def insert(self) -> Insert:
        """INSERT INTO ... VALUES ..."""
        self.expect("INSERT", "INTO")
        self.takes("TABLE")
        table = self.table()
        columns: tuple[str, ...] | None = None
        if self.takes("("):
            columns = self.listed(self.name)
            self.expect(")")
        self.expect("VALUES")
        rows = self.listed(self.row)
        self.expect(END)
        return Insert(table, columns, rows)

    def update(self) -> Change:
        """UPDATE ... SET ... WHERE ..."""
        self.expect("UPDATE")
        table = self.table()
        self.expect("SET")
        values = self.listed(self.assignment)
        where = self.expression(frozenset()) if self.takes("WHERE") else None
        self.expect(END)
        return Change(table, where, values)

    def delete(self) -> Change:
        """DELETE FROM ... WHERE ..."""
        self.expect("DELETE", "FROM")
        table = self.table()
        where = self.expression(frozenset()) if self.takes("WHERE") else None
        self.expect(END)
        return Change(table, where)

    def merge(self) -> Merge:
        """MERGE INTO ... USING (SELECT * FROM VALUES ...) ..."""
        self.expect("MERGE", "INTO")
        table = self.table()
        target = table.name if self.kind == "USING" else self.alias()
        self.expect("USING", "(", "SELECT", "*", "FROM", "VALUES")
        rows = self.listed(self.row)
        self.alias()
        self.expect("(")
        columns = self.listed(self.name)
        self.expect(")", ")")
        given = self.alias()
        if given.lower() == target.lower():
            raise NeedsSparkError("it has one name for two tables")
        self.expect("ON")
        on = [self.equality(target, given)]
        while self.takes("AND"):
            on.append(self.equality(target, given))
        updated: tuple[tuple[str, Term], ...] | None = None
        if self.takes("WHEN", "MATCHED", "THEN", "UPDATE", "SET"):
            updated = self.listed(lambda: self.merged_assignment(target, given))
        inserted = self.merged_row(given) if self.takes("WHEN", "NOT", "MATCHED", "THEN", "INSERT") else None
        self.expect(END)
        if updated is None and inserted is None:
            raise NeedsSparkError("it does nothing")
        return Merge(table, columns, rows, tuple(on), updated, inserted)

    def alias(self) -> str:
        """An alias."""
        self.takes("AS")
        return self.name()

    def qualified(self, *tables: str) -> tuple[str, str]:
        """The name of one of these tables, and of a column in it."""
        table = self.name().lower()
        self.expect(".")
        if table not in (each.lower() for each in tables):
            raise NeedsSparkError(f"it names a table {table}")
        return table, self.name()

    def equality(self, target: str, given: str) -> tuple[str, str]:
        """A column of the target, and the column of the source that it must equal."""
        first = self.qualified(target, given)
        self.expect("=")
        both = dict((first, self.qualified(target, given)))
        if len(both) < 2:
            raise NeedsSparkError("it compares a table with itself")
        return both[target.lower()], both[given.lower()]

    def merged_assignment(self, target: str, given: str) -> tuple[str, Term]:
        """A column of the target and its new value."""
        name = self.qualified(target)[1] if self.is_qualified else self.name()
        self.expect("=")
        return name, self.term(given, words("WHEN"), ",")

    def merged_row(self, given: str) -> tuple[tuple[str, Term], ...]:
        """The columns of new rows, with their values."""
        self.expect("(")
        names = self.listed(self.name)
        self.expect(")", "VALUES", "(")
        terms = self.listed(lambda: self.term(given, frozenset(), ",)"))
        self.expect(")")
        if len(names) != len(terms):
            raise NeedsSparkError("a row does not have one value for each column")
        return tuple(zip(names, terms, strict=True))

    def term(self, given: str, ends: frozenset[str], stops: str) -> Term:
        """A column of the source, or an expression that ends at a word of `ends` or a character of `stops`."""
        if self.is_qualified:
            column = self.qualified(given)[1]
            if self.kind in ends or (self.kind and self.kind in stops) or self.kind == END:
                return Term(column=column)
            raise NeedsSparkError("it works out a value from a column")
        return Term(text=self.expression(ends, stops))

    def table(self, versioned: bool = False) -> TableName:
        """A table's name, with the version if `versioned` allows one."""
        name, is_path = self.name(), False
        if self.takes("."):
            is_path = name.lower() == "delta" and self.kind == QUOTED_NAME
            name = self.name()
            if not is_path or not name.startswith("/"):
                raise NeedsSparkError("it names a table of a catalog")
        version = self.number() if versioned and self.takes("VERSION", "AS", "OF") else None
        return TableName(name, is_path, version)

    def item(self) -> Item:
        """One item of a select list."""
        aggregate = self.kind if self.kind in AGGREGATES and self.tokens.kinds[self.position + 1] == "(" else None
        column: Path | None
        if aggregate is not None:
            self.position += 2
            column = None if aggregate == "COUNT" and (self.takes("*") or self.takes_one()) else self.path()
            self.expect(")")
        else:
            column = self.path()
            if self.takes(".", "*"):
                return Item(column, is_star=True)
        named = self.takes("AS")
        if not named and self.kind in _OPERATORS:
            raise NeedsSparkError(f"it has the operator {self.kind}")
        alias = self.name() if named or (self.kind not in (",", "FROM")) else None
        return Item(column, aggregate.lower() if aggregate is not None else None, alias)

    def named_number(self) -> tuple[str, int]:
        """A whole number, and its name in the result."""
        found = self.number()
        named = self.takes("AS")
        return self.name() if named or self.kind not in (",", END) else str(found), found

    def takes_one(self) -> bool:
        """Consume the number 1 if it is next; returns whether it was."""
        return self.kind == NUMBER and self.tokens.spelling(self.position) == "1" and self.takes(NUMBER)

    def reference(self) -> Path | int:
        """A column by name, or by its place in the result."""
        return self.number() if self.kind == NUMBER else self.path()

    def sort_key(self) -> SortKey:
        """A sort key with its direction; by default NULL is less than all values."""
        by = self.reference()
        descending = not self.takes("ASC") and self.takes("DESC")
        nulls_last = descending
        if self.takes("NULLS"):
            nulls_last = not self.takes("FIRST")
            if nulls_last:
                self.expect("LAST")
        return SortKey(by, descending, nulls_last)

    def row(self) -> tuple[str, ...]:
        """The values of one row."""
        self.expect("(")
        found = self.listed(lambda: self.expression(frozenset(), stops=",)"))
        self.expect(")")
        return found

    def assignment(self) -> tuple[str, str]:
        """A column and the text of its new value."""
        name = self.name()
        self.expect("=")
        return name, self.expression(words("WHERE"), stops=",")

    def expression(self, ends: frozenset[str], stops: str = "") -> str:
        """The text up to the first word of `ends`, or character of `stops`, outside of brackets."""
        start, depth = self.position, 0
        while self.kind != END and not (depth == 0 and (self.kind in ends or (self.kind and self.kind in stops))):
            depth += (self.kind in ("(", "[")) - (self.kind in (")", "]"))
            self.position += 1
        if self.position == start or depth:
            raise NeedsSparkError("it lacks an expression")
        return self.tokens.text[self.tokens.starts[start] : self.tokens.ends[self.position - 1]]

    def name(self) -> str:
        """A name: a word without another meaning, or any name in back-quotes."""
        spelling = self.tokens.spelling(self.position)
        is_word = self.kind not in (STRING, NUMBER, END) and self.kind not in _NO_NAMES and _WORD.fullmatch(spelling)
        if self.kind != QUOTED_NAME and not is_word:
            raise NeedsSparkError(f"it has {spelling or 'an end'} where a name is expected")
        self.position += 1
        return self.tokens.name(self.position - 1)

    def path(self) -> Path:
        """A column, or a field within it."""
        found = [self.name()]
        while self.kind == "." and self.tokens.kinds[self.position + 1] != "*":
            self.position += 1
            found.append(self.name())
        return tuple(found)

    def number(self) -> int:
        """An unsigned INT."""
        spelling = self.tokens.spelling(self.position)
        if self.kind != NUMBER or not spelling.isdecimal():
            raise NeedsSparkError(f"it has {spelling or 'an end'} where a whole number is expected")
        self.position += 1
        found = int(literals.number(spelling, 0).value)
        if found > _LARGEST:
            raise NeedsSparkError(f"{found} is not an INT, which Spark asks for")
        return found
