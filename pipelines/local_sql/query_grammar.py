"""Parses queries of one table, or of two that are joined."""

from __future__ import annotations

from dataclasses import replace

from pipelines.errors import NeedsSparkError
from pipelines.local_sql.reader import Reader
from pipelines.local_sql.syntax import (
    ALL_COLUMNS,
    Aggregate,
    Computed,
    Item,
    Join,
    LateralView,
    Numbers,
    Path,
    Select,
    SortKey,
    TableName,
    Value,
    placeholder,
)
from rules_index.language.tokens import END, NUMBER, words

AGGREGATES = words("COUNT COUNT_IF MIN MAX SUM AVG")
_OPERATORS = words("AND OR DIV COLLATE LIKE ILIKE RLIKE REGEXP IN BETWEEN IS")
"""Words that Spark may read as an operator behind a column; an alias with such a name needs AS."""
_CLAUSES = words("GROUP HAVING ORDER LIMIT")
_JOINS = words("JOIN INNER LEFT RIGHT FULL SEMI ANTI")
_BEHIND_JOIN = _CLAUSES | _JOINS | words("WHERE LATERAL CROSS NATURAL")
_BEHIND_GROUPS = _CLAUSES - {"GROUP"}
_BEHIND_KEY = words("ASC DESC NULLS LIMIT")


