"""Writes a stream's rows, as an older version of `rules` tags them, to a separate table, by threads of this process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import rules_index as ri
from pipelines.annotated import annotate_of, annotations_of
from pipelines.errors import NeedsSparkError, SourceError, TableError, not_written
from pipelines.lake.add_actions import live_files
from pipelines.lake.column_types import ARROW_ID_TYPES, arrow_schema_of, nullable, plain_fields
from pipelines.lake.folder_snapshot import Definition
from pipelines.lake.index_histories import snapshots, taken_batches
from pipelines.lake.table_log import table_log
from pipelines.retagging.local_newly_matched import columns_then
from pipelines.retagging.newly_matched import has_all_rows
from pipelines.retagging.retagger import Outcome
from pipelines.retagging.tables import why_spark_retags
from pipelines.runners.local_runner import LocalRunner
from pipelines.runners.spark_required import why_spark_evaluates
from pipelines.sources.pieces import each_in_threads
from pipelines.table_definitions import TAGGED_COLUMNS, tagged_columns, tagged_table
from pipelines.value_lists import read_lists
from pipelines.writing.compression import codec_of
from pipelines.writing.configured_tables import PROPERTIES, column_fields
from pipelines.writing.files import discard, layout_of
from rules_index.arrays import decoded
from rules_index.workers.delta_file_writer import Layout
from rules_index.workers.source_file_reader import SOURCE_VERSION, read_batches
from rules_index.workers.tagged_files import write_files
from rules_index.workers.task import Task

if TYPE_CHECKING:
    import polars as pl

    from pipelines.lake.folder_snapshot import FolderSnapshot
    from pipelines.lake.lake import Lake
    from pipelines.scopes import StreamScope
    from rules_index.workers.retagged_rows import RowRange

MADE_BY = "deltatag.retag"
"""The table property that marks a table as one that may be replaced."""


def reproduce_here(
    scope: StreamScope, rules: pl.DataFrame, rules_version: int, table: str, in_time: RowRange | None
) -> Outcome:
    """Write the rows of a stream to a separate table, with the ids that these rules give them, in one commit.

    in_time: the rows to write, None for all. NeedsSparkError, with nothing left behind, if Spark must do it.
    """
    if reason := why_spark_retags(scope.workspace):
        raise NeedsSparkError(reason)
    compiled = _compiled(scope, rules)
    if reason := why_spark_evaluates(compiled):
        raise NeedsSparkError(reason)
    made = _Reproduction(scope, compiled, rules_version, table, in_time)
    made.begin()
    try:
        has_all = has_all_rows(scope.stream, taken_batches(made.lake, scope.name, made.at.through))
        files = made.of_tagged_rows() if has_all else made.of_the_source()
    except BaseException:
        made.discard()
        raise
    made.commit()
    return Outcome(rules_version, files, len(made.entries), made.rows, notices_of(scope, compiled, rules_version))


def _compiled(scope: StreamScope, rules: pl.DataFrame) -> ri.CompiledRules:
    configuration = scope.workspace.configuration
    lists, _ = read_lists(configuration, rules["expression"])
    return ri.compile_rules(
        rules.to_arrow(),
        scope.columns(),
        event_time=scope.event_time,
        time_zone=configuration.rules.time_zone,
        annotate=annotate_of(configuration, scope.name),
        lists=lists,
    )


def notices_of(scope: StreamScope, compiled: ri.CompiledRules, rules_version: int) -> tuple[str, ...]:
    """A sentence on the rules of the version that do not compile any more; empty if all do."""
    count = compiled.rejects.num_rows
    if not count:
        return ()
    first = compiled.rejects.slice(0, 1).to_pylist()[0]
    more = f" and {count - 1:,} more" if count > 1 else ""
    notice = (
        f"{scope.name}: rules of version {rules_version} that do not compile with the columns and lists of now match "
        f"no row: {first['rule_id']} ({first['message']}){more}."
    )
    return (notice,)


def _check_plain(lake: Lake, name: str, snapshot: FolderSnapshot) -> None:
    if layout_of(lake, name, snapshot.fields) is None:
        raise NeedsSparkError(f"the table {name} has columns or features that only Spark writes")


class _Reproduction:
    """The files of one such table, and their commit."""

    def __init__(
        self,
        scope: StreamScope,
        compiled: ri.CompiledRules,
        rules_version: int,
        table: str,
        in_time: RowRange | None,
    ) -> None:
        self.scope, self.compiled, self.table, self.in_time = scope, compiled, table, in_time
        self.lake, self.stream = scope.workspace.lake, scope.stream
        self.at = snapshots(self.lake, scope.name, keeps_matches=False)
        self.tagged = table_log(self.lake.uri(tagged_table(scope.name)))
        own = {*TAGGED_COLUMNS, *self.stream.annotations}
        held = self.tagged.snapshot(self.at.tagged).fields
        self.fields = plain_fields([field for field in held if field["name"] not in own])
        id_type = self.lake.rule_id_type()
        added = column_fields(tagged_columns(id_type, self.stream.annotations))
        self.definition = Definition([*self.fields, *added], properties={**PROPERTIES, MADE_BY: "true"})
        self.log = table_log(self.lake.uri(table))
        self.task = Task(
            id_type=ARROW_ID_TYPES[id_type],
            columns=tuple(field["name"] for field in self.fields),
            keys=(),
            stamps={
                "rules_version": pa.scalar(rules_version, pa.int64()),
                "index_fingerprint": pa.scalar(compiled.fingerprint),
                "tagged_at": pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC")),
            },
            only_matched=self.stream.output == "matched",
            codec=codec_of(scope.workspace),
            footer={},
            folders={"tagged": str(self.log.folder)},
            layouts={"tagged": Layout(columns=tuple(field["name"] for field in self.definition.fields))},
            annotations=annotations_of(compiled, self.stream.annotations),
        )
        self.entries: list[str] = []

    def begin(self) -> None:
        """Create the empty table if there is none. NeedsSparkError if a table has another layout than deltatag's, such
        as one with column mapping, whose files name columns otherwise."""
        name = tagged_table(self.scope.name)
        _check_plain(self.lake, name, self.tagged.snapshot(self.at.tagged))
        if not self.lake.exists(self.table):
            self.log.create(self.definition)
        _check_plain(self.lake, self.table, self.log.latest())
        if reason := self.log.why_spark_commits(self.log.latest()):
            raise NeedsSparkError(f"the table {self.table} {reason}")

    def of_tagged_rows(self) -> int:
        """Write the rows of the tagged table; returns how many files were read."""
        name = tagged_table(self.scope.name)
        adds = live_files(self.tagged, self.at.tagged)
        if adds is None or any(add.get("deletionVector") for add in adds):
            raise NeedsSparkError(f"the table {name} has files that only Spark reads")
        held = [*self.fields, {"name": SOURCE_VERSION, "type": "long", "nullable": True, "metadata": {}}]
        schema = self._with_inputs(arrow_schema_of(held))

        def work(add: Mapping[str, Any]) -> None:
            """Write the rows of one file."""
            self._write(read_batches(self.tagged.source_files([(0, add)]), schema, with_version=False))

        try:
            each_in_threads(adds, work)
        except (OSError, pa.ArrowException) as error:
            raise not_written(f"The rows of {name} cannot be written to {self.table}", error) from error
        return len(adds)

    def of_the_source(self) -> int:
        """Write the rows of the source that micro-batches have taken; returns how many files were read."""
        runner = LocalRunner(self.scope.workspace, self.stream)
        source, files = runner.open_source(), 0
        for batch in taken_batches(self.lake, self.scope.name, self.at.through):
            taken = source.retake(batch.plan)
            if not taken.files:
                continue
            files += len(taken.files)
            schema = columns_then(runner, source, taken.schema_version)
            with runner.in_zone(self.compiled.time_zone):
                runner.each_accepted(source, taken, self._with_inputs(schema), batch.plan, self._write)
        if not files:
            raise SourceError(f"No row of {self.scope.name} has been processed yet, so there is none to tag.")
        return files

    def _with_inputs(self, schema: pa.Schema) -> pa.Schema:
        """The columns, followed by those of the source and of the tagged table that they lack: rules may read them."""
        names = {name.lower() for name in schema.names}
        later = [field for field in self.scope.columns() if field.name.lower() not in names]
        missing = [each["name"] for each in self.fields if each["name"].lower() not in names]
        held = arrow_schema_of(self.fields)
        later += [held.field(name) for name in missing if name not in {field.name for field in later}]
        return nullable(pa.schema([*schema, *later]))

    def _write(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Match rows and write them; rows outside the range are left out."""
        in_time = self.in_time
        if in_time is not None:
            batches = (each.filter(in_time.holds(decoded(each.column(in_time.column)))) for each in batches)
        for made in write_files(self.compiled, self.task, batches):
            self.entries += [entry for entry in made.column("entry").to_pylist() if entry]

    @property
    def rows(self) -> int:
        """The number of rows written, by the files' statistics."""
        return sum(json.loads(json.loads(entry)["add"]["stats"])["numRecords"] for entry in self.entries)

    def commit(self) -> None:
        """Commit the files as the table's only ones. They are deleted only if the commit certainly failed: a run that
        is killed here may already have committed them."""
        try:
            self.log.replace(self.definition, self.entries)
        except (TableError, NeedsSparkError):
            self.discard()
            raise

    def discard(self) -> None:
        """Delete the written files."""
        discard(self.task, {"tagged": self.entries})
