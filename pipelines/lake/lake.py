"""Where deltatag's tables are, and how they are created, read and written: small ones by delta-rs, without a JVM."""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.error_texts import first_line, why_denied
from pipelines.errors import AccessError, MissingTableError, TableError
from pipelines.lake.added_files import files_in
from pipelines.lake.filtered_rows import filtered_rows
from pipelines.lake.reading import arrow_reads, as_dataset, as_texts, count_rows, read_rows
from pipelines.lake.table_cache import delta_rs_uri, local_folder, refuse_if_not_writable, shared_table, table_to_write
from pipelines.settings.model import LakeSettings
from pipelines.table_definitions import CHECKPOINT_EVERY_IN_STORE, FIXED_TABLES, LAKE_TABLES, Table, scope_of_table
from rules_index.names import quoted_text

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

_ARROW_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
    "map<string,bigint>": pa.map_(pa.string(), pa.int64()),
}


class Lake:
    """deltatag's own tables, below a folder or URI or in a catalog."""

    def __init__(self, settings: LakeSettings, spark: Callable[[], SparkSession]) -> None:
        """`spark` gives the session. It is called only to ask a catalog, or to make a DataFrame."""
        self.settings = settings
        self._spark = spark
        self._locations: dict[str, str] = {}
        self.rules_read: tuple[DeltaTable, Any, Any] | None = None
        """The newest version of `rules`, how it was read last, and what was read: see `pipelines.rule_set`."""
        self.rule_files_read: tuple[pa.Schema, dict[str, pa.Table], int] | None = None
        """The columns of `rules`, the rows of each of its files, and their bytes: see `pipelines.lake.version_rows`."""
        self.run_files_read: dict[str, tuple[pa.Table, int]] = {}
        """The rows of files of `runs`, and their bytes, by path, which names a file for ever: see `run_files`."""
        self.changes_read: tuple[Any, Any] | None = None
        """Which changes of `rules` were read last, and what they were: see `pipelines.compiling.changes`."""
        self.indexes_read: tuple[DeltaTable, dict[Any, Any]] | None = None
        """The newest version of `rule_index`, and what was read of it: see `pipelines.lake.index_store`."""

    def uri(self, name: str) -> str:
        """Path or URI of the table's folder; MissingTableError if a catalog has no such table."""
        if self.settings.root is not None:
            return self.settings.place(name)
        if name not in self._locations:
            self._locations[name] = catalog_location(self._spark(), self.sql_name(name))
        return self._locations[name]

    @property
    def is_in_store(self) -> bool:
        """Whether the tables are at a URI in an object store: where delta-rs commits, no table may be clustered."""
        return self.settings.root is not None and local_folder(self.settings.root) is None

    def sql_name(self, name: str) -> str:
        """How a Spark SQL statement names the table."""
        if self.settings.root is not None:
            return f"delta.`{self.uri(name)}`"
        return self.settings.place(name)

    def exists(self, name: str) -> bool:
        """True if the table is there; AccessError if this user may not look."""
        try:
            if self.is_in_store:
                self._opened(name)  # it is kept open, while `is_table` lists the log each time
                return True
            return is_table(self.uri(name))
        except MissingTableError:
            return False

    def delta(self, name: str, version: int | None = None) -> DeltaTable:
        """The table, to read by delta-rs; MissingTableError, which says how to create it, if there is none."""
        try:
            return self._opened(name, version)
        except MissingTableError as error:
            if name not in _NOT_MADE_AGAIN or self.settings.root is None:
                raise
            if not any(self.exists(each) for each in LAKE_TABLES if each != name):
                raise MissingTableError(
                    f"{error}. If the lake had tables before, its folder was moved or its disk is not mounted: put it "
                    "back first."
                ) from error
            raise MissingTableError(
                f"There is no Delta table at {self.uri(name)} (the table {name}), though the lake has others. If its "
                "folder was removed or renamed, put it back. Otherwise make it, without rows, with: deltatag init"
            ) from error

    def _opened(self, name: str, version: int | None = None) -> DeltaTable:
        moves_on = name in _MOVING_ON and version is None
        return open_delta(self.uri(name), version, f"the table {name}", _how_to_make(name), moves_on)

    def writable(self, name: str) -> DeltaTable:
        """The newest version of the table, to read and write by delta-rs.

        MissingTableError if there is none, TableError if this user may not write it.
        """
        table = self.delta(name)
        if name not in _MOVING_ON:
            return table_to_write(self.uri(name), name)
        refuse_if_not_writable(self.uri(name), name)
        return table

    def version(self, name: str) -> int:
        """The newest Delta version of the table."""
        return int(self.delta(name).version())

    def arrow(
        self,
        name: str,
        columns: list[str] | None = None,
        filters: Sequence[tuple[str, Any]] | pc.Expression | None = None,
        version: int | None = None,
    ) -> pa.Table:
        """Rows of the table, in no particular order; TableError if it cannot be read.

        filters: an Arrow expression, or pairs of column and value that must all be equal.
        """
        from deltalake import exceptions

        table = self.delta(name, version)
        try:
            if isinstance(filters, pc.Expression):
                return filtered_rows(table, columns or [field.name for field in table.schema().fields], filters)
            return self._rows(table, columns, filters or ())
        except (exceptions.DeltaError, OSError, pa.ArrowException) as error:
            raise self.unreadable(name, version, error) from error

    def unreadable(self, name: str, version: int | None, error: Exception) -> TableError:
        """The error for a version of a table, by default the newest, that cannot be read for the reason `error`."""
        if version is not None and version < self.version(name) and is_missing_file(error):
            return TableError(
                f"Version {version} of the table {name} at {self.uri(name)} cannot be read any more: VACUUM has "
                "removed files of it."
            )
        return TableError(f"The table {name} at {self.uri(name)} cannot be read: {first_line(error)}")

    @staticmethod
    def _rows(table: DeltaTable, columns: list[str] | None, equal: Sequence[tuple[str, Any]]) -> pa.Table:
        from deltalake import exceptions

        try:
            return read_rows(table, columns, equal)
        except (exceptions.DeltaError, OSError, pa.ArrowException) as error:
            # one text that is no UTF-8 makes all rows unreadable for delta-rs
            if "UTF-8" not in str(error) or not arrow_reads(table):
                raise
        where = [pc.field(column) == value for column, value in equal]
        return as_texts(as_dataset(table).to_table(columns, functools.reduce(operator.and_, where) if where else None))

    def frame(self, name: str, version: int | None = None) -> DataFrame:
        """The table, at `version` or at its newest one, as a Spark DataFrame; MissingTableError if there is none."""
        if not self.exists(name):
            raise MissingTableError(f"There is no table {name} at {self.uri(name)} yet. {_how_to_make(name)}")
        reader = self._spark().read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self.uri(name)) if self.settings.root is not None else reader.table(self.sql_name(name))

    def rule_id_type(self) -> str:
        """The type of `rules.rule_id`: "string" or "bigint"; TableError if it is another."""
        kind = next(
            (field.type for field in self.delta("rules").schema().fields if field.name.lower() == "rule_id"),
            None,
        )
        return {"string": "string", "long": "bigint"}.get(getattr(kind, "type", ""), "") or _bad_id(kind)

    def create(self, name: str, id_type: str = "string") -> bool:
        """Create one of `FIXED_TABLES`; False, with nothing changed, if it exists."""
        if self.settings.root is None:
            return self._create_in_catalog(name, id_type)
        if self.exists(name):
            return False
        from deltalake import DeltaTable

        table = FIXED_TABLES[name]
        properties, folder = dict(table.properties), local_folder(self.uri(name))
        if folder is None:
            properties["delta.checkpointInterval"] = str(CHECKPOINT_EVERY_IN_STORE)
        else:
            Path(folder).mkdir(parents=True, exist_ok=True)
        DeltaTable.create(
            delta_rs_uri(self.uri(name)),
            arrow_schema(table, id_type),
            mode="ignore",
            partition_by=list(table.partition_by) or None,
            configuration=properties,
            description=table.grain,
        )
        return True

    def _create_in_catalog(self, name: str, id_type: str) -> bool:
        spark, table = self._spark(), FIXED_TABLES[name]
        if spark.catalog.tableExists(self.sql_name(name)):
            return False
        spark.sql(create_statement(self.sql_name(name), table, id_type))
        return True


