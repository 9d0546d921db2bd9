"""The verb join: what is new on any side of a join -> quarantine and tagged joined rows, exactly once.

A micro-batch takes a slice of every source. A joined row is found in the micro-batch in which the last of its rows is
taken, whatever arrived when, so that after any sequence of runs the table is as if all rows had been taken in one.
As in `pipelines.tag`, its plan stands in `runs` before its first write, and each write carries its number.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, functions
from pyspark.sql.types import StructField, StructType

import rules_index as ri
from pipelines.config import Join
from pipelines.errors import SourceChangedError, SourceError
from pipelines.index_store import StoredIndex, fetch_index, index_to_tag_with
from pipelines.join_rows import JoinRows
from pipelines.matching import Matcher, check_inputs
from pipelines.runs import DONE, PLANNED, RESET, MicroBatch, last_batch, record_done, record_plan
from pipelines.schema import changed_types, plain_schema, unwritable_columns
from pipelines.scopes import JOINED_TIME, JoinScope
from pipelines.session import BATCH_BYTES
from pipelines.shuffle import (
    derived_columns,
    joined_schema,
    matched,
    partitions,
    shuffled,
    united,
)
from pipelines.sides import SideFiles, side_files
from pipelines.source import Position, Source, open_source, position_from_plan
from pipelines.tables import QUARANTINE_COLUMNS, joined_columns, quarantine_table, tagged_table
from pipelines.workspace import Workspace
from pipelines.writing import append_once, create_table, fields_of, written_rows
from rules_index.join import JoinIndex
from rules_index.join.worker import KEY, NEW, STREAM, TIME, JoinTask, own_column

if TYPE_CHECKING:
    from pyspark.sql import Column

_MUCH = 0.5
"""Share of a side's earlier bytes above which a run that reads them says so."""
_BATCH_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class JoinResult:
    """What one run of a join did; `batches` is 0 where nothing was due.

    `rows` are the new rows taken from all sides, `joined` the joined rows written, `quarantined` the rows that came too
    late; `source_versions` has the last version taken of each stream, `notices` sentences that people should read.
    """

    join: str
    batches: int = 0
    rows: int = 0
    joined: int = 0
    matches: int = 0
    quarantined: int = 0
    rules_version: int | None = None
    fingerprint: str | None = None
    source_versions: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    notices: tuple[str, ...] = ()


def join_streams(workspace: Workspace, name: str, restart: bool = False, skip_changes: bool = False) -> JoinResult:
    """Join everything that is new on any side; ends when the newest version of every source is done.

    `restart` empties the join's tables and begins again at each stream's start. `skip_changes` passes over commits of
    the sources that changed or removed rows, instead of stopping at the first of them.
    Raises NoIndexError, SourceError, SourceChangedError and others of pipelines.errors.
    """
    started = time.perf_counter()
    result = JoinResult(name)
    for batch in _Joiner(workspace, workspace.configuration.join(name)).batches(restart, skip_changes):
        sides = batch.plan.get("sides", {})
        result = JoinResult(
            name,
            result.batches + 1,
            result.rows + (batch.rows or 0),
            result.joined + int(batch.plan.get("joined", 0)),
            result.matches + (batch.matches or 0),
            result.quarantined + (batch.quarantined or 0),
            batch.rules_version,
            batch.fingerprint,
            {stream: _last_version(side["end"]) for stream, side in sides.items()},
            notices=(*result.notices, *notices(name, sides)),
        )
    return replace(result, seconds=time.perf_counter() - started)


def join_is_due(workspace: Workspace, name: str) -> bool:
    """True if a source has a version that no micro-batch has taken, or the last micro-batch is unfinished."""
    from pipelines.tag import newest_source_version

    join = workspace.configuration.join(name)
    last = last_batch(workspace.lake, name)
    if last is None or last.state != DONE or last.plan.get("reset"):
        return True
    return any(
        position_from_plan(last.plan["sides"][stream]["end"]).version
        <= newest_source_version(workspace, workspace.configuration.stream(stream))
        for stream in join.streams
    )