class QueryReader(Reader):
    """A parser of queries."""

    _is_within_aggregate = False

    def select(self) -> Select | Numbers:
        """A whole query."""
        self.expect("SELECT")
        if self.kind == NUMBER and "FROM" not in self.tokens.kinds:
            numbers = self.listed(self.named_number)
            self.expect(END)
            return Numbers(numbers)
        is_distinct = self.takes("DISTINCT")
        items = self.listed(self.item)
        self.expect("FROM")
        table = self.aliased_table()
        join = self.join() if self.kind in _JOINS else None
        views = []
        while self.takes("LATERAL", "VIEW"):
            views.append(self.lateral_view())
        where = self.expression(_CLAUSES) if self.takes("WHERE") else None
        group_by = self.listed(self.group) if self.takes("GROUP", "BY") else ()
        having = self.computed(_CLAUSES, "") if self.takes("HAVING") else None
        order_by = self.listed(self.sort_key) if self.takes("ORDER", "BY") else ()
        limit = self.number() if self.takes("LIMIT") else None
        self.expect(END)
        return Select(table, items, where, group_by, having, order_by, limit, is_distinct, tuple(views), join)

    def aliased_table(self) -> TableName:
        """A table with its version and alias."""
        table = self.table(versioned=True)
        return replace(table, alias=self.name()) if self.takes("AS") or self.is_name else table

    def join(self) -> Join:
        """The other table, and what its rows must satisfy."""
        kind = next((kind for kind in ("LEFT", "RIGHT", "FULL") if self.takes(kind)), "INNER")
        if kind == "INNER" and not self.takes("INNER"):
            kind = next((kind for kind in ("SEMI", "ANTI") if self.takes(kind)), kind)
        elif kind == "LEFT":
            kind = next((each for each in ("SEMI", "ANTI") if self.takes(each)), kind)
        if kind in ("LEFT", "RIGHT", "FULL"):
            self.takes("OUTER")
        self.expect("JOIN")
        table = self.aliased_table()
        if self.takes("USING", "("):
            using = self.listed(self.name)
            self.expect(")")
            return Join(kind, table, using=using)
        self.expect("ON")
        return Join(kind, table, self.expression(_BEHIND_JOIN))

    def lateral_view(self) -> LateralView:
        """explode(path) AS name; a name for the view itself may come before AS, and is not used here."""
        self.expect("EXPLODE", "(")
        path = self.path()
        self.expect(")")
        if not self.takes("AS"):
            self.name()
            self.takes("AS")
        return LateralView(path, self.listed(self.name))

    def item(self) -> Item:
        """One item of a select list."""
        if self.takes("*"):
            return ALL_COLUMNS
        start = self.position
        plain = self.plain_value()
        if isinstance(plain, tuple) and self.takes(".", "*"):
            return Item(plain, is_star=True)
        if plain is not None and self.kind not in _OPERATORS and self.is_name:
            alias = self.name()  # without AS
            if self.kind in (",", "FROM"):
                return Item(plain, alias)
        if plain is None or self.kind not in ("AS", ",", "FROM"):
            self.position = start
            computed = self.computed(words("AS FROM"), ",")
            if not self.takes("AS"):
                raise NeedsSparkError("only Spark has a name for an expression without one")
            return Item(computed, self.name())
        if self.takes("AS"):
            return Item(plain, self.name())
        if isinstance(plain, Aggregate) and isinstance(plain.value, Computed):
            raise NeedsSparkError("only Spark has a name for an aggregate of an expression")
        return Item(plain)

    def plain_value(self) -> Path | Aggregate | None:
        """A column or an aggregate; None if something else begins here."""
        if self.is_aggregate:
            return self.aggregate()
        return self.path() if self.is_name else None

    def value(self, ends: frozenset[str], stops: str) -> Value:
        """A column, an aggregate or another expression, which ends at a word of `ends` or a character of `stops`."""
        start = self.position
        found = self.plain_value()
        if found is not None and self.is_at(ends, stops):
            return found
        self.position = start
        return self.computed(ends, stops)

    def computed(self, ends: frozenset[str], stops: str) -> Computed:
        """An expression, whose aggregates are told apart."""
        aggregates: list[Aggregate] = []
        text, copied, end, depth = "", self.tokens.starts[self.position], 0, 0
        while self.kind != END and not (depth == 0 and self.is_at(ends, stops)):
            if self.is_aggregate:
                text += self.tokens.text[copied : self.tokens.starts[self.position]]
                aggregates.append(self.aggregate())
                text += f"`{placeholder(len(aggregates) - 1)}`"
                copied = end = self.tokens.ends[self.position - 1]
                continue
            depth += (self.kind in ("(", "[")) - (self.kind in (")", "]"))
            end = self.tokens.ends[self.position]
            self.position += 1
        text += self.tokens.text[copied:end]
        if not text or depth:
            raise NeedsSparkError("it lacks an expression")
        return Computed(text, tuple(aggregates))

    @property
    def is_aggregate(self) -> bool:
        """True if a call of an aggregate function is next."""
        return self.kind in AGGREGATES and self.tokens.kinds[self.position + 1] == "("

    def aggregate(self) -> Aggregate:
        """A call of an aggregate function."""
        # told before the inner one is read: calls may be nested deeper than Python's stack
        if self._is_within_aggregate:
            raise NeedsSparkError("it has an aggregate of an aggregate")
        function = self.kind.lower()
        self.position += 2
        if function == "count" and (self.takes("*") or self.takes_one()):
            self.expect(")")
            return Aggregate(function)
        if self.takes("DISTINCT"):
            function += "_distinct"
        self._is_within_aggregate = True
        value = self.value(frozenset(), ",)")
        self._is_within_aggregate = False
        self.expect(")")
        assert not isinstance(value, Aggregate)
        return Aggregate(function, value)

    def named_number(self) -> tuple[str, int]:
        """A whole number, and its name in the result."""
        found = self.number()
        named = self.takes("AS")
        return self.name() if named or self.kind not in (",", END) else str(found), found

    def takes_one(self) -> bool:
        """Consume the number 1 if it is next; returns whether it was."""
        return self.kind == NUMBER and self.tokens.spelling(self.position) == "1" and self.takes(NUMBER)

    def group(self) -> Path | Computed | int:
        """What rows are grouped by: a column, an expression, or a column of the result by its place."""
        if self.is_number(_BEHIND_GROUPS):
            return self.number()
        found = self.value(_BEHIND_GROUPS, ",")
        if isinstance(found, Aggregate) or (isinstance(found, Computed) and found.aggregates):
            raise NeedsSparkError("it groups by an aggregate")
        return found

    def sort_key(self) -> SortKey:
        """A sort key with its direction; by default NULL is less than all values."""
        by = self.number() if self.is_number(_BEHIND_KEY) else self.value(_BEHIND_KEY, ",")
        descending = not self.takes("ASC") and self.takes("DESC")
        nulls_last = descending
        if self.takes("NULLS"):
            nulls_last = not self.takes("FIRST")
            if nulls_last:
                self.expect("LAST")
        return SortKey(by, descending, nulls_last)

    def is_number(self, ends: frozenset[str]) -> bool:
        """True if the next token is a number, and a comma or a word of `ends` follows it."""
        following = self.tokens.kinds[self.position + 1 : self.position + 2]
        return self.kind == NUMBER and (not following or following[0] in (",", END) or following[0] in ends)