_NOT_MADE_AGAIN = ("rules", "runs")
"""Tables of a lake whose rows nothing else has."""
_MOVING_ON = ("runs",)
"""Tables of which a process keeps one object, for all reads and writes of the newest version: each run commits three
times to `runs`, looks at it in between, and relies on no version of it."""


def _bad_id(kind: object) -> str:
    name = str(getattr(kind, "type", kind)).upper()
    raise TableError(f"The column rule_id of the table rules is {name}; it must be STRING or BIGINT.")


def _how_to_make(name: str) -> str:
    if name in LAKE_TABLES:
        return "Make it with: deltatag init"
    scope = scope_of_table(name)
    return f"It is made by the first run of deltatag tag {scope}, or of deltatag join {scope} if that is a join."


def arrow_schema(table: Table, id_type: str = "string") -> pa.Schema:
    """The table's columns as Arrow types; `rule_id` has the type `id_type`."""
    fields = []
    for column in table.columns:
        kind = id_type if column.name == "rule_id" and table.name == "rules" else column.type
        fields.append(pa.field(column.name, _ARROW_TYPES[kind], metadata={"comment": column.comment}))
    return pa.schema(fields)


def create_statement(sql_name: str, table: Table, id_type: str = "string") -> str:
    """The CREATE TABLE statement of the table, for Spark SQL."""
    types = [id_type if c.name == "rule_id" and table.name == "rules" else c.type for c in table.columns]
    columns = ", ".join(
        f"{c.name} {kind} COMMENT {quoted_text(c.comment)}" for c, kind in zip(table.columns, types, strict=True)
    )
    partition = f" PARTITIONED BY ({', '.join(table.partition_by)})" if table.partition_by else ""
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in table.properties.items())
    return f"CREATE TABLE IF NOT EXISTS {sql_name} ({columns}) USING DELTA{partition} TBLPROPERTIES ({properties})"