def notices(name: str, sides: Mapping[str, Any]) -> list[str]:
    """What people should know of a micro-batch: sides that were read for the most part."""
    return [
        f"{name}: a micro-batch read {side['read_share']:.0%} of the earlier rows of {stream}, since their files have "
        "times and keys that new rows could join. Cluster the source by event time or key, or set a lateness."
        for stream, side in sides.items()
        if side["read_share"] > _MUCH and side["earlier_files"] > 1
    ]


def _last_version(end: Mapping[str, Any]) -> int:
    return int(end["version"]) - (0 if end["index"] or end["snapshot"] else 1)


class _Joiner:
    """One run of one join."""

    def __init__(self, workspace: Workspace, join: Join) -> None:
        self.workspace, self.join = workspace, join
        self.lake, self.spark = workspace.lake, workspace.spark
        self.streams = {name: workspace.configuration.stream(name) for name in join.streams}
        self._indexes: dict[str, tuple[StoredIndex, JoinIndex, Matcher]] = {}
        self._prepared: StructType | None = None

    def batches(self, restart: bool, skip_changes: bool) -> Iterator[MicroBatch]:
        """Do what is due, one micro-batch at a time; gives each as `runs` has it when it is done."""
        last = last_batch(self.lake, self.join.name)
        if restart and last is not None:
            last = self._plan_reset(last)
        if last is not None and last.state == RESET:
            last = self._reset(last)
            yield last
        sources = self._open_sources()
        if last is not None and last.state == PLANNED:
            last = self._execute(sources, last, resumed=True)
            yield last
        while True:
            planned = self._plan(sources, last, skip_changes)
            if planned is None:
                return
            last = self._execute(sources, planned, resumed=False)
            yield last

    def _open_sources(self) -> dict[str, Source]:
        command = f"deltatag join {self.join.name}"
        return {name: open_source(self.spark, stream, command) for name, stream in self.streams.items()}

    def _plan(self, sources: Mapping[str, Source], last: MicroBatch | None, skip: bool) -> MicroBatch | None:
        """Choose what to take of each source, check all that could stop it, and write the plan."""
        anew = last is None or bool(last.plan.get("reset"))
        before = {} if anew or last is None else last.plan["sides"]
        sides = {name: self._plan_side(sources[name], before.get(name), skip) for name in self.join.streams}
        if all(side["slice"] is None for side in sides.values()):
            return None
        columns = JoinScope(self.workspace, self.join).columns()
        stored = index_to_tag_with(self.lake, self.join.name)
        _, index, _ = self._index(stored.fingerprint)
        check_inputs(index.compiled, columns, self.join.name)
        files = self._files(sources, sides)
        for side in files:
            sides[side.stream.name] |= {
                "read_share": round(side.read_share, 4),
                "earlier_files": len(side.earlier),
                "new_files": len(side.new.files) if side.new else 0,
            }
        plan: dict[str, Any] = {
            "sides": sides,
            "series": uuid.uuid4().hex if anew or last is None else last.plan["series"],
            "id_type": self.lake.rule_id_type(),
            "lateness": self.join.lateness,
            "latest": None if anew or last is None else last.plan.get("latest"),
        }
        self._prepare(files, plan["id_type"])
        return record_plan(
            self.lake,
            MicroBatch(
                scope=self.join.name,
                batch=0 if last is None else last.batch + 1,
                state=PLANNED,
                plan=plan,
                rules_version=stored.rules_version,
                fingerprint=stored.fingerprint,
                source_version=None,
                started_at=datetime.now(UTC),
            ),
        )

    def _plan_side(self, source: Source, before: Mapping[str, Any] | None, skip_changes: bool) -> dict[str, Any]:
        stream = self.streams[source.name]
        if before is None:
            first = position = source.first_position(stream.start)
            table_id = None
        else:
            first, position = Position(**before["first"]), position_from_plan(before["end"])
            table_id = before["table_id"]
        taken = source.take(position, table_id, stream.max_bytes_per_batch, skip_changes)
        return {
            "first": asdict(first),
            "position": asdict(position),
            "slice": taken.to_plan() if taken is not None else None,
            "end": asdict(taken.end if taken is not None else position),
            "table_id": source.table_id,
            "newest": source.version,
            "schema_version": taken.schema_version if taken is not None else source.version,
        }

    def _files(self, sources: Mapping[str, Source], sides: Mapping[str, Any]) -> list[SideFiles]:
        zone = self.workspace.configuration.rules.time_zone
        return side_files(self.join, self.streams, sources, sides, zone)

    def _execute(self, sources: Mapping[str, Source], batch: MicroBatch, resumed: bool) -> MicroBatch:
        """Write what the plan says and record it as done."""
        started = time.perf_counter()
        plan = dict(batch.plan)
        sides = self._files(sources, plan["sides"])
        files = sum(len(side.new.files) for side in sides if side.new is not None)
        self.workspace.progress(f"{self.join.name}: micro-batch {batch.batch}, {files} new files")
        figures: dict[str, Any] = {"rows": 0, "joined": 0, "matches": 0, "quarantined": 0, "latest": plan["latest"]}
        if files:
            self._prepare(sides, plan["id_type"])
            figures = self._write(sides, batch, resumed)
        done = replace(
            batch,
            state=DONE,
            plan={**plan, "joined": figures["joined"], "latest": figures["latest"]},
            rows=figures["rows"],
            matches=figures["matches"],
            quarantined=figures["quarantined"],
            seconds=round(time.perf_counter() - started, 3),
        )
        record_done(self.lake, done)
        return done

    def _write(self, sides: list[SideFiles], batch: MicroBatch, resumed: bool) -> dict[str, Any]:
        """The late rows first, the joined ones last."""
        assert batch.fingerprint is not None
        stored, index, matcher = self._index(batch.fingerprint)
        rows = JoinRows(self.join, sides, batch.plan)
        quarantined, latest = self._quarantine(rows, batch, resumed)
        joined = self._joined(rows, index, matcher, batch.plan["id_type"]).select(
            *(functions.col(f"`{name}`") for name in self.join.streams),
            "rule_ids",
            functions.lit(stored.rules_version).cast("bigint").alias("rules_version"),
            functions.lit(stored.fingerprint).alias("index_fingerprint"),
            functions.lit(batch.started_at).alias("tagged_at"),
        )
        name = tagged_table(self.join.name)
        app = self._app(batch, name)
        append_once(self.lake, name, joined, app, batch.batch, resumed)
        # what the table has now: an earlier run, or another one at the same time, may have written it
        written = written_rows(self.spark, self.lake, name, app, batch.batch)
        sums = functions.count("*"), functions.sum(functions.size("rule_ids"))
        counted = written.agg(*sums).first() if written is not None else None
        return {
            "rows": rows.new_count(),
            "joined": int(counted[0]) if counted is not None else 0,
            "matches": int(counted[1] or 0) if counted is not None else 0,
            "quarantined": quarantined,
            "latest": latest,
        }

    def _joined(self, rows: JoinRows, index: JoinIndex, matcher: Matcher, id_type: str) -> DataFrame:
        """The joined rows that satisfy a rule: one STRUCT a stream, `rule_ids`."""
        if BATCH_BYTES not in self.workspace.configuration.spark:
            self.spark.conf.set(BATCH_BYTES, str(_BATCH_BYTES))
        derived = [leaf.name for name in self.join.streams for leaf in index.inputs(name) if leaf.text is not None]
        frames = rows.frames(lambda name: derived_columns(self.spark, index, name))
        keys = [f"{KEY}{place}" for place in range(len(rows.types))]
        columns = tuple(tuple(field.name for field in side.schema.fields) for side in rows.sides)
        own = [own_column(name, column) for name, of in zip(self.join.streams, columns, strict=True) for column in of]
        united_rows = united(frames, [STREAM, TIME, NEW, *keys, *own, *derived])
        count = partitions(self.spark, rows.count())
        placed, key_columns = shuffled(united_rows, self.join, len(keys), count)
        task = JoinTask(
            self.join.streams,
            columns,
            tuple(self.join.window[name] for name in self.join.streams),
            key_columns,
            {"string": pa.string(), "bigint": pa.int64()}[id_type],
        )
        schema = joined_schema(rows.sides, id_type)
        found = matched(placed, matcher.file, task, schema)
        return found if index.exact else self._decided(found, matcher)

    def _decided(self, candidates: DataFrame, matcher: Matcher) -> DataFrame:
        """Of candidates the joined rows that satisfy a rule, where only Spark can tell."""
        times = [
            functions.col(f"`{name}`.`{stream.event_time}`").cast("timestamp") for name, stream in self.streams.items()
        ]
        latest: Column = functions.greatest(*times)
        rows = candidates.drop("rule_ids").withColumn(JOINED_TIME, latest)
        return rows.withColumn("rule_ids", matcher.rule_ids()).filter(functions.size("rule_ids") > 0)

    def _quarantine(self, rows: JoinRows, batch: MicroBatch, resumed: bool) -> tuple[int, int | None]:
        """Write the rows that came too late; their number, and the latest event time that was ever taken."""
        if batch.plan["lateness"] is None:
            return 0, None
        latest, late = rows.latest_and_late()
        before = batch.plan["latest"]
        latest = before if latest is None else latest if before is None else max(before, latest)
        if late:
            name = quarantine_table(self.join.name)
            append_once(self.lake, name, rows.late_rows(batch.batch), self._app(batch, name), batch.batch, resumed)
        return late, latest

    def _prepare(self, sides: list[SideFiles], id_type: str, anew: bool = False) -> None:
        """Make the tables that are missing; SourceChangedError if a source's columns no longer fit them."""
        for side in sides:
            if unwritable := unwritable_columns(side.schema):
                raise SourceError(
                    f"The source of the stream {side.stream.name} has columns with names that only column mapping "
                    f"allows ({', '.join(unwritable)}), and deltatag's tables do without it. Rename them in the source."
                )
        structs = [StructField(side.stream.name, plain_schema(side.schema)) for side in sides]
        if self._prepared == StructType(structs) and not anew:
            return
        wanted = StructType([*structs, *fields_of(joined_columns(id_type))])
        self._prepare_table(tagged_table(self.join.name), wanted, True, anew)
        quarantine = StructType([*structs, *fields_of(QUARANTINE_COLUMNS)])
        self._prepare_table(quarantine_table(self.join.name), quarantine, self.join.lateness is not None, anew)
        self._prepared = StructType(structs)

    def _prepare_table(self, name: str, wanted: StructType, kept: bool, anew: bool) -> None:
        exists = self.lake.exists(name)
        if (exists and anew) or (kept and not exists):
            create_table(self.workspace, name, wanted, replace=exists)
        elif exists:
            changes = changed_types(self.lake.frame(name).schema, wanted)
            if changes:
                raise SourceChangedError(
                    f"A column of a source of the join {self.join.name} changed its type, and the table {name} cannot "
                    f"hold both: {'; '.join(changes)}. Give the source its old type back, or join everything anew with "
                    f"its new types: deltatag join {self.join.name} --restart"
                )

    def _app(self, batch: MicroBatch, name: str) -> str:
        """Whose transactions the micro-batches are in the log of one table."""
        return f"deltatag/{batch.plan['series']}/{name}"

    def _index(self, fingerprint: str) -> tuple[StoredIndex, JoinIndex, Matcher]:
        if fingerprint not in self._indexes:
            stored = index_to_tag_with(self.lake, self.join.name, fingerprint)
            path = fetch_index(self.lake, stored)
            compiled = ri.load(path)
            matcher = Matcher(self.spark, compiled, path, self.lake.rule_id_type())
            self._indexes[fingerprint] = (stored, JoinIndex.of(compiled, self.join.streams), matcher)
        return self._indexes[fingerprint]

    def _plan_reset(self, last: MicroBatch) -> MicroBatch:
        """Plan to empty the join's tables; an unfinished micro-batch is thereby given up."""
        if last.state == RESET:
            return last
        if last.state == PLANNED:
            record_done(self.lake, replace(last, rows=0, matches=0, quarantined=0, seconds=0.0))
        plan = {"reset": True, "series": uuid.uuid4().hex}
        reset = MicroBatch(self.join.name, last.batch + 1, RESET, plan, None, None, None, datetime.now(UTC))
        return record_plan(self.lake, reset)

    def _reset(self, batch: MicroBatch) -> MicroBatch:
        sources = self._open_sources()
        nothing = {name: self._plan_side(source, None, False) | {"slice": None} for name, source in sources.items()}
        self._prepare(self._files(sources, nothing), self.lake.rule_id_type(), anew=True)
        done = replace(batch, rows=0, matches=0, quarantined=0, seconds=0.0)
        record_done(self.lake, done)
        return replace(done, state=DONE)
