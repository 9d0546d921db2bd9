"""A re-tag without a JVM: threads of this process match the rows of a scope's tables again and write the files.

This is possible if the tables have the layout that deltatag gives them, and no rule that differs has a derived column.
In a join's table, whose rows are only matched again by joining, rules can only be removed. Otherwise Spark does it
(`spark_tables`). Both make the same commits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import NeedsSparkError, TableError, not_written
from pipelines.lake.add_actions import live_files, may_hold, may_match
from pipelines.lake.column_types import ARROW_ID_TYPES, arrow_schema_of
from pipelines.lake.delta_log import DeltaLog
from pipelines.lake.lake import is_missing_file
from pipelines.lake.table_log import table_log
from pipelines.retagging.indexes import former_index, local_index
from pipelines.retagging.local_newly_matched import LocalNewlyMatched, NewlyMatchedFiles
from pipelines.retagging.rematch import Rematch, columns_read, widened, with_source_columns
from pipelines.retagging.tables import ChangedFiles, Stamps, why_spark_retags
from pipelines.scopes import Scope, StreamScope
from pipelines.sources.pieces import each_in_threads
from pipelines.table_definitions import keys_in_matches, matches_table, tagged_table
from pipelines.writing.compression import codec_of
from pipelines.writing.files import joined_layout_of, layout_of
from rules_index.arrays import decoded
from rules_index.errors import RulesIndexError
from rules_index.names import back_quoted
from rules_index.workers.delta_file_writer import DeltaFile, Layout
from rules_index.workers.retagged_files import FileTask, KeptMatches, count_changes, write_file
from rules_index.workers.retagged_rows import is_among
from rules_index.workers.retagged_rows import write_files as write_rows
from rules_index.workers.source_file_reader import SOURCE_VERSION, read_batches
from rules_index.workers.task import Task

if TYPE_CHECKING:
    import polars as pl

    from pipelines.lake.index_histories import History, IndexHistories, Snapshots
    from pipelines.lake.index_store import StoredIndex
    from pipelines.lake.runs import MicroBatch
    from pipelines.origin import IndexedRules
    from pipelines.retagging.changes import Changes
    from rules_index.implication.widening import Widened
    from rules_index.workers.retagged_rows import RowRange

_MOST_KEPT = 256 << 20
"""Maximum bytes of match results that are kept from `find` until `write`."""
_LARGE = 256 << 20
"""Size in bytes from which, if rules were only removed, the removed rules are compiled again: their index shows which
files of the tagged table cannot have had their rows, so that these need not be read."""
_T = TypeVar("_T")
_R = TypeVar("_R")


class LocalTables:
    """The tables of one scope, for one set of rules that differ."""

    def __init__(self, scope: Scope, rematch: Rematch) -> None:
        self.scope, self.rematch = scope, rematch
        self.stream = scope.stream if isinstance(scope, StreamScope) else None
        self._layout_of = layout_of if self.stream is not None else joined_layout_of
        self.workspace, self.lake = scope.workspace, scope.workspace.lake
        self.tagged = table_log(self.lake.uri(tagged_table(scope.name)))
        self.matches = table_log(self.lake.uri(matches_table(scope.name)))
        self._kept = KeptMatches(0)
        self._newly_matched, self._version = NewlyMatchedFiles(), 0

    @classmethod
    def of(
        cls,
        scope: Scope,
        stored: StoredIndex,
        changes: Changes,
        indexed: IndexedRules,
        rows: RowRange | None,
    ) -> LocalTables:
        """The tables of a scope; NeedsSparkError, with the reason, if Spark must do the re-tag. stored, indexed: the
        newest index and its rules; rows: those to match again, None for all."""
        workspace = scope.workspace
        if reason := why_spark_retags(workspace):
            raise NeedsSparkError(reason)
        if changes.everything and indexed.annotations is not None:
            raise NeedsSparkError("all rules must be tried on its rows again, and they have annotations")
        compiled = None
        if not changes.rules.is_empty():
            compiled = local_index(scope, stored, changes, indexed)
        former = None
        pays = compiled is not None or _is_large(table_log(workspace.lake.uri(tagged_table(scope.name))))
        # if columns have other types now, statistics do not show which files former rules matched rows of
        if pays and not changes.types_changed and isinstance(scope, StreamScope):
            former = former_index(changes.former, scope.columns(), indexed.event_time, indexed.time_zone)
        columns = workspace.configuration.annotations_of(scope.name)
        annotations = indexed.annotations.chosen(columns) if indexed.annotations is not None else None
        rematch = Rematch(changes, workspace.lake.rule_id_type(), compiled, None, former, rows, annotations)
        tables = cls(scope, rematch)
        tables._refuse_what_needs_spark()
        return tables

    def _refuse_what_needs_spark(self) -> None:
        """Raise NeedsSparkError if a table, or what is read of it, needs Spark."""
        tagged, matches = tagged_table(self.scope.name), matches_table(self.scope.name)
        tables = [(tagged, self.tagged)]
        if self.stream is not None and self.stream.keeps_matches and self.lake.exists(matches):
            tables.append((matches, self.matches))
        for name, log in tables:
            if reason := log.why_spark_commits(log.latest()):
                raise NeedsSparkError(f"the table {name} {reason}")
            if self._layout_of(self.lake, name, log.latest().fields) is None:
                raise NeedsSparkError(f"the table {name} has columns or features that only Spark writes")
        if self._task(self.tagged.latest().number, None) is None:
            raise NeedsSparkError(
                "a rule that differs, or the range of event times, reads more than columns and fields of structs, or "
                f"the table {tagged} has deletion vectors or a checkpoint that only Spark reads"
            )

    def session(self) -> AbstractContextManager[None]:
        """A context that does nothing: no session is needed."""
        return nullcontext()

    def find(self, version: int) -> ChangedFiles:
        """Find the files of a version in which rows change; nothing is written."""
        self._version = version
        files = self._candidates(version)
        task = self._task(version, None)
        assert task is not None
        self.tagged.fetch(files)
        self._kept = KeptMatches(_MOST_KEPT)
        done = self._each_in_threads(files, lambda add: count_changes(self.rematch.compiled, task, add, self._kept))
        changed = [(version, add) for add, (rows, _) in zip(files, done, strict=True) if rows]
        self.tagged.keep_only([add["path"] for _, add in changed])
        rows, emptied = sum(rows for rows, _ in done), sum(emptied for _, emptied in done)
        return ChangedFiles(version, tuple(changed), rows, emptied, len(files))

    def find_newly_matched(
        self,
        batches: Sequence[MicroBatch],
        histories: IndexHistories,
        bases: Mapping[History, pl.DataFrame],
        stamps: Stamps,
    ) -> int:
        """Find the rows of micro-batches that match only now, for `write` to commit; returns how many. They are written
        at once, to files that belong to no version of the table yet."""
        fields = self.tagged.snapshot(self._version).fields
        task, schema = self._row_task(fields, stamps), arrow_schema_of(fields)
        assert isinstance(self.scope, StreamScope)
        self._newly_matched = LocalNewlyMatched(self.scope, self.rematch, task, schema).write(batches, histories, bases)
        return self._newly_matched.rows

    def write(self, found: ChangedFiles, stamps: Stamps, app: str, number: int, marks: Sequence[str]) -> int | None:
        """Rewrite the found files with the rows' new ids, and commit them with those of `find_newly_matched`.

        All is one commit, with transaction `number` of `app` and of each of `marks`. Returns the number of files added;
        None if the table already holds the transaction.
        """
        task = self._task(found.version, stamps)
        assert task is not None
        adds = [add for _, add in found.files]
        self.tagged.fetch(adds)
        if (self.stream is None or self.stream.output == "matched") and found.rows_emptied:
            fields = self.tagged.snapshot(found.version).fields
            rows = self._row_task(fields, stamps)
            parts = self._each_in_threads(adds, lambda add: self._without_emptied(add, rows, arrow_schema_of(fields)))
            made = [entry for part in parts for entry in part]
        else:
            made = self._each_in_threads(
                adds, lambda add: json.dumps({"add": write_file(self.rematch.compiled, task, add, self._kept)})
            )
        made += self._newly_matched.entries
        return self.tagged.rewrite(found.version, adds, made, app, number, marks)

    def _without_emptied(self, add: dict[str, Any], task: Task, schema: pa.Schema) -> list[str]:
        """Rewrite a file without the rows that have no id left; returns the `add` entries of the new files."""
        files = self.tagged.source_files([(0, add)])
        rows = (
            pa.RecordBatch.from_arrays([decoded(column) for column in batch.columns], schema.names)
            for batch in read_batches(files, schema, with_version=False)
        )
        done = write_rows(self.rematch.compiled, self.rematch.replaced, task, rows)
        return [entry for each in done for entry in each.column("entry").to_pylist() if entry]

    def _row_task(self, fields: Sequence[Mapping[str, Any]], stamps: Stamps) -> Task:
        """The task of writing rows of the tagged table."""
        layout = self._layout_of(self.lake, tagged_table(self.scope.name), fields)
        assert layout is not None
        names = tuple(field["name"] for field in fields)
        return Task(
            id_type=ARROW_ID_TYPES[self.rematch.id_type],
            columns=names,
            keys=(),
            stamps={name: pa.scalar(value) for name, value in stamps.items()},
            only_matched=True,
            codec=codec_of(self.workspace),
            footer={},
            folders={"tagged": str(self.tagged.folder)},
            layouts={"tagged": layout},
        )

    def follow(self, at: Snapshots, rules_version: int, app: str, number: int, others_came: bool) -> None:
        """Replace the matches of the rules that differ by those that the tagged table has, in one commit. others_came:
        rows tagged by another index came after the re-tag."""
        assert at.matches is not None
        log = self.matches
        schema = arrow_schema_of(log.snapshot(at.matches).fields)
        layout = layout_of(self.lake, matches_table(self.scope.name), log.snapshot(at.matches).fields)
        with self._reporting(log):
            stale = [add for add in self._live(log, at.matches) if self._has_replaced(log, add, schema)]
            made = [self._without_replaced(log, add, schema, layout or Layout()) for add in stale]
        made += self._new_matches(at.tagged, schema, layout or Layout(), rules_version, others_came)
        log.rewrite(at.matches, stale, [text for text in made if text], app, number)

    def _ids(self, ids: pl.Series) -> pa.Array:
        return pa.array(ids.to_list(), ARROW_ID_TYPES[self.rematch.id_type])

    def _has_replaced(self, log: DeltaLog, add: dict[str, Any], schema: pa.Schema) -> bool:
        """Whether a file of matches has some that the re-tag replaces."""
        ids = self._replaced_ids
        bounds = json.loads(add.get("stats") or "{}")
        low, high = (bounds.get(each, {}).get("rule_id") for each in ("minValues", "maxValues"))
        if (
            ids is not None
            and None not in (low, high)
            and not any(_between(low, each, high) for each in ids.to_pylist())
        ):
            return False
        files = log.source_files([(0, add)])
        batches = read_batches(files, schema, ["rule_id", *self._time_column()])
        return any(pc.any(self._is_replaced(each, ids)).as_py() for each in batches)

    @property
    def _replaced_ids(self) -> pa.Array | None:
        """The ids of the rules that differ; None if any rule may."""
        return None if self.rematch.changes.everything else self._ids(self.rematch.changes.ids)

    def _is_replaced(self, pairs: pa.RecordBatch, ids: pa.Array | None) -> pa.BooleanArray:
        """Which matches the re-tag replaces, [rows] bool: those of rules that differ, if in the range of rows."""
        found = pa.repeat(True, len(pairs)) if ids is None else pc.is_in(decoded(pairs.column("rule_id")), ids)
        rows = self.rematch.rows
        return found if rows is None else pc.and_(found, rows.holds(pairs.column(rows.column)))

    def _time_column(self) -> list[str]:
        """The column of event time that the range of rows reads, if there is a range."""
        return [self.rematch.rows.column] if self.rematch.rows is not None else []

    def _without_replaced(self, log: DeltaLog, add: dict[str, Any], schema: pa.Schema, layout: Layout) -> str | None:
        """Rewrite a file of matches without those that the re-tag replaces; returns its `add` entry, None if no row is
        left."""
        ids = self._replaced_ids
        files = log.source_files([(0, add)])

        def kept() -> Iterator[pa.RecordBatch]:
            """The matches that stay."""
            for batch in read_batches(files, schema, with_version=False):
                rows = pa.RecordBatch.from_arrays([decoded(column) for column in batch.columns], schema.names)
                yield rows.filter(pc.invert(self._is_replaced(rows, ids)))

        return self._write_matches(kept(), layout)

    def _new_matches(
        self, version: int, schema: pa.Schema, layout: Layout, rules_version: int, others_came: bool
    ) -> list[str | None]:
        """Write the matches of the rules that differ, by the ids of the tagged rows; returns the `add` entry of a file,
        None if there are no such rows."""
        changes, compiled = self.rematch.changes, self.rematch.compiled
        every = others_came or changes.everything
        if compiled is None and not every:
            return []
        ids = self._replaced_ids if every else self._ids(changes.rules["rule_id"])
        held = arrow_schema_of(self.tagged.snapshot(version).fields)
        keys = keys_in_matches(schema.names, held.names)
        adds = self._with_rows(self._live(self.tagged, version), None if every else widened(compiled))

        def pairs(add: dict[str, Any]) -> list[pa.RecordBatch]:
            """The matches of one file of tagged rows."""
            files = self.tagged.source_files([(0, add)])
            found = []
            read = dict.fromkeys(["rule_ids", SOURCE_VERSION, *keys, *self._time_column()])
            for batch in read_batches(files, held, list(read), coded=["rule_ids"], with_version=False):
                if self.rematch.rows is not None:
                    batch = batch.filter(self.rematch.rows.holds(batch.column(self.rematch.rows.column)))
                lists = batch.column("rule_ids")
                offsets = lists.offsets.to_numpy()
                values = lists.values
                among = np.ones(len(values), bool) if ids is None else is_among(values, ids)
                kept = np.flatnonzero(among[offsets[0] : offsets[-1]]) + offsets[0]
                if not len(kept):
                    continue
                taken = pa.array(np.searchsorted(offsets, kept, side="right") - 1)
                columns = {key: decoded(batch.column(key)).take(taken) for key in keys}
                columns["rule_id"] = decoded(values.take(pa.array(kept)))
                columns["rules_version"] = pa.repeat(pa.scalar(rules_version, pa.int64()), len(kept))
                columns[SOURCE_VERSION] = batch.column(SOURCE_VERSION).take(taken)
                names = [name for name in schema.names if name in columns]
                found.append(pa.RecordBatch.from_arrays([columns[name] for name in names], names))
            return found

        return [self._write_matches((batch for part in self._each_in_threads(adds, pairs) for batch in part), layout)]

    def _write_matches(self, batches: Iterator[pa.RecordBatch], layout: Layout) -> str | None:
        """Write rows to a new file of matches; returns its `add` entry, None if there are no rows."""
        file: DeltaFile | None = None
        try:
            for batch in batches:
                if len(batch):
                    file = file or DeltaFile(
                        str(self.matches.folder), batch.schema, codec_of(self.workspace), {}, layout
                    )
                    file.write(batch)
            return None if file is None else json.dumps({"add": file.close()})
        except BaseException:
            if file is not None:
                file.abandon()
            raise

    def _candidates(self, version: int) -> list[dict[str, Any]]:
        """The files of a version in which rows can change, by their statistics."""
        conditions, changes = None, self.rematch.changes
        if not changes.everything and (self.rematch.former is not None or changes.former.is_empty()):
            conditions = widened(self.rematch.compiled, self.rematch.former)
        return self._with_rows(self._live(self.tagged, version), conditions)

    def _with_rows(self, adds: Sequence[dict[str, Any]], conditions: Sequence[Widened] | None) -> list[dict[str, Any]]:
        """The files that may have rows in the range on which one of the conditions, if these are known, is TRUE."""
        rows = self.rematch.rows
        if rows is not None:
            from rules_index.implication.widening import ColumnRange

            low, high = (bound.as_py() if bound is not None else None for bound in (rows.low, rows.high))
            range_of_times = ColumnRange(back_quoted(rows.column), low, high, null=False)
            adds = [add for add in adds if may_hold(add, range_of_times)]
        return [add for add in adds if conditions is None or may_match(add, conditions)]

    def _live(self, log: DeltaLog, version: int) -> list[dict[str, Any]]:
        """The files of a version; TableError if only Spark can read the log."""
        found = live_files(log, version)
        if found is None:
            raise TableError(f"The log of the table at {log.uri} has a checkpoint that only Spark reads.")
        return found

    def _task(self, version: int, stamps: Stamps | None) -> FileTask | None:
        """The task of matching and rewriting files of a version; None if this process cannot read all that it needs."""
        snapshot = self.tagged.snapshot(version)
        held = arrow_schema_of(snapshot.fields)
        if self.stream is not None:
            held = with_source_columns(held, self.scope.columns())
        read = columns_read(held, snapshot.partition_columns, self.rematch)
        files = live_files(self.tagged, version)
        if read is None or files is None or any(add.get("deletionVector") for add in files):
            return None
        values = {name: pa.scalar(value) for name, value in (stamps or {}).items()}
        return FileTask(
            str(self.tagged.folder),
            self.rematch.replaced,
            read,
            codec_of(self.workspace),
            values,
            str(self.tagged.source_folder),
            self.rematch.rows,
        )

    def _each_in_threads(self, items: Sequence[_T], work: Callable[[_T], _R]) -> list[_R]:
        """The results of `work` for each item, in order, by threads; TableError if a file cannot be read or written."""
        with self._reporting(self.tagged):
            return each_in_threads(items, work)

    @contextmanager
    def _reporting(self, log: DeltaLog) -> Iterator[None]:
        """Turn an error of reading or writing a table's files into a TableError."""
        try:
            yield
        except (OSError, pa.ArrowException, RulesIndexError) as error:
            failed = not_written(f"The table at {log.uri} cannot be re-tagged", error)
            if not is_missing_file(error) and " is damaged: " not in str(error):
                raise failed from error
            again = f"deltatag {'join' if self.stream is None else 'tag'} {self.scope.name} --restart"
            raise TableError(
                f"{str(failed).rstrip('.')}. Restore the file from a copy, or tag everything again with: {again}"
            ) from error


def _is_large(log: DeltaLog) -> bool:
    """Whether a table has more than `_LARGE` bytes."""
    return sum(add["size"] for add in live_files(log, log.latest().number) or ()) > _LARGE


def _between(low: Any, value: Any, high: Any) -> bool:
    """Whether a value may lie between two bounds of the log; texts are compared by their bytes."""
    if isinstance(value, str):
        return str(low).encode() <= value.encode() <= str(high).encode()
    return bool(low <= value <= high)
