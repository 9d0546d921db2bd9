"""Parses the statements that are executed without Spark.

A statement is accepted only if it means exactly what Spark means by it. Everything else raises NeedsSparkError: Spark
then executes it, or reports the error.
"""

from __future__ import annotations

from collections.abc import Callable

from pipelines.errors import NeedsSparkError
from pipelines.local_sql.query_grammar import QueryReader
from pipelines.local_sql.syntax import Change, Insert, Merge, Statement, Term
from rules_index.errors import RuleError
from rules_index.language.tokens import END, MAX_LENGTH, tokenise, words


def parse_statement(text: str) -> Statement:
    """The statement of a text; NeedsSparkError if it is not executed here."""
    if len(text) > MAX_LENGTH:
        raise NeedsSparkError(f"it has more than {MAX_LENGTH:,} characters")
    try:
        tokens = tokenise(text)
        reader = _StatementReader(tokens)
        readers: dict[str, Callable[[], Statement]] = {
            "SELECT": reader.select,
            "INSERT": reader.insert,
            "UPDATE": reader.update,
            "DELETE": reader.delete,
            "MERGE": reader.merge,
        }
        return readers[tokens.kinds[0]]()
    except (RuleError, KeyError) as error:
        raise NeedsSparkError("it has a form that only Spark executes") from error


class _StatementReader(QueryReader):
    """A parser of queries and edits."""

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
