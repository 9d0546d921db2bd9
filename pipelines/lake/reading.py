"""Reads rows and file lists of small Delta tables by delta-rs."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.lake.added_files import files_in
from pipelines.lake.table_cache import local_folder
from rules_index.arrays import is_text, valid_texts

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow.dataset import FileSystemDataset, ParquetFileFragment, ParquetReadOptions
    from pyarrow.fs import FileSystem


_NANOSECONDS = ((1 << 63) - 1) // 1_000
"""The most microseconds since 1970 that fit in a timestamp in nanoseconds."""
_WIDENED = frozenset({"typeWidening", "typeWidening-preview"})
_BESIDES = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""Table features that `_widened_rows` can do with."""
FILE_COLUMN = "__filename"
"""The column by which Arrow gives the file that a row is read from."""
_ARROWS_COLUMNS = frozenset({FILE_COLUMN, "__fragment_index", "__batch_index", "__last_in_fragment"})
"""Columns that Arrow adds to those of files; it reads no files that have one."""


def read_rows(
    table: DeltaTable, columns: Sequence[str] | None = None, equal: Sequence[tuple[str, Any]] = ()
) -> pa.Table:
    """The rows of a table whose columns have these values, in no particular order. Raises what delta-rs and Arrow
    raise.

    A table in a folder is read by Arrow: the query engine of delta-rs takes 30 MB in memory for its first query.
    """
    if arrow_reads(table) and local_folder(table.table_uri) is not None:
        files = _files_with(table, equal)
        if not _are_elsewhere(files):
            return _rows_by_arrow(table, files, columns, equal)
    if _is_only_widened(table):
        rows = _widened_rows(table, columns, [column for column, _ in equal])
        for column, value in equal:
            rows = rows.filter(pc.field(column) == value)
        return rows if columns is None else rows.select(columns)
    chosen = ", ".join(map(quoted, columns)) if columns is not None else "*"
    where = " AND ".join(f"{quoted(column)} = {literal(value)}" for column, value in equal)
    found = _query(table, f"SELECT {chosen} FROM rows" + (f" WHERE {where}" if where else ""))
    return found.cast(pa.schema([plain_field(field) for field in found.schema]))


def _rows_by_arrow(
    table: DeltaTable, files: pa.Table, columns: Sequence[str] | None, equal: Sequence[tuple[str, Any]]
) -> pa.Table:
    """Like `read_rows`, of some files, given as by `files_in`."""
    # the cast is for files of delta-rs's MERGE and UPDATE, whose texts are views: Arrow compares these with no text
    parts = [pc.field(column).cast(pa.scalar(value).type) == value for column, value in equal]
    where = functools.reduce(operator.and_, parts) if parts else None
    return as_texts(_dataset_of(table, files).to_table(columns and [*columns], where))


def _are_elsewhere(files: pa.Table) -> bool:
    """Whether a file is in another folder, as those of a shallow clone are, which the log names by their URIs."""
    return bool(pc.any(pc.match_substring(files["path"], "://")).as_py())


def _is_only_widened(table: DeltaTable) -> bool:
    """Whether delta-rs does not read the table's rows (1.6) for the sole reason that it may have widened types."""
    features = set(table.protocol().reader_features or ())
    return bool(features & _WIDENED) and not _is_mapped(table) and features <= _WIDENED | _BESIDES


def _widened_rows(table: DeltaTable, columns: Sequence[str] | None, others: Sequence[str]) -> pa.Table:
    """Some columns of all rows, or all of them; those of files that were written before a type was widened are cast."""
    schema = pa.schema(table.schema())
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in dict.fromkeys([*columns, *others])])
    parts = [schema.empty_table()]
    for file in files_in(table).to_pylist():
        rows = read_file(table, unquote(file["path"]), schema)
        for name, value in (file.get("partition") or {}).items():
            if name in schema.names:
                held = pa.repeat(pa.scalar(value, schema.field(name).type), len(rows))
                rows = rows.set_column(schema.get_field_index(name), schema.field(name), held)
        parts.append(rows)
    return pa.concat_tables(parts)


