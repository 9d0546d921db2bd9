"""Matches tagged rows again in Spark: finds the files in which rows change, and rewrites them in one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, functions

from pipelines.lake.add_actions import file_name
from pipelines.lake.column_types import ARROW_ID_TYPES, arrow_schema_of, plain_fields
from pipelines.recovery.jvm_restart import batch_time_limit
from pipelines.retagging import worker_files
from pipelines.retagging.rematch import Rematch
from pipelines.retagging.row_range import in_range
from pipelines.retagging.tables import ChangedFiles
from pipelines.spark.arrow_batches import map_batches
from pipelines.spark.delta_internals import COMMIT_VERSION, TableLog
from pipelines.spark.failures import run
from pipelines.table_definitions import tagged_table
from pipelines.writing.annotated_rows import annotation_columns_of
from pipelines.writing.files import discard, folder_of, layout_of
from pipelines.writing.matching import bound_batches
from pipelines.writing.worker_writes import codec, run_task
from rules_index.names import back_quoted, path_parts
from rules_index.workers.retagged_files import FileTask
from rules_index.workers.retagged_rows import COUNTS, FILE, IN_RANGE, ReplacedIds
from rules_index.workers.tagged_files import RESULT
from rules_index.workers.task import Task

if TYPE_CHECKING:
    from pipelines.sources.positions import Add
    from pipelines.workspace import Workspace


class TaggedRows:
    """The rows of one tagged table."""

    def __init__(self, workspace: Workspace, scope: str, missing: Sequence[tuple[str, Any]] = ()) -> None:
        """missing: columns, with Spark's types, that the source has and the table lacks; they are NULL here."""
        self.workspace, self.name = workspace, tagged_table(scope)
        self.spark, self.lake, self.missing = workspace.spark, workspace.lake, missing
        self.log = TableLog(workspace.spark, workspace.lake.uri(self.name))

    def find(self, version: int, rematch: Rematch) -> ChangedFiles:
        """Find the files of a version in which the rematch changes rows; nothing is written."""
        files = self.candidates(version, rematch.condition)
        if not files:
            return ChangedFiles(version, (), files_read=0)
        self.workspace.progress(f"{self.name}: matching the rows of {len(files):,} files again")
        with self.limit(files, rematch):
            counted = run(lambda: self._counted(version, files, rematch), f"match the rows of {self.name} again")
        changed: dict[int, int] = {}
        for number, rows, _ in counted:
            changed[number] = changed.get(number, 0) + rows
        kept = tuple(files[number] for number in sorted(changed))
        return ChangedFiles(version, kept, sum(changed.values()), sum(emptied for _, _, emptied in counted), len(files))

    def _counted(self, version: int, files: Sequence[Add], rematch: Rematch) -> list[tuple[int, int, int]]:
        """Counts by file number: the number of rows that change, and of those that have no id left. A file may occur
        several times."""
        index = rematch.matcher.file if rematch.matcher is not None else None
        task = self._file_task(version, files, rematch, {})
        if task is not None:
            return worker_files.count_changes(self.spark, index, task, files)
        rows = self._rows(version, files, rematch, rematch.condition)
        rows = rows.select(*(functions.col(back_quoted(name)) for name in self._read_columns(rematch)))
        bound_batches(self.workspace, tuple(files))
        found = map_batches(rows, _counter(index, rematch.replaced), COUNTS).collect()
        return [(row["file"], row["changed"], row["emptied"]) for row in found]

    def _file_task(
        self, version: int, files: Sequence[Add], rematch: Rematch, stamps: Mapping[str, Any]
    ) -> FileTask | None:
        snapshot = self.log.snapshot(version)
        columns = self.log_schema(version)
        return worker_files.file_task(self.spark, self.lake, self.name, snapshot, columns, rematch, files, stamps)

    def candidates(self, version: int, condition: str | None) -> tuple[Add, ...]:
        """The files of a version that may have rows on which a condition is TRUE, by their statistics; None: all."""
        adds = self.log.files(self.log.snapshot(version))
        if condition is None:
            return tuple((version, add) for add in adds)
        rows = self.spark.read.format("delta").option("versionAsOf", version).load(self.log.uri)
        try:
            kept = {file_name(path) for path in self._with_missing(rows).filter(condition).inputFiles()}
        except PySparkException:  # the condition names a field that the table lacks
            return tuple((version, add) for add in adds)
        return tuple((version, add) for add in adds if file_name(add["path"]) in kept)

    def columns(self) -> pa.Schema:
        """The newest columns, followed by the missing ones."""
        return arrow_schema_of(self._with_missing(self.lake.frame(self.name)).schema.jsonValue()["fields"])

    def frame(self, version: int, files: Sequence[Add]) -> DataFrame:
        """The rows of some files, with the missing columns."""
        rows = self.log.frame(self.log.snapshot(version), list(files)).drop(COMMIT_VERSION)
        return self._with_missing(rows)

    def write(
        self, found: ChangedFiles, rematch: Rematch, stamps: Mapping[str, Any], only_matched: bool,
        further: DataFrame | None, app: str, number: int, marks: Sequence[str],
    ) -> int | None:  # fmt: skip
        """Rewrite the found files with the rows' new ids, and write `further` rows.

        All is one commit, with transaction `number` of `app` and of each of `marks`, which tell readers what the commit
        is. Returns the number of files added; None if the table already holds the transaction. stamps: new values of
        columns of the rows that are matched again; only_matched: rows that lose their last id are deleted.
        """
        self.workspace.progress(f"{self.name}: writing {len(found.files):,} files again")
        names = [field.name for field in self.log_schema(found.version).fields]
        entries: list[str] = []
        frames = [further.select(*(functions.col(back_quoted(name)) for name in names))] if further is not None else []
        task = self._task(found.version, names, rematch, stamps, only_matched)
        copied = None
        if found.files and not (only_matched and found.rows_emptied):
            copied = self._file_task(found.version, found.files, rematch, stamps)
        bound_batches(self.workspace, tuple(found.files))
        with self.limit(found.files, rematch):
            if copied is not None and task is not None:
                index = rematch.matcher.file if rematch.matcher is not None else None
                copy = partial(worker_files.write_files, self.spark, index, copied, found.files)
                entries = run(copy, f"write files of {self.name}")
            elif found.files and task is not None:
                rows = self._rows(found.version, found.files, rematch, None)
                function = _writer(rematch.matcher.file if rematch.matcher else None, rematch.replaced, task)
                made = map_batches(rows.drop(FILE), function, RESULT)
                entries = list(run(lambda: run_task(made, task), f"write files of {self.name}").entries["tagged"])
            elif found.files:
                frames.append(self._rewritten(found, names, rematch, stamps, only_matched))
            removed = [add for _, add in found.files]
            rewrite = _committer(self.log, found.version, removed, entries, frames, app, number, marks)
            # if the commit fails the files are kept: it may have succeeded even though it raised an error
            written: int | None = run(rewrite, f"write the re-tagged rows to {self.name}")
            if written is None and task is not None:
                discard(task, {"tagged": entries})
        return written

    def log_schema(self, version: int) -> Any:
        """The columns of a version, as Spark's type."""
        from pipelines.spark.delta_internals import snapshot_schema

        return snapshot_schema(self.log.snapshot(version))

    def limit(self, files: Sequence[Add], rematch: Rematch) -> AbstractContextManager[None]:
        """A time limit for Spark to evaluate derived predicates on the rows of files."""
        derived = len(rematch.compiled.derived) if rematch.compiled is not None else 0
        if not derived:
            return nullcontext()
        return batch_time_limit(self.workspace, f"retag {self.name}", tuple(files), derived)

    def _task(
        self, version: int, names: Sequence[str], rematch: Rematch, stamps: Mapping[str, Any], only_matched: bool
    ) -> Task | None:
        """The task of workers that write files of the table; None if only Spark can write them."""
        folder = folder_of(self.lake, self.name)
        layout = layout_of(self.lake, self.name, plain_fields(self.log_schema(version).jsonValue()["fields"]))
        if folder is None or layout is None or codec(self.spark) is None:
            return None
        return Task(
            id_type=ARROW_ID_TYPES[rematch.id_type],
            columns=tuple(names),
            keys=(),
            stamps={name: pa.scalar(value) for name, value in stamps.items()},
            only_matched=only_matched,
            codec=str(codec(self.spark)),
            footer={"org.apache.spark.version": str(self.spark.version)},
            folders={"tagged": folder},
            layouts={"tagged": layout},
        )

    def _rows(self, version: int, files: Sequence[Add], rematch: Rematch, condition: str | None) -> DataFrame:
        """The rows of files, with the columns that workers need: FILE (the number of a row's file), derived columns,
        and IN_RANGE if only a range of rows is matched."""
        numbered = [(number, add) for number, (_, add) in enumerate(files)]
        rows = self.log.frame(self.log.snapshot(version), numbered).withColumnRenamed(COMMIT_VERSION, FILE)
        rows = self._with_missing(rows)
        if condition is not None:
            with suppress(PySparkException):  # as in `candidates`
                rows = rows.filter(condition)
        if rematch.rows is not None:
            rows = rows.withColumn(IN_RANGE, in_range(rematch.rows))
        return rematch.matcher.with_inputs(rows) if rematch.matcher is not None else rows

    def _read_columns(self, rematch: Rematch) -> list[str]:
        names = [FILE, *([IN_RANGE] if rematch.rows is not None else [])]
        names += ["rule_ids", *rematch.replaced.columns.names] if rematch.replaced.reads_ids else []
        inputs = rematch.compiled.inputs if rematch.compiled is not None else ()
        names += [leaf.name if leaf.text is not None else path_parts(leaf.name)[0] for leaf in inputs]
        return list(dict.fromkeys(names))

    def _with_missing(self, rows: DataFrame) -> DataFrame:
        for name, kind in self.missing:
            rows = rows.withColumn(name, functions.lit(None).cast(kind))
        return rows

    def _rewritten(
        self, found: ChangedFiles, names: Sequence[str], rematch: Rematch, stamps: Mapping[str, Any], only_matched: bool
    ) -> DataFrame:
        """The rows of the files with their new ids, for Spark's writer."""
        rows = self._rows(found.version, found.files, rematch, None)
        ids = f"array<{rematch.id_type}>"
        rows = rows.withColumn("deltatag:new", _new_ids_column(rematch, ids))
        made = dict(annotation_columns_of(rematch.annotations, functions.col("`deltatag:new`")))
        if only_matched:
            rows = rows.filter((functions.size("`deltatag:new`") > 0) | (functions.size("rule_ids") == 0))
        chosen = functions.col(f"`{IN_RANGE}`") if rematch.rows is not None else functions.lit(True)
        columns = []
        for name in names:
            column = functions.col(back_quoted(name))
            if name == "rule_ids":
                column = functions.col("`deltatag:new`")
            elif name in made:
                column = functions.when(chosen, made[name]).otherwise(column)
            elif name in stamps:
                column = functions.when(chosen, functions.lit(stamps[name])).otherwise(column)
            columns.append(column.alias(name))
        return rows.select(*columns)


