"""The syntax trees of the statements that are executed without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Path: TypeAlias = tuple[str, ...]
"""A column's name, followed by those of fields within its STRUCTs."""


@dataclass(frozen=True, slots=True)
class TableName:
    """A table by name, or by the path of its folder; `version` is None for the newest.

    alias: the name that the statement gives it.
    """

    name: str
    is_path: bool = False
    version: int | None = None
    alias: str | None = None

    @property
    def qualifier(self) -> str | None:
        """The name that may stand before a column's."""
        return self.alias or (None if self.is_path else self.name)


@dataclass(frozen=True, slots=True)
class Computed:
    """An expression as text, in which the name `placeholder(n)` stands for the aggregate n."""

    text: str
    aggregates: tuple[Aggregate, ...] = ()


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate of a column or an expression, or the count of rows if `value` is None.

    function: count, count_distinct, count_if, min, max, sum or avg.
    """

    function: str
    value: Path | Computed | None = None


Value: TypeAlias = Path | Computed | Aggregate


def placeholder(number: int) -> str:
    """The name of an aggregate in a `Computed`."""
    return f"\1aggregate {number}"


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a select list.

    If `is_star` is set, it stands for all fields of the STRUCT `value`, or all columns of the table with that name.
    """

    value: Value
    alias: str | None = None
    is_star: bool = False

    @property
    def is_plain(self) -> bool:
        """True for a column under its own name."""
        return self.alias is None and isinstance(self.value, tuple) and len(self.value) == 1

    @property
    def has_aggregate(self) -> bool:
        """True for an aggregate, and for an expression over aggregates."""
        return isinstance(self.value, Aggregate) or (isinstance(self.value, Computed) and bool(self.value.aggregates))

    @property
    def name(self) -> str:
        """The item's name in the result. An expression has an alias."""
        if self.alias is not None:
            return self.alias
        if isinstance(self.value, tuple):
            return self.value[-1]
        assert isinstance(self.value, Aggregate) and not isinstance(self.value.value, Computed)
        function = self.value.function + "("
        return f"{function.replace('_distinct(', '(DISTINCT ')}{'.'.join(self.value.value or ('1',))})"


ALL_COLUMNS = Item((), is_star=True)
"""`*`, which stands for all columns."""


@dataclass(frozen=True, slots=True)
class SortKey:
    """A sort key: a value, or a column of the result by its place from 1."""

    by: Value | int
    descending: bool
    nulls_last: bool


@dataclass(frozen=True, slots=True)
class LateralView:
    """LATERAL VIEW explode(path): `names` are those of the columns that it adds, one for a list and two for a map."""

    path: Path
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Join:
    """A join with another table ON a condition, given as text, or USING columns that both have.

    kind: INNER, LEFT, RIGHT, FULL, SEMI or ANTI; the last two give rows of the first table alone.
    """

    kind: str
    table: TableName
    on: str | None = None
    using: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Select:
    """A query of one table, or of two that are joined; `where` is the text of an expression."""

    table: TableName
    items: tuple[Item, ...]
    where: str | None = None
    group_by: tuple[Path | Computed | int, ...] = ()
    having: Computed | None = None
    order_by: tuple[SortKey, ...] = ()
    limit: int | None = None
    is_distinct: bool = False
    views: tuple[LateralView, ...] = ()
    join: Join | None = None

    @property
    def is_grouped(self) -> bool:
        """True if a row of the result stands for a group of rows."""
        return bool(self.group_by or self.having or self.is_distinct or any(item.has_aggregate for item in self.items))


@dataclass(frozen=True, slots=True)
class Numbers:
    """A query of whole numbers and no table, such as `SELECT 1`: each with its name in the result."""

    values: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Insert:
    """An INSERT: rows of values as texts of expressions; `columns` is None for all columns in their order."""

    table: TableName
    columns: tuple[str, ...] | None
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Change:
    """An UPDATE or DELETE of the rows that satisfy `where`, or all; `values`: columns and texts, None for DELETE."""

    table: TableName
    where: str | None
    values: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class Term:
    """A value in a MERGE: a column of its source rows, or the text of an expression."""

    column: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Merge:
    """A MERGE of source rows, given as texts of expressions with the names `columns`.

    on: pairs of a column of the table and one of the source; updated: the values that matching rows get; inserted: the
    values of new rows. Either is None if the statement has no such clause.
    """

    table: TableName
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    on: tuple[tuple[str, str], ...]
    updated: tuple[tuple[str, Term], ...] | None = None
    inserted: tuple[tuple[str, Term], ...] | None = None


Statement = Select | Numbers | Insert | Change | Merge