def arrow_reads(table: DeltaTable) -> bool:
    """Whether the files of a table have its rows and columns as they are, and delta-rs gives them as a dataset: no
    deletion vectors, no column mapping, no checkpoints of version 2 and the like, and no column with the name of one
    that Arrow adds.

    In a table with column mapping that does not name it as a feature, delta-rs gives NULL for each column whose name in
    the files is another one.
    """
    from deltalake.table import SUPPORTED_READER_FEATURES

    if _is_mapped(table) or not _ARROWS_COLUMNS.isdisjoint(field.name for field in table.schema().fields):
        return False
    return set(table.protocol().reader_features or ()) <= SUPPORTED_READER_FEATURES


def _is_mapped(table: DeltaTable) -> bool:
    return (table.metadata().configuration.get("delta.columnMapping.mode") or "none").lower() != "none"


def zoned_partitions(table: DeltaTable, zone: str) -> list[str]:
    """The TIMESTAMP columns by which a table is partitioned. Their values are texts without a zone: for Spark they are
    in that of the session, but for delta-rs in UTC. So there are none if `zone` is UTC."""
    if zone == "UTC":
        return []
    types = {field.name: field.type for field in pa.schema(table.schema().to_arrow())}
    columns = table.metadata().partition_columns
    return [name for name in columns if getattr(types[name], "tz", None) is not None]


def as_dataset(table: DeltaTable) -> FileSystemDataset:
    """The table as an Arrow dataset. Raises what delta-rs raises for a table that it cannot read, and its
    DeltaProtocolError for one whose files Arrow reads otherwise (`arrow_reads`).

    Arrow's own file system is used for folders. delta-rs's is written in Python; if an Arrow thread closes a file of it
    after the interpreter has ended, the process aborts. That happened in one of about forty short runs, after all work
    was done.
    """
    from deltalake.exceptions import DeltaProtocolError

    if not arrow_reads(table):
        raise DeltaProtocolError("the table has deletion vectors, column mapping or the like")
    files = _file_system(table) if local_folder(table.table_uri) is not None else None
    try:
        found = table.to_pyarrow_dataset(filesystem=files, parquet_read_options=_read_options())
    except (ValueError, OverflowError):  # a bound is a time of a year that Python lacks
        return _dataset_of(table, files_in(table))
    return _without_null_bounds(found, table)


def _read_options() -> ParquetReadOptions:
    """Spark writes timestamps as INT96, which Arrow otherwise reads in nanoseconds: these end in the year 2262."""
    from pyarrow.dataset import ParquetReadOptions

    return ParquetReadOptions(coerce_int96_timestamp_unit="us")


def _file_system(table: DeltaTable) -> FileSystem:
    """The file system of a table's files; their paths in it are relative to the table's folder."""
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import LocalFileSystem, PyFileSystem, SubTreeFileSystem

    folder = local_folder(table.table_uri)
    if folder is None:
        return PyFileSystem(DeltaStorageHandler.from_table(table._table))
    return SubTreeFileSystem(folder, LocalFileSystem())


def rows_by_file(table: DeltaTable, paths: Sequence[str], where: pc.Expression | None = None) -> dict[str, pa.Table]:
    """For each of some files, given by their paths in the log, its rows that satisfy the condition.

    The table must have no partitions, and Arrow must read its files (`arrow_reads`).
    Columns that a file lacks are NULL. Raises what Arrow raises.
    """
    from pyarrow.dataset import FileSystemDataset, ParquetFileFormat

    system = _file_system(table)
    schema = pa.schema(table.schema().to_arrow())
    options = ParquetFileFormat(read_options=_read_options())
    by_name = {unquote(path): path for path in paths}
    files = [options.make_fragment(name, system) for name in by_name]
    rows = FileSystemDataset(files, schema, options, system).to_table([*schema.names, FILE_COLUMN], filter=where)
    found = dict.fromkeys(paths, schema.empty_table())
    start = 0
    runs = pc.run_end_encode(rows[FILE_COLUMN].combine_chunks())  # the rows of one file follow each other
    rows = as_texts(rows.drop_columns(FILE_COLUMN))
    for name, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        found[by_name[name]] = rows.slice(start, end - start)
        start = end
    return found


