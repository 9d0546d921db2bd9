"""One join's micro-batches: planned in `runs` before their first write, written exactly once, recorded as done.

A micro-batch takes a slice of every source. A joined row is found by the micro-batch that takes the last of its rows.
So after any sequence of runs the table is the same as if one micro-batch had taken all rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pipelines.annotated import check_compiled
from pipelines.errors import JoinChangedError
from pipelines.joining.definition import definition_changes, definition_of
from pipelines.joining.runner import JoinRunner, PartitionedRows, PlannedJoin
from pipelines.joining.sides import SideFiles, side_files, source_fields
from pipelines.joining.watermark import times_taken, watermark
from pipelines.lake.column_types import arrow_schema_of
from pipelines.lake.index_store import StoredIndex, index_to_tag_with
from pipelines.lake.runs import PLANNED, MicroBatch, last_batch
from pipelines.recovery.attempts import errors_of, left_out
from pipelines.recovery.lost_rows import lost_quarantine
from pipelines.recovery.micro_batch import MicroBatchRun
from pipelines.scopes import JoinScope, joined_columns
from pipelines.sources.lost_files import join_again, refuse_lost_files, reporting_lost_files
from pipelines.sources.positions import Position, position_from_plan
from pipelines.sources.source import Source
from pipelines.table_definitions import quarantine_table, tagged_table
from pipelines.writing.inputs import check_inputs
from rules_index.join.index import JoinIndex

if TYPE_CHECKING:
    import pyarrow as pa

    from pipelines.settings.model import Join
    from pipelines.workspace import Workspace


class Joiner(MicroBatchRun):
    """One join of a run, which may have several joins over the same streams and keys."""

    def __init__(
        self,
        workspace: Workspace,
        runner: JoinRunner,
        join: Join,
        widest_join: Join,
        sources: Mapping[str, Source],
        spark_ended: bool = False,
    ) -> None:
        """widest_join: the streams, the keys and the longest windows of all joins of the run; sources: by stream;
        spark_ended: an attempt at the join's last micro-batch has just ended Spark."""
        rule_tables = [tagged_table(join.name)]
        tables, command = [quarantine_table(join.name), *rule_tables], f"deltatag join {join.name}"
        super().__init__(workspace.lake, join.name, command, tables, rule_tables, runner.fence, spark_ended)
        self.workspace, self.join, self.widest_join, self.sources = workspace, join, widest_join, sources
        self.runner = runner
        self.streams = {name: workspace.configuration.stream(name) for name in join.streams}
        self._join_indexes: dict[str, JoinIndex] = {}
        self._zone: str | None = None
        self._last = last_batch(self.lake, join.name)

    def reset(self, restart: bool, skip_changes: bool) -> MicroBatch | None:
        """Empty the join's tables if `restart` is set, or if an earlier run planned it but did not finish.

        What would stop the first micro-batch after a restart is raised before: the tables would be empty until it is
        mended.
        """
        if restart:
            sides = {name: self._plan_side(name, None, skip_changes) for name in self.join.streams}
            self._check(sides, index_to_tag_with(self.lake, self.join.name))
            for name, side in sides.items():
                if side["slice"] is not None:
                    taken = self.sources[name].retake(side["slice"])
                    refuse_lost_files(self.sources[name], taken.files, self.streams[name])
        reset = self._reset_tables(self._last, restart, self._empty)
        self._last = reset or self._last
        return reset

    def _empty(self) -> None:
        """Empty the join's tables."""
        nothing = {name: self._plan_side(name, None, skip_changes=True) | {"slice": None} for name in self.join.streams}
        self.runner.prepare(self.join, self._files(nothing, None), self.lake.rule_id_type(), from_scratch=True)

    def plan(self, skip_changes: bool) -> PlannedJoin | None:
        """The unfinished micro-batch, or a newly planned one; None if nothing is due.

        Everything that could stop a new micro-batch is checked before its plan is written. Raises JoinChangedError if
        the join's definition has changed since its earlier rows were joined.
        """
        last = None if self._last is None or self._last.plan.get("reset") else self._last
        unfinished = last is not None and last.state == PLANNED
        self._zone = self._wall_zone(last.fingerprint if last is not None and unfinished else None)
        definition = self._definition()
        if last is not None and (changes := definition_changes(last.plan["definition"], definition)):
            raise JoinChangedError(
                f"The join {self.join.name} has other streams, keys, windows, event times or another time zone than "
                f"those that its table was joined with ({changes}). Undo the change, or join everything again "
                f"with: deltatag join {self.join.name} --restart"
            )
        if last is not None and unfinished:
            return self._resume(last)
        before = {} if last is None else last.plan["sides"]
        sides = {name: self._plan_side(name, before.get(name), skip_changes) for name in self.join.streams}
        if all(side["slice"] is None for side in sides.values()):
            return None
        self._follow_columns(sides, before)
        stored = index_to_tag_with(self.lake, self.join.name)
        common = self._common_plan(last, stored)
        self._check(sides, stored)
        plan: dict[str, Any] = {
            "definition": definition,
            "sides": sides,
            "lateness": self.join.lateness,
            **times_taken(None if last is None else last.plan, sides, {n: s.version for n, s in self.sources.items()}),
            **common,
        }
        files = self._files(sides, watermark(plan))
        for side in files:
            sides[side.stream.name] |= {
                "read_share": round(side.read_share, 4),
                "earlier_files": len(side.earlier),
                "earlier_bytes": side.earlier_bytes,
                "new_files": len(side.new.files) if side.new else 0,
            }
        if last is not None and (lost := lost_quarantine(self.lake, self.join, self._command)):
            self.workspace.progress(lost)
        self.runner.prepare(self.join, files, plan["id_type"])
        recorded = self._record_plan(self._last, plan, stored, None)
        if recorded.plan != plan:
            files = self._files(recorded.plan["sides"], watermark(recorded.plan))
        return self._planned(recorded, files)

    def _check(self, sides: Mapping[str, Any], stored: StoredIndex) -> None:
        """Raise an error of pipelines.errors if the join or its index does not fit the sources' columns."""
        compiled = self._index(stored.fingerprint)[1]
        newest = JoinScope(self.workspace, self.join).columns()
        check_inputs(compiled, self._columns(sides), self.join.name, lambda: newest, "deltatag join")
        check_compiled(compiled, self.join.annotations, self.join.name)

    def _resume(self, batch: MicroBatch) -> PlannedJoin:
        """A planned micro-batch, with the newest index if nothing of it is written yet, and without predicates that
        have been found to end Spark."""
        files = self._files(batch.plan["sides"], watermark(batch.plan))

        def fits(newest: StoredIndex) -> bool:
            """Whether the rows have the columns that an index reads (IndexOutdatedError if not), and event times are
            the same instants in its time zone."""
            compiled = self._index(newest.fingerprint)[1]
            check_inputs(compiled, self._columns(batch.plan["sides"]), self.join.name)
            return self._zone in (None, compiled.time_zone)

        def match(planned: MicroBatch, without: frozenset[str]) -> None:
            """Join the rows and write nothing; the derived columns in `without` are left out."""
            self.runner.match(self.widest_join, self._planned(planned, files, without=without))

        batch = self._with_index(batch, self._newer_index(batch, fits))
        if any(side.new is not None and side.new.files for side in files):
            batch = self._begin_attempt(batch, match)
        self._last = batch
        return self._planned(batch, files, resumed=True)

    @contextmanager
    def _reporting_lost_files(self, planned: PlannedJoin) -> Iterator[None]:
        """Turn an error that is due to deleted source files into one that says so."""
        with ExitStack() as stack:
            for side in planned.sides:
                advice = join_again(f"deltatag join {self.join.name}", side.stream)
                stack.enter_context(reporting_lost_files(self.sources[side.stream.name], side.files, advice))
            yield

    def _planned(
        self, batch: MicroBatch, files: list[SideFiles], resumed: bool = False, without: frozenset[str] | None = None
    ) -> PlannedJoin:
        """The micro-batch as runners take it. without: the inputs to leave out, by default those of the plan."""
        fingerprint = str(batch.fingerprint)
        stored, _, path = self._index(fingerprint)
        without = left_out(batch.plan) if without is None else without
        return PlannedJoin(self.join, batch, files, stored, self._join_index(fingerprint), path, resumed, without)

    def _definition(self) -> dict[str, Any]:
        """The definition of the join with the time zone of its event times, as JSON values."""
        return {
            **definition_of(self.join, self.streams),
            "time_zone": self._zone,
        }

    def _wall_zone(self, fingerprint: str | None) -> str | None:
        """The time zone of an index's rules, by default the newest; None if all event times are instants anyway."""
        if self._instants:
            return None
        fingerprint = fingerprint or index_to_tag_with(self.lake, self.join.name).fingerprint
        return self._index(fingerprint)[1].time_zone

    @cached_property
    def _instants(self) -> bool:
        """True if the event times of all sources are TIMESTAMP; dates and wall times need a zone to be instants."""
        kinds = []
        for name, source in self.sources.items():
            time = str(self.streams[name].event_time).lower()
            fields = source_fields(source, source.version)
            kinds += [field["type"] for field in fields if field["name"].lower() == time]
        return all(kind == "timestamp" for kind in kinds)

    def _plan_side(self, name: str, before: Mapping[str, Any] | None, skip_changes: bool) -> dict[str, Any]:
        """The plan of a stream's side; before: that of the previous micro-batch, None if there is none.

        first, position: where the join began in the source, and where this micro-batch begins; slice: what it takes,
        None for no rows; end: where the next one begins.
        """
        source, stream = self.sources[name], self.streams[name]
        reached = before is not None and before["end"] != before["first"]
        if before is not None and reached:
            first, position = Position(**before["first"]), position_from_plan(before["end"])
        else:  # a start in the future is found again, since commits before it may have come
            first = position = source.first_position(stream.start)
        table_id = None if before is None else before["table_id"]
        taken = source.take(position, table_id, stream.max_bytes_per_batch, skip_changes, reached)
        return {
            "first": asdict(first),
            "position": asdict(position),
            "slice": taken.to_plan() if taken is not None else None,
            "end": asdict(taken.end if taken is not None else position),
            "table_id": source.table_id,
            "schema_version": taken.schema_version if taken is not None else source.version,
        }

    def _follow_columns(self, sides: dict[str, Any], before: Mapping[str, Any]) -> None:
        """Add the sources' stored column names to the sides; SourceChangedError if they have changed."""
        for name, side in sides.items():
            side |= self.runner.followed(self.sources[name], side["schema_version"], before.get(name), self.join, name)

    def _columns(self, sides: Mapping[str, Any]) -> pa.Schema:
        """The columns that rules may name, as the sources have them at the sides' schema versions."""
        streams = {name: source_fields(source, sides[name]["schema_version"]) for name, source in self.sources.items()}
        return joined_columns({name: arrow_schema_of(fields) for name, fields in streams.items()})

    def _files(self, sides: Mapping[str, Any], least: int | None) -> list[SideFiles]:
        zone = self._zone or self.workspace.configuration.rules.time_zone
        return side_files(self.widest_join, self.streams, self.sources, sides, zone, least)

    def execute(self, planned: PlannedJoin, partitioned: PartitionedRows) -> MicroBatch:
        """Write the micro-batch as planned, and record it as done."""
        started = time.perf_counter()
        batch, plan = planned.batch, planned.batch.plan
        files = sum(len(side.new.files) for side in planned.sides if side.new is not None)
        self.workspace.progress(f"{self.join.name}: micro-batch {batch.batch}, {files} new files")
        figures: dict[str, Any] = {"rows": 0, "joined": 0, "matches": 0, "quarantined": 0, "latest": plan["latest"]}
        if files:
            with self._explained_end(), self._reporting_lost_files(planned):
                figures = self._write(planned, partitioned)
        self._last = self._record_done(
            batch,
            started,
            plan={**plan, "joined": figures["joined"], "latest": figures["latest"]},
            rows=figures["rows"],
            matches=figures["matches"],
            quarantined=figures["quarantined"],
            errors=errors_of(planned.index.compiled, plan, figures["rows"]),
        )
        return self._last

    def _write(self, planned: PlannedJoin, partitioned: PartitionedRows) -> dict[str, Any]:
        return self.runner.write(planned, partitioned)

    def _join_index(self, fingerprint: str) -> JoinIndex:
        if fingerprint not in self._join_indexes:
            compiled = self._index(fingerprint)[1]
            self._join_indexes[fingerprint] = JoinIndex.of(compiled, self.join.streams)
        return self._join_indexes[fingerprint]
