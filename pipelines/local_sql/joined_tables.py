"""Reads two tables that are joined on equal columns as one table: each is a STRUCT under its name in the statement, and
columns that only one of them has are columns, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property

import numpy as np
import polars as pl
import pyarrow as pa

import rules_index as ri
from pipelines.errors import NeedsSparkError, PipelineError
from pipelines.local_sql.condition import Condition
from pipelines.local_sql.expressions import is_discrete, unqualified
from pipelines.local_sql.syntax import LateralView, Path, Select, TableName
from pipelines.local_sql.tables import LocalTable
from pipelines.workspace import Workspace
from rules_index.errors import RuleError
from rules_index.language.parser import parse
from rules_index.names import column_key, field_key, spelled

_MOST_PAIRS = 1 << 22
"""Maximum number of pairs of rows in memory, unless one row has more partners."""


class JoinedTables(LocalTable):
    """Two tables; NeedsSparkError, StatementError and AccessError as for `LocalTable`."""

    def __init__(self, workspace: Workspace, query: Select) -> None:
        assert query.join is not None
        self._begin(TableName("", is_path=True), workspace.configuration.rules.time_zone, is_sure=False)
        self._using = query.join.using
        self._tables: dict[str, LocalTable] = {}
        for name in (query.table, query.join.table):
            if name.qualifier is None:
                raise NeedsSparkError("it joins a table without a name")
            self._tables[name.qualifier] = LocalTable(workspace, name)
        names = [column_key(each) for table in self._tables.values() for each in table.schema.names]
        known = {column_key(each) for each in self._tables}
        if len(known) < 2 or known & set(names):
            raise NeedsSparkError("a table has the name of another one, or of a column")
        self._keys = self._keys_of(query)
        self._pushed: dict[str, Condition | None] = dict.fromkeys(self._tables)

    def _keys_of(self, query: Select) -> dict[str, list[str]]:
        """For each table the columns that must be equal to the other one's. NeedsSparkError if they have other types,
        or types of which Spark takes different values for equal ones."""
        assert query.join is not None
        first, second = self._tables
        pairs = [dict.fromkeys(self._tables, name) for name in query.join.using]
        pairs += [dict(map(self._owned, pair)) for pair in query.join.on]
        found: dict[str, list[str]] = {first: [], second: []}
        for pair in pairs:
            if len(pair) < 2:
                raise NeedsSparkError("it compares a table with itself")
            for alias, name in pair.items():
                found[alias].append(self._tables[alias].column(name))
            kinds = {self._tables[alias].schema.field(names[-1]).type for alias, names in found.items()}
            if len(kinds) > 1 or not is_discrete(kinds.pop()):
                raise NeedsSparkError("it joins on columns that only Spark compares")
        return found

    @cached_property
    def stored_schema(self) -> pa.Schema:
        """A STRUCT for each table, the columns that only one of them has, and those of USING."""
        structs = [pa.field(alias, pa.struct(list(table.schema))) for alias, table in self._tables.items()]
        first, second = self._tables.values()
        only = [each for each in first.schema if each.name in self._shared]
        for table, other in ((first, second), (second, first)):
            keys = set(map(field_key, other.schema.names))
            only += [each for each in table.schema if field_key(each.name) not in keys]
        return pa.schema([*structs, *only])

    @cached_property
    def _shared(self) -> list[str]:
        """The columns of USING, in the first table's spelling, if that is the second one's and the statement's."""
        first, second = self._tables.values()
        return [name for name in self._using if name in first.schema.names and name in second.schema.names]

    def explode(self, view: LateralView) -> None:
        """Like `LocalTable.explode`."""
        if any(table.has_column(name) for table in self._tables.values() for name in view.names):
            raise NeedsSparkError(f"{' or '.join(view.names)} may name several columns")
        super().explode(view)

    def all_columns(self) -> list[Path]:
        """What `*` stands for; NeedsSparkError with USING, which puts columns together."""
        if self._using or self._exploded:
            raise NeedsSparkError("only Spark knows the columns of this join")
        return [(alias, name) for alias, table in self._tables.items() for name in table.schema.names]

    def shown_path(self, parts: Path) -> Path:
        """Like `LocalTable.shown_path`."""
        return parts[1:] if spelled(list(self._tables), parts[0], column_key) is not None else parts

    def condition(self, text: str | None) -> Condition | None:
        """Like `LocalTable.condition`; the parts that concern one table alone are evaluated before the join."""
        found = super().condition(text)
        if found is None or text is None:
            return None
        if found.may_raise:
            raise NeedsSparkError("the condition may raise on a row without a partner")
        node, tokens = parse(text, self.zone)
        nodes = node.children if node.kind == "and" else (node,)
        parts = [tokens.text[tokens.starts[each.first] : tokens.ends[each.last]] for each in nodes]
        for alias, table in self._tables.items():
            own = self._own(parts, alias)
            self._pushed[alias] = table.condition(" AND ".join(f"({each})" for each in own)) if own else None
        return found

    def _own(self, parts: Sequence[str], alias: str) -> list[str]:
        """Those parts of a condition that concern one table alone, without its name."""
        schema = self._tables[alias].schema
        texts = []
        for part in parts:
            with suppress(PipelineError, RuleError):
                texts.append(unqualified(part, alias, schema.names))
        # a part that names a column of the other table is rejected
        compiled = ri.compile_rules(list(enumerate(texts)), schema, "scan", time_zone=self.zone)
        return [] if compiled.derived else [texts[number] for number in compiled.ids.to_pylist()]

    def _owned(self, path: Path) -> tuple[str, str]:
        """The table of a column, and the column's name. NeedsSparkError for a whole table, or an ambiguous name."""
        alias = spelled(list(self._tables), path[0], column_key)
        if alias is not None:
            if len(path) == 1:
                raise NeedsSparkError(f"{alias} is a table")
            name = spelled(self._tables[alias].schema.names, path[1], column_key)
            if name is None:
                raise NeedsSparkError(f"{alias} has no column {path[1]}")
            return alias, name
        owners = [each for each, table in self._tables.items() if table.has_column(path[0])]
        if len(owners) != 1 and path[0] not in self._shared:
            raise NeedsSparkError(f"{path[0]} may be a column of several tables")
        return owners[0], self._tables[owners[0]].column(path[0])

    def _stored_rows(self, asked: Sequence[Path], kept: Condition | None, needs_all: bool) -> Iterator[pa.Table]:
        """The joined rows; the smaller table is kept in memory."""
        wanted: dict[str, dict[str, None]] = {alias: dict.fromkeys(names) for alias, names in self._keys.items()}
        for path in asked:
            if not self._is_new(path[0]):
                alias, name = self._owned(path)
                wanted[alias][name] = None
        small, large = sorted(self._tables, key=lambda alias: self._tables[alias].bytes_of(self._pushed[alias]))
        table, names = self._tables[small], [*wanted[small]]
        nothing = pa.schema([table.schema.field(name) for name in names]).empty_table()
        held = pa.concat_tables([nothing, *table.batches(names, self._pushed[small])]).combine_chunks()
        places = _frame(held, self._keys[small])
        most = max(places.group_by(pl.exclude("row")).len()["len"].to_list(), default=0)
        for batch in self._tables[large].batches([*wanted[large]], self._pushed[large]) if most else ():
            step = max(_MOST_PAIRS // most, 1)
            for start in range(0, batch.num_rows, step):
                rows = batch.slice(start, step)
                keys = [f"k{number}" for number in range(len(self._keys[large]))]
                pairs = _frame(rows, self._keys[large]).join(places, on=keys, suffix="_held")
                found = {large: rows.take(_places(pairs["row"])), small: held.take(_places(pairs["row_held"]))}
                yield self._shown(found)

    def _shown(self, found: dict[str, pa.Table]) -> pa.Table:
        """The rows of both tables, side by side, in those columns and fields of `stored_schema` that were read."""
        columns: dict[str, pa.Array] = {}
        for alias, rows in found.items():
            arrays = [column.combine_chunks() for column in rows.columns]
            columns[alias] = pa.StructArray.from_arrays(arrays, fields=list(rows.schema))
            for name, array in zip(rows.column_names, arrays, strict=True):
                if name in self.stored_schema.names:
                    columns.setdefault(name, array)
        return pa.table(columns)


def _frame(rows: pa.Table, keys: Sequence[str]) -> pl.DataFrame:
    """The key columns of rows as k0, k1, ..., and each row's place as `row`."""
    columns = {f"k{number}": pl.Series(pl.from_arrow(rows.column(name))) for number, name in enumerate(keys)}
    return pl.DataFrame(columns).with_row_index("row")


def _places(column: pl.Series) -> pa.Array:
    return pa.array(column.to_numpy().astype(np.int64))