def _without_null_bounds(dataset: FileSystemDataset, table: DeltaTable) -> FileSystemDataset:
    """The dataset, in which only partition values describe files whose statistics lack a bound.

    delta-rs (1.6) takes a missing bound for NULL, and Arrow then finds no row of the file by a filter on that column.
    """
    from pyarrow.dataset import FileSystemDataset, get_partition_keys

    partition = table.metadata().partition_columns

    def described(file: ParquetFileFragment) -> ParquetFileFragment:
        """The file, described by its partition values alone if it lacks a bound."""
        if " null[" not in str(file.partition_expression):
            return file
        known = get_partition_keys(file.partition_expression)
        values = {name: pa.scalar(known[name], dataset.schema.field(name).type) for name in partition}
        return file.format.make_fragment(file.path, file.filesystem, _all_equal(values))

    files = [described(file) for file in dataset.get_fragments()]
    return FileSystemDataset(files, dataset.schema, dataset.format, dataset.filesystem)


def _dataset_of(table: DeltaTable, files: pa.Table) -> FileSystemDataset:
    """Some files of the table, given as by `files_in`, as a dataset in which only partition values describe them."""
    from pyarrow.dataset import FileSystemDataset, ParquetFileFormat

    schema = pa.schema(table.schema().to_arrow())
    file_format, system = ParquetFileFormat(read_options=_read_options()), _file_system(table)
    partitions = files["partition"] if "partition" in files.column_names else [{}] * len(files)
    fragments = [
        file_format.make_fragment(
            unquote(path.as_py()), system, _all_equal({k: v.cast(schema.field(k).type) for k, v in values.items()})
        )
        for path, values in zip(files["path"], partitions, strict=True)
    ]
    return FileSystemDataset(fragments, schema, file_format, system)


def _files_with(table: DeltaTable, equal: Sequence[tuple[str, Any]]) -> pa.Table:
    """The files of a table, as `files_in` gives them, whose partition and bounds in the log do not exclude that columns
    have these values."""
    files = files_in(table)
    for column, value in equal:
        if column in table.metadata().partition_columns:
            files = files.filter(pc.equal(pc.struct_field(files["partition"], column), value))
            continue
        for bound, excludes in (("min", pc.greater), ("max", pc.less)):
            held = _bounds(files, bound, column)
            if held is not None and (is_text(held.type) if isinstance(value, str) else pa.types.is_integer(held.type)):
                outside = excludes(held.cast(pa.scalar(value).type), value)
                files = files.filter(pc.invert(pc.fill_null(outside, False)))
    return files


def _bounds(files: pa.Table, bound: str, column: str) -> pa.ChunkedArray | None:
    """The minima or maxima ("min", "max") of a column in files, given as by `files_in`; None if the log has none."""
    if bound not in files.column_names or files.schema.field(bound).type.get_field_index(column) < 0:
        return None
    return pc.struct_field(files[bound], column)


def _all_equal(values: Mapping[str, pa.Scalar]) -> pc.Expression | None:
    """The condition that columns have these values; None for no columns."""
    parts = [pc.field(k) == v if v.is_valid else pc.field(k).is_null() for k, v in values.items()]
    return functools.reduce(operator.and_, parts) if parts else None


def rewrite_alters_times(table: DeltaTable) -> bool:
    """Whether delta-rs would change timestamps in rows that it writes again, as UPDATE and MERGE do.

    It reads those of type INT96, as Spark writes them, in nanoseconds, and only the years 1678 to 2261 fit in these.
    True also for INT96 within nested columns.
    """
    if not arrow_reads(table):
        return False
    dataset = as_dataset(table)
    for file in dataset.get_fragments() if "timestamp" in dataset.schema.to_string() else ():
        parts = file.metadata.schema
        paths = [each.path for each in map(parts.column, range(len(parts))) if each.physical_type == "INT96"]
        if not set(paths) <= set(dataset.schema.names):
            return True
        times = file.to_table(dataset.schema, columns=paths).columns if paths else ()
        if any(pc.any(pc.greater(pc.abs(each.cast(pa.int64())), _NANOSECONDS)).as_py() for each in times):
            return True
    return False


