"""Reads two tables that are joined on equal columns as one table: each is a STRUCT under its name in the statement, and
columns that only one of them has are columns, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property

import pyarrow as pa

import rules_index as ri
from pipelines.errors import NeedsSparkError, PipelineError
from pipelines.local_sql.condition import Condition
from pipelines.local_sql.expressions import is_discrete, unqualified
from pipelines.local_sql.partners import Side, chosen, pairs
from pipelines.local_sql.syntax import LateralView, Path, Select, TableName
from pipelines.local_sql.tables import LocalTable
from pipelines.workspace import Workspace
from rules_index.domains.value_lists import ValueList
from rules_index.errors import RuleError
from rules_index.language.nodes import Node
from rules_index.language.parser import parse
from rules_index.names import column_key, field_key, spelled

_KEEPS_FIRST = frozenset(("LEFT", "FULL", "ANTI"))
"""Joins that keep rows of the first table without a partner."""
_KEEPS_SECOND = frozenset(("RIGHT", "FULL"))
_OF_FIRST_ALONE = frozenset(("SEMI", "ANTI"))
"""Joins that give rows of the first table, without the second one's columns."""


class JoinedTables(LocalTable):
    """Two tables; NeedsSparkError, StatementError and AccessError as for `LocalTable`."""

    def __init__(self, workspace: Workspace, query: Select) -> None:
        assert query.join is not None
        self._begin(TableName("", is_path=True), workspace.configuration.rules.time_zone, is_sure=False)
        self._kind, self._using = query.join.kind, query.join.using
        self._tables: dict[str, LocalTable] = {}
        for name in (query.table, query.join.table):
            if name.qualifier is None:
                raise NeedsSparkError("it joins a table without a name")
            self._tables[name.qualifier] = LocalTable(workspace, name)
        names = [column_key(each) for table in self._tables.values() for each in table.schema.names]
        known = {column_key(each) for each in self._tables}
        if len(known) < 2 or known & set(names):
            raise NeedsSparkError("a table has the name of another one, or of a column")
        self._first, self._second = self._tables
        self._keeps_all = {self._first: self._kind in _KEEPS_FIRST, self._second: self._kind in _KEEPS_SECOND}
        nodes, texts = _parts(query.join.on, self.zone) if query.join.on is not None else ([], [])
        self._keys = self._keys_of([node for node in nodes if _compares_columns(node)])
        others = [text for node, text in zip(nodes, texts, strict=True) if not _compares_columns(node)]
        self._before = self._conditions_before(others)
        self._pushed = {alias: self._tables[alias].condition(_all_of(parts)) for alias, parts in self._before.items()}
        if any(each is not None and each.may_raise for each in self._pushed.values()):
            raise NeedsSparkError("the join's condition may raise on a row without a partner")

    def _keys_of(self, equal: Sequence[Node]) -> dict[str, list[str]]:
        """For each table the columns that must be equal to the other one's. NeedsSparkError if there are none, or if
        a pair is neither of integers nor of one type whose equal values are identical."""
        found = [dict.fromkeys(self._tables, name) for name in self._using]
        found += [dict(self._owned(tuple(each.value), self._tables) for each in node.children) for node in equal]
        keys: dict[str, list[str]] = {alias: [] for alias in self._tables}
        for pair in found:
            if len(pair) < 2:
                raise NeedsSparkError("it compares a table with itself")
            for alias, name in pair.items():
                keys[alias].append(self._tables[alias].column(name))
            kinds = [self._tables[alias].schema.field(names[-1]).type for alias, names in keys.items()]
            is_whole = all(map(pa.types.is_integer, kinds))
            if not is_whole and (len(set(kinds)) > 1 or not is_discrete(kinds[0])):
                raise NeedsSparkError("it joins on columns that only Spark compares")
        if not found:
            raise NeedsSparkError("it joins tables without equal columns")
        return keys

    def _conditions_before(self, texts: Sequence[str]) -> dict[str, list[str]]:
        """For each table the parts of ON that its rows must satisfy before they are joined. NeedsSparkError if another
        part is about both tables, or about one whose rows are kept all the same."""
        found: dict[str, list[str]] = {alias: [] for alias in self._tables}
        left = dict(enumerate(texts))
        if left:
            schema = self._schema_of(self._tables)
            compiled = ri.compile_rules(list(left.items()), schema, "scan", time_zone=self.zone)
            if len(compiled) < len(left):
                raise NeedsSparkError("only Spark evaluates the join's condition")
        for alias in self._tables:
            if left and not self._keeps_all[alias]:
                own = {place: part for place, part in self._own(texts, alias).items() if place in left}
                found[alias] += own.values()
                left = {place: text for place, text in left.items() if place not in own}
        if left:
            raise NeedsSparkError(f"the join's condition has {next(iter(left.values()))}")
        return found

    @cached_property
    def stored_schema(self) -> pa.Schema:
        """A STRUCT for each table, the columns that only one of them has, and those of USING."""
        return self._schema_of(self._shown_tables)

    @property
    def _shown_tables(self) -> list[str]:
        """The tables whose columns the result may have."""
        return [self._first] if self._kind in _OF_FIRST_ALONE else [*self._tables]

    def _schema_of(self, aliases: Iterable[str]) -> pa.Schema:
        tables = {alias: self._tables[alias] for alias in aliases}
        structs = [pa.field(alias, pa.struct(list(table.schema))) for alias, table in tables.items()]
        shared = [self._tables[self._of_shared].schema.field(name) for name in self._shared] if len(tables) > 1 else []
        fields = [field for table in tables.values() for field in table.schema]
        count = Counter(field_key(field.name) for field in fields)
        return pa.schema([*structs, *shared, *(field for field in fields if count[field_key(field.name)] == 1)])

    @property
    def _of_shared(self) -> str:
        """The table whose values the columns of USING have."""
        return self._second if self._kind == "RIGHT" else self._first

    @cached_property
    def _shared(self) -> list[str]:
        """The columns of USING, in the first table's spelling, if that is the second one's and the statement's. None
        where they have values of both tables."""
        first, second = self._tables.values()
        names = self._using if self._kind != "FULL" else ()
        return [name for name in names if name in first.schema.names and name in second.schema.names]

    def explode(self, view: LateralView) -> None:
        """Like `LocalTable.explode`."""
        if any(table.has_column(name) for table in self._tables.values() for name in view.names):
            raise NeedsSparkError(f"{' or '.join(view.names)} may name several columns")
        super().explode(view)

    def use_lists(self, lists: tuple[ValueList, ...]) -> None:
        """Like `LocalTable.use_lists`."""
        for table in self._tables.values():
            table.use_lists(lists)
        super().use_lists(lists)

    def all_columns(self) -> list[Path]:
        """What `*` stands for; NeedsSparkError with USING, which puts columns together."""
        if self._using or self._exploded:
            raise NeedsSparkError("only Spark knows the columns of this join")
        return [(alias, name) for alias in self._shown_tables for name in self._tables[alias].schema.names]

    def fields_of(self, parts: Path) -> list[Path]:
        """Like `LocalTable.fields_of`; NeedsSparkError for a table with USING, whose columns come first there."""
        if self._using and len(parts) == 1 and spelled(list(self._tables), parts[0], column_key) is not None:
            raise NeedsSparkError("only Spark knows the order of this table's columns")
        return super().fields_of(parts)

    def shown_path(self, parts: Path) -> Path:
        """Like `LocalTable.shown_path`."""
        return parts[1:] if spelled(list(self._tables), parts[0], column_key) is not None else parts

    def condition(self, text: str | None) -> Condition | None:
        """Like `LocalTable.condition`, but only of what is left: parts that concern one table alone are evaluated
        before the join, if rows that they refuse change nothing there."""
        found = super().condition(text)
        if found is None or text is None:
            return None
        if found.may_raise:
            raise NeedsSparkError("the condition may raise on a row without a partner")
        _, parts = _parts(text, self.zone)
        left = dict(enumerate(parts))
        for alias in self._shown_tables:
            own = self._preceding(self._own(parts, alias), alias)
            self._pushed[alias] = self._tables[alias].condition(_all_of([*self._before[alias], *own.values()]))
            if not self._keeps_all[self._other(alias)]:
                left = {n: part for n, part in left.items() if n not in own}
        return super().condition(_all_of([*left.values()]))

    def _other(self, alias: str) -> str:
        return self._second if alias == self._first else self._first

    def _preceding(self, parts: dict[int, str], alias: str) -> dict[int, str]:
        """Those parts of WHERE that concern one table and may be evaluated before the join: rows of the other table
        that lose their partner thereby must not satisfy them."""
        if not parts or not self._keeps_all[self._other(alias)]:
            return parts
        schema = self._tables[alias].schema
        compiled = ri.compile_rules(list(parts.items()), schema, "scan", time_zone=self.zone, lists=self._lists)
        nothing = Side(schema, (), keeps_all=False).nulls(1)
        _, satisfied, errors = compiled.match_ordinals(nothing)
        kept = {*compiled.ids.take(pa.array(satisfied)).to_pylist(), *errors}
        return {place: part for place, part in parts.items() if place not in kept}

    def _own(self, parts: Sequence[str], alias: str) -> dict[int, str]:
        """Those parts of a condition that concern one table alone, without its name, by their places."""
        schema = self._tables[alias].schema
        texts = {}
        for place, part in enumerate(parts):
            with suppress(PipelineError, RuleError):
                texts[place] = unqualified(part, alias, schema.names)
        # a part that names a column of the other table is rejected
        compiled = ri.compile_rules(list(texts.items()), schema, "scan", time_zone=self.zone, lists=self._lists)
        return {} if compiled.derived else {place: texts[place] for place in compiled.ids.to_pylist()}

    def _owned(self, path: Path, among: Iterable[str]) -> tuple[str, str]:
        """The table of a column, and the column's name. NeedsSparkError for a whole table, or an ambiguous name."""
        alias = spelled(list(among), path[0], column_key)
        if alias is not None:
            if len(path) == 1:
                raise NeedsSparkError(f"{alias} is a table")
            name = spelled(self._tables[alias].schema.names, path[1], column_key)
            if name is None:
                raise NeedsSparkError(f"{alias} has no column {path[1]}")
            return alias, name
        owners = [each for each in among if self._tables[each].has_column(path[0])]
        if len(owners) > 1 and path[0] in self._shared:
            owners = [self._of_shared]
        if len(owners) != 1:
            raise NeedsSparkError(f"{path[0]} may be a column of several tables")
        return owners[0], self._tables[owners[0]].column(path[0])

    def _stored_rows(self, asked: Sequence[Path], kept: Condition | None, needs_all: bool) -> Iterator[pa.Table]:
        """The joined rows; the smaller table is kept in memory."""
        wanted: dict[str, dict[str, None]] = {alias: dict.fromkeys(names) for alias, names in self._keys.items()}
        for path in asked:
            if not self._is_new(path[0]):
                alias, name = self._owned(path, self._shown_tables)
                wanted[alias][name] = None
        sides, batches = {}, {}
        for alias, table in self._tables.items():
            schema = pa.schema([table.schema.field(name) for name in wanted[alias]])
            sides[alias] = Side(schema, self._keys[alias], self._keeps_all[alias])
            batches[alias] = table.batches(schema.names, self._pushed[alias])
        if self._kind in _OF_FIRST_ALONE:
            first, second = self._first, self._second
            both = (sides[first], batches[first], sides[second], batches[second])
            for rows in chosen(*both, has_partner=self._kind == "SEMI"):
                yield self._shown({first: rows})
            return
        small, large = sorted(self._tables, key=lambda alias: self._tables[alias].bytes_of(self._pushed[alias]))
        for held, rows in pairs(sides[small], batches[small], sides[large], batches[large]):
            yield self._shown({small: held, large: rows})

    def _shown(self, found: dict[str, pa.Table]) -> pa.Table:
        """The rows of both tables, side by side, in those columns and fields of `stored_schema` that were read."""
        columns: dict[str, pa.Array] = {}
        for alias, rows in found.items():
            arrays = [column.combine_chunks() for column in rows.columns]
            columns[alias] = pa.StructArray.from_arrays(arrays, fields=list(rows.schema))
            columns |= {
                name: array
                for name, array in zip(rows.column_names, arrays, strict=True)
                if name in self.stored_schema.names and (name not in self._shared or alias == self._of_shared)
            }
        return pa.table(columns)


def _parts(text: str, zone: str) -> tuple[list[Node], list[str]]:
    """The operands of the ANDs of a condition, and their texts."""
    node, tokens = parse(text, zone)
    nodes = list(node.children) if node.kind == "and" else [node]
    return nodes, [tokens.text[tokens.starts[each.first] : tokens.ends[each.last]] for each in nodes]


def _compares_columns(node: Node) -> bool:
    return node.kind == "compare" and node.value == "=" and all(each.kind == "column" for each in node.children)


def _all_of(parts: Sequence[str]) -> str | None:
    return " AND ".join(f"({each})" for each in parts) or None
