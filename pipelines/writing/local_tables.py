"""The tables of streams and joins without a JVM: how they are created, and how the files that this process has written
are committed exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from pipelines.annotated import check_widened
from pipelines.errors import NeedsSparkError, TableError
from pipelines.lake.column_types import (
    arrow_schema_of,
    common_fields,
    is_opaque,
    odd_names,
    same_fields,
    spark_name,
    with_later_fields,
)
from pipelines.lake.folder_snapshot import has_ntz
from pipelines.lake.table_log import table_log
from pipelines.lake.transaction_ids import app_of, application, is_done
from pipelines.table_definitions import tagged_table
from pipelines.writing.table_order import is_partition_type

if TYPE_CHECKING:
    from pipelines.lake.folder_snapshot import FolderSnapshot
    from pipelines.lake.lake import Lake
    from pipelines.settings.model import Join, Stream
    from pipelines.writing.configured_tables import ConfiguredTable
    from rules_index.workers.delta_file_writer import Layout

    LayoutOf = Callable[[Lake, str, Sequence[Mapping[str, Any]]], Layout | None]


def prepare_tables(
    lake: Lake,
    scope: Stream | Join,
    tables: Sequence[ConfiguredTable],
    id_type: str,
    from_scratch: bool,
    layout_of: LayoutOf,
) -> None:
    """Create missing tables, empty existing ones if `from_scratch`, and add the columns, and fields of structs, that a
    source has been given since; NeedsSparkError for other changes to existing tables, and odd names of columns.

    layout_of: `writing.files.layout_of`, or for a join `joined_layout_of`.
    """
    for table in tables:
        name, log = table.name, table_log(lake.uri(table.name))
        held = log.latest()
        exists = held.number >= 0
        if (table.kept and not exists) or (exists and from_scratch):
            if odd_names(table.fields):
                raise NeedsSparkError(f"the table {name} has columns whose names need column mapping")
            log.replace(table.definition) if exists else log.create(table.definition)
            held = log.latest()
        if not table.kept:
            continue
        if name == tagged_table(scope):
            check_widened(scope.name, (field["name"] for field in held.fields), scope.annotations, id_type)
        if _only_widened(held.fields, table.fields) and layout_of(lake, name, held.fields) is not None:
            log.add_columns(table.fields)
            held = log.latest()
        if layout_of(lake, name, table.fields) is None:
            raise NeedsSparkError(_why_spark_writes(name, held, table.fields))
        if reason := log.why_spark_commits(held):
            raise NeedsSparkError(f"the table {name} {reason}")


def _why_spark_writes(name: str, held: FolderSnapshot, wanted: Sequence[Mapping[str, Any]]) -> str:
    """A clause on why only Spark writes a table that has no layout for the wanted columns."""
    if opaque := next((each.name for each in arrow_schema_of(wanted) if is_opaque(each.type)), None):
        return f"only Spark reads the column {opaque}"
    types = {field["name"]: field["type"] for field in held.fields}
    if by := next((each for each in held.partition_columns if not is_partition_type(types[each])), None):
        return f"only Spark partitions a table by a {str(types[by]).upper()}, and {name} is partitioned by {by}"
    changed = _changed_types(held.fields, wanted)
    return f"the table {name} has " + (
        f"the column {changed}" if changed else "columns or features that only Spark writes"
    )


def layout_to_write(lake: Lake, name: str, wanted: Sequence[Mapping[str, Any]], layout_of: LayoutOf) -> Layout:
    """The layout of files of a table with the `wanted` columns; NeedsSparkError if only Spark writes them."""
    layout = layout_of(lake, name, wanted)
    if layout is None:
        raise NeedsSparkError(f"the table {name} has columns or features that only Spark writes")
    return layout


def commit_files(
    lake: Lake, name: str, plan: Mapping[str, Any], number: int, entries: Sequence[str], remove: Callable[[], None]
) -> bool:
    """Commit files (their `add` actions as JSON) to a table, as micro-batch `number` of the plan's series.

    Returns False if a concurrent run was first. `remove`, which deletes the files, is called then. It is also called if
    a TableError, which is raised, has left the table without the micro-batch: the files would take space that is needed
    to go on.
    """
    app = app_of(plan, name)
    try:
        entered = table_log(lake.uri(name)).append(entries, app, number)
    except TableError:
        if not is_done(lake, name, app, number):
            remove()
        raise
    if not entered:
        remove()
    return bool(entered)


def fence_off(lake: Lake, series: str, names: Sequence[str], number: int) -> list[str]:
    """Fence off a series in these tables: no run can commit a micro-batch of it any more. Returns the tables that
    already hold its micro-batch `number`."""
    return [
        name
        for name in filter(lake.exists, names)
        if table_log(lake.uri(name)).fence(application(series, name), number)
    ]


def _changed_types(held: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]) -> str | None:
    """A clause on the first column whose type, if plain, differs between a table and its source; None if none does."""
    types = {field["name"]: field for field in held}
    for field in wanted:
        before = types.get(field["name"], field)
        if isinstance(before["type"], str) and isinstance(field["type"], str) and before["type"] != field["type"]:
            kinds = [spark_name(each.type) for each in arrow_schema_of([before, field])]
            return f"{field['name']} as {kinds[0]}, and its source as {kinds[1]}"
    return None


def _only_widened(held: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]) -> bool:
    """Whether all that a table lacks are columns, or fields of structs, that can be appended to it here: Spark must add
    names that need column mapping, and types that need a table feature."""
    widened = with_later_fields(held, wanted)
    is_plain = odd_names(held) == odd_names(widened) and has_ntz(held) == has_ntz(widened)
    written = common_fields(widened, wanted)
    return is_plain and widened != list(held) and same_fields(*(sorted(each, key=_NAME) for each in (written, wanted)))


_NAME = itemgetter("name")