def batches_of(
    table: DeltaTable, columns: Sequence[str], where: pc.Expression | None = None
) -> Iterator[pa.RecordBatch]:
    """Some columns of the rows, which must include those that `where` names, in batches. If Arrow does not read the
    table's files as they are, all rows are read at once. Raises what delta-rs and Arrow raise."""
    if arrow_reads(table):
        yield from as_dataset(table).to_batches(columns=list(columns), filter=where)
        return
    rows = read_rows(table, list(columns))
    yield from (rows if where is None else rows.filter(where)).to_batches()


def as_texts(rows: pa.Table) -> pa.Table:
    """The rows with NULL in place of a text that is no UTF-8, and U+FFFD in place of such bytes within other values.

    Spark writes such texts (`CAST(X'FF' AS STRING)`), and Arrow reads them without a complaint.
    """
    columns = [_as_text(column) for column in rows.columns]
    return pa.table(columns, rows.schema)


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        pass
    else:
        return column
    kind = column.type
    if is_text(kind):
        return pa.chunked_array([valid_texts(column)])
    if pa.types.is_map(kind):
        # a key is never NULL
        binary = pa.map_(pa.large_binary(), pa.large_binary())
        items = column.cast(binary).to_pylist()
        maps = [None if each is None else [(_replaced(k), _replaced(v)) for k, v in each] for each in items]
        return pa.chunked_array([pa.array(maps, kind)])
    return column


def _replaced(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")


def count_rows(table: DeltaTable) -> int:
    """How many rows a table has, deleted ones left out."""
    return int(_query(table, "SELECT count(*) AS n FROM rows")["n"][0].as_py())


def read_file(table: DeltaTable, path: str, schema: pa.Schema) -> pa.Table:
    """The rows of one file, given by its path in the log; columns that the file lacks are NULL. ArrowInvalid, which
    names the file, if it is damaged."""
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import PyFileSystem

    files = PyFileSystem(DeltaStorageHandler.from_table(table._table))
    with files.open_input_file(path) as opened:
        data = opened.read()
    # Arrow's threads keep the buffer beyond the call; if Python owned it, they would abort a process that is ending
    owned = pa.allocate_buffer(len(data))
    memoryview(owned).cast("B")[:] = data
    try:
        # Spark writes timestamps as INT96
        file = pq.ParquetFile(pa.BufferReader(owned), coerce_int96_timestamp_unit="us")
        read = file.read([name for name in file.schema_arrow.names if name in schema.names])
    except (pa.ArrowInvalid, OSError) as error:
        raise pa.ArrowInvalid(f"{path} is damaged: {error}") from error
    columns = [
        read.column(field.name).cast(field.type)
        if field.name in read.column_names
        else pa.nulls(read.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _query(table: DeltaTable, text: str) -> pa.Table:
    """The result of a query that names the table `rows`."""
    from deltalake import QueryBuilder

    # as for `as_dataset`
    query = QueryBuilder({"datafusion.execution.parquet.coerce_int96": "us"}).register("rows", table)
    return pa.RecordBatchReader.from_stream(query.execute(text)).read_all()


def plain_field(field: pa.Field) -> pa.Field:
    """The field with plain strings and bytes: delta-rs gives view types, which few functions of Arrow support."""
    kind, t = field.type, pa.types
    if t.is_string_view(kind):
        kind = pa.string()
    elif t.is_binary_view(kind):
        kind = pa.binary()
    elif t.is_list(kind):
        kind = pa.list_(plain_field(kind.value_field))
    elif t.is_struct(kind):
        kind = pa.struct([plain_field(each) for each in kind])
    elif t.is_map(kind):
        kind = pa.map_(plain_field(kind.key_field), plain_field(kind.item_field))
    return field.with_type(kind)


def quoted(column: str) -> str:
    """A column's name as a quoted identifier for delta-rs."""
    return '"' + column.replace('"', '""') + '"'


def literal(value: Any) -> str:
    """A text or number as a SQL literal for delta-rs."""
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
