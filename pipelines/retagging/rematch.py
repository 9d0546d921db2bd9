"""The index with which tagged rows are matched again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from pipelines.lake.column_types import ARROW_ID_TYPES
from rules_index.names import column_key, path_parts, spelled
from rules_index.workers.retagged_rows import ReplacedIds, RowRange
from rules_index.workers.source_file_reader import is_partition_type

if TYPE_CHECKING:
    import rules_index as ri
    from pipelines.retagging.changes import Changes
    from pipelines.writing.matching import Matcher
    from rules_index.implication.widening import Widened
    from rules_index.index.annotations import Annotations


@dataclass(frozen=True)
class Rematch:
    """The rules with which rows are matched again.

    compiled, matcher: the index of the rules that differ, and what applies it in Spark; None if there are no such
    rules. former: an index of the rules that these replace, None if it cannot be made. rows: the rows to match again,
    None for all. annotations: what rows get besides ids, by all rules of the newest index.
    """

    changes: Changes
    id_type: str
    compiled: ri.CompiledRules | None = None
    matcher: Matcher | None = None
    former: ri.CompiledRules | None = None
    rows: RowRange | None = None
    annotations: Annotations | None = None

    @property
    def replaced(self) -> ReplacedIds:
        """The ids to replace, in the form that workers take."""
        kind = ARROW_ID_TYPES[self.id_type]
        return ReplacedIds(kind, pa.array(self.changes.ids_in_rows, kind), self.changes.everything, self.annotations)

    @property
    def condition(self) -> str | None:
        """A condition in SQL that is TRUE on every row whose ids can change; None if there is no useful one."""
        if self.changes.everything or (self.former is None and not self.changes.former.is_empty()):
            return None
        conditions = [matchable(each) for each in (self.compiled, self.former) if each is not None]
        return None if None in conditions else " OR ".join(f"({each})" for each in conditions) or "false"


def matchable(compiled: ri.CompiledRules | None) -> str | None:
    """A condition in SQL that is TRUE on every row that a rule of an index matches; None if there is no useful one."""
    filters = widened(compiled)
    return " OR ".join(each.sql for each in filters) if filters else None


def widened(*indexes: ri.CompiledRules | None) -> list[Widened] | None:
    """Returns, for each index that is not None, a filter over plain columns that is TRUE on every row that a rule of
    the index matches. Returns None if one of these filters would be no restriction."""
    given = [each for each in indexes if each is not None]
    if not given:
        return []
    from pipelines.sources.pushdown import CONJUNCTIONS
    from rules_index.implication.widening import widen_compiled

    filters = [widen_compiled(each, CONJUNCTIONS) for each in given]
    return None if any(each.sql == "true" for each in filters) else filters


def with_source_columns(held: pa.Schema, source: pa.Schema) -> pa.Schema:
    """Returns the columns of a tagged table, and those that only its source has yet: they are NULL in all its rows."""
    names = {column_key(name) for name in held.names}
    return pa.schema([*held, *(field for field in source if column_key(field.name) not in names)])


def columns_read(table_columns: pa.Schema, partitions: Sequence[str], rematch: Rematch) -> pa.Schema | None:
    """Returns the columns that the rematch's index and its range of rows read. Returns None if one of them is not a
    plain column of the table with this type, or is a partition column of a type whose values writers spell
    differently."""
    columns: dict[str, pa.Field] = {}
    wanted: list[tuple[str, pa.DataType]] = [] if rematch.rows is None else [(rematch.rows.column, rematch.rows.type)]
    for leaf in rematch.compiled.inputs if rematch.compiled is not None else ():
        parts = path_parts(leaf.name)
        name = spelled(table_columns.names, parts[0], column_key)
        if leaf.text is not None or name is None or len(parts) > 1:
            return None
        wanted.append((name, leaf.type))
    for name, kind in wanted:
        if name not in table_columns.names or table_columns.field(name).type != kind:
            return None
        if name in partitions and not is_partition_type(kind):
            return None
        columns[name] = table_columns.field(name)
    return pa.schema(list(columns.values()))