_FAR = 1_000_000
"""A version above which the newest one is looked up first: where a version is missing, delta-rs tries every number
below it, a million in a tenth of a second, and cannot be interrupted."""


def open_delta(uri: str, version: int | None, what: str, advice: str, moves_on: bool = False) -> DeltaTable:
    """The Delta table at `uri`, to read; MissingTableError, AccessError or TableError, which name `what`, on failure.

    It is shared with others (`table_cache.shared_table`, which says what `moves_on` is): write through `Lake.writable`.
    """
    from deltalake import exceptions

    if version is not None and version > _FAR and version > int(open_delta(uri, None, what, advice).version()):
        _refuse_if_version_is_gone(uri, version, what)
    try:
        return shared_table(uri, version, moves_on)
    except exceptions.TableNotFoundError:
        if version is not None:
            _refuse_if_version_is_gone(uri, version, what)
        _refuse_if_denied(uri, what)
        raise MissingTableError(f"There is no Delta table at {uri} ({what}). {advice}") from None
    except (exceptions.DeltaError, OSError, ValueError) as error:
        if version is not None:
            _refuse_if_version_is_gone(uri, version, what)
        if os.path.isfile(local_folder(uri) or ""):
            raise MissingTableError(f"There is no Delta table at {uri} ({what}), but a file. {advice}") from None
        if reason := why_denied(error):
            raise AccessError(f"{_subject(what, uri)} cannot be read: {reason}.") from error
        raise TableError(f"{_subject(what, uri)} cannot be opened: {first_line(error)}") from error


def _subject(what: str, uri: str) -> str:
    """A table as the beginning of a sentence."""
    return f"{what[0].upper()}{what[1:]} at {uri}"


def is_table(uri: str) -> bool:
    """Whether there is a Delta table at `uri`; AccessError if this user may not look."""
    from deltalake import DeltaTable

    try:
        return bool(DeltaTable.is_deltatable(delta_rs_uri(uri)))
    except OSError as error:
        if reason := why_denied(error):
            raise AccessError(f"The table at {uri} cannot be read: {reason}.") from error
        raise


def _refuse_if_denied(uri: str, what: str) -> None:
    """AccessError if this user may not look into the folder of a table: delta-rs reports such a table as missing."""
    folder = local_folder(uri)
    try:
        if folder is not None and os.path.isdir(folder):
            os.scandir(folder).close()
        elif folder is not None:
            os.stat(folder)
    except OSError as error:
        if reason := why_denied(error):
            raise AccessError(f"{_subject(what, uri)} cannot be read: {reason}.") from error


def rows_in(table: DeltaTable) -> int | None:
    """How many rows a table has, by its log; None if the log does not say."""
    if "deletionVectors" in (table.protocol().reader_features or ()):
        # the log counts the rows of files, deleted ones included
        return count_rows(table)
    files = files_in(table)
    rows = files["num_records"] if "num_records" in files.column_names else None
    return None if rows is None or rows.null_count else sum(rows.to_pylist())


def _refuse_if_version_is_gone(uri: str, version: int, what: str) -> None:
    """TableError if the table exists and only this version is missing: no longer kept, or not yet written."""
    from deltalake import exceptions

    try:
        newest = int(shared_table(uri, None).version())
    except (exceptions.DeltaError, OSError, ValueError):
        return
    when = "is newer than the newest one" if version > newest else "was removed by the table's log retention"
    raise TableError(f"Version {version} of {what} at {uri} cannot be read: it {when} ({newest} is the newest).")


def catalog_location(spark: SparkSession, sql_name: str) -> str:
    """The folder of a catalog's Delta table; MissingTableError if the catalog has none of that name."""
    from pyspark.errors import PySparkException

    try:
        row = spark.sql(f"DESCRIBE DETAIL {sql_name}").first()
    except PySparkException as error:
        raise MissingTableError(f"There is no Delta table {sql_name} in the catalog: {first_line(error)}") from None
    assert row is not None
    return str(row["location"])


def is_missing_file(error: Exception) -> bool:
    """Whether the error of reading a table says that a file is missing."""
    return isinstance(error, FileNotFoundError) or "not found" in str(error).lower()