def _new_ids_column(rematch: Rematch, kind: str) -> Column:
    inputs = rematch.compiled.inputs if rematch.compiled is not None else ()
    names = ["rule_ids", *([IN_RANGE] if rematch.rows is not None else []), *(leaf.name for leaf in inputs)]
    columns = [functions.col("rule_ids")]
    columns += [functions.col(f"`{IN_RANGE}`")] if rematch.rows is not None else []
    for leaf in inputs:
        assert rematch.matcher is not None
        columns.append(rematch.matcher.column(leaf) if leaf.text is None else functions.col(f"`{leaf.name}`"))
    arrow_udf: Any = functions.__dict__["arrow_udf"]  # the stubs of pyspark do not know it
    file = rematch.matcher.file if rematch.matcher else None
    function = arrow_udf(_retagger(file, rematch.replaced, tuple(names)), kind)
    column: Column = function.asNondeterministic()(*columns)
    return column


def _retagger(file: Callable[[], str] | None, replaced: ReplacedIds, names: tuple[str, ...]) -> Any:
    def retag(batches: Iterator[Any]) -> Iterator[pa.Array]:
        """The new ids of the rows of each batch."""
        import pyarrow as pa

        from rules_index.index.annotations import without_dictionary
        from rules_index.workers import retagged_rows, spark_worker

        compiled = spark_worker.open_index(file()) if file is not None else None
        for batch in batches:
            columns = [batch] if len(names) == 1 else list(batch)
            rows = pa.RecordBatch.from_arrays(columns, list(names))
            yield without_dictionary(retagged_rows.new_ids(compiled, replaced, rows)[0])

    kinds = Iterator[pa.Array] if len(names) == 1 else Iterator[tuple[pa.Array, ...]]
    retag.__annotations__ = {"batches": kinds, "return": Iterator[pa.Array]}
    return retag


def _counter(
    file: Callable[[], str] | None, replaced: ReplacedIds
) -> Callable[[Iterator[Any]], Iterator[pa.RecordBatch]]:
    def count(batches: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        """Count the rows that change, by file."""
        from rules_index.workers import retagged_rows, spark_worker

        compiled = spark_worker.open_index(file()) if file is not None else None
        yield from retagged_rows.count_changes(compiled, replaced, batches)

    return count


def _writer(
    file: Callable[[], str] | None, replaced: ReplacedIds, task: Task
) -> Callable[[Iterator[Any]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        """Write the rows with their new ids to files."""
        from rules_index.workers import retagged_rows, spark_worker

        compiled = spark_worker.open_index(file()) if file is not None else None
        yield from retagged_rows.write_files(compiled, replaced, task, batches)

    return write


def _committer(
    log: TableLog, version: int, removed: Sequence[Mapping[str, Any]], entries: Sequence[str],
    frames: Sequence[DataFrame], app: str, number: int, marks: Sequence[str],
) -> Callable[[], int | None]:  # fmt: skip
    return lambda: log.rewrite(log.snapshot(version), removed, entries, frames, app, number, marks)
