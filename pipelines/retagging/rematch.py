"""The index with which tagged rows are matched again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from pipelines.lake.column_types import ARROW_ID_TYPES
from rules_index.names import column_key, field_key, path_parts, spelled
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
    """Returns the columns of a tagged table, and those, or fields of structs, that only its source has yet: they are
    NULL in all its rows."""
    return pa.schema(_with_later(list(held), list(source), column_key))


def _with_later(held: Sequence[pa.Field], source: Sequence[pa.Field], key: Callable[[str], Hashable]) -> list[pa.Field]:
    later = {key(field.name): field for field in source}
    found = []
    for field in held:
        other = later.pop(key(field.name), field)
        if pa.types.is_struct(field.type) and pa.types.is_struct(other.type):
            field = field.with_type(pa.struct(_with_later(list(field.type), list(other.type), field_key)))
        found.append(field)
    return [*found, *later.values()]


def columns_read(table_columns: pa.Schema, partitions: Sequence[str], rematch: Rematch) -> pa.Schema | None:
    """Returns the columns that the rematch's index and its range of rows read. Returns None if one of them is not a
    column of the table, or a field of a struct in it, with this type, or is a partition column of a type whose values
    writers spell differently."""
    columns: dict[str, pa.Field] = {}
    wanted = [] if rematch.rows is None else [([rematch.rows.column], rematch.rows.type)]
    if rematch.rows is not None and rematch.rows.column not in table_columns.names:
        return None  # the source spells it otherwise now
    for leaf in rematch.compiled.inputs if rematch.compiled is not None else ():
        if leaf.text is not None:
            return None
        wanted.append((path_parts(leaf.name), leaf.type))
    for path, kind in wanted:
        name = spelled(table_columns.names, path[0], column_key)
        if name is None or _type_at(table_columns.field(name).type, path[1:]) != kind:
            return None
        if name in partitions and not is_partition_type(kind):
            return None
        columns[name] = table_columns.field(name)
    return pa.schema(list(columns.values()))


def _type_at(kind: pa.DataType, path: Sequence[str]) -> pa.DataType | None:
    """The type of a field within structs; None if there is none."""
    for part in path:
        names = [field.name for field in kind] if pa.types.is_struct(kind) else []
        name = spelled(names, part, field_key)
        if name is None:
            return None
        kind = kind.field(name).type
    return kind
