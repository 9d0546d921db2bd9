"""One join's micro-batches: planned in `runs` before their first write, written exactly once, recorded as done.

A micro-batch takes a slice of every source. A joined row is found by the micro-batch that takes the last of its rows.
So after any sequence of runs the table is the same as if one micro-batch had taken all rows.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pipelines.annotated import check_compiled
from pipelines.errors import IndexOutdatedError, JoinChangedError, SparkEndedError
from pipelines.joining.definition import definition_changes, definition_of
from pipelines.joining.runner import JoinRunner, Placed, Planned
from pipelines.joining.sides import SideFiles, least_time, side_files, source_fields
from pipelines.lake.index_store import StoredIndex, index_to_tag_with, load_planned, newest_index
from pipelines.lake.runs import (
    DONE,
    PLANNED,
    RESET,
    MicroBatch,
    abandon,
    last_batch,
    plan_reset,
    record_done,
    record_plan,
    record_reset,
)
from pipelines.lake.tables import quarantine_table, tagged_table
from pipelines.recovery.attempts import Attempts, described, errors_of, holds_nothing, left_out, plan_anew
from pipelines.scopes import JoinScope
from pipelines.sources.lost_files import telling_lost_files
from pipelines.sources.positions import Position, position_from_plan
from pipelines.sources.source import Source
from pipelines.writing.inputs import check_inputs
from rules_index.join.index import JoinIndex

if TYPE_CHECKING:
    from pipelines.settings.model import Join
    from pipelines.workspace import Workspace


class Joiner:
    """One join in a run of one or several over the same streams and keys."""

    def __init__(
        self,
        workspace: Workspace,
        runner: JoinRunner,
        join: Join,
        widest: Join,
        sources: Mapping[str, Source],
        ended: bool = False,
    ) -> None:
        """widest: the streams, the keys and the longest windows of all joins of the run; sources: by stream; ended: an
        attempt at the join's last micro-batch has just ended Spark."""
        self.workspace, self.join, self.widest, self.sources = workspace, join, widest, sources
        self.runner, self.lake = runner, workspace.lake
        self.streams = {name: workspace.configuration.stream(name) for name in join.streams}
        self._indexes: dict[str, tuple[StoredIndex, JoinIndex, Path]] = {}
        self._ended, self._attempts = ended, cast("Attempts | None", None)
        self._zone: str | None = None
        self._last = last_batch(self.lake, join.name)

    def reset(self, restart: bool) -> MicroBatch | None:
        """Empty the join's tables if `restart` is set, or if an earlier run planned it but did not finish."""
        if restart and self._last is not None:
            self._last = plan_reset(self.lake, self._last)
        if self._last is None or self._last.state != RESET:
            return None
        for series in abandon(self.lake, self._last):
            self.runner.give_up(series, self._names, self._last.batch)
        nothing = {name: self._plan_side(name, None, False) | {"slice": None} for name in self.join.streams}
        self.runner.prepare(self.join, self._files(nothing, None), self.lake.rule_id_type(), anew=True)
        self._last = record_reset(self.lake, self._last)
        return self._last

    def plan(self, skip_changes: bool) -> Planned | None:
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
                f"The join {self.join.name} has other streams, keys, windows, event times or another time zone now "
                f"than those that its table was joined with ({changes}). Take them back, or join everything anew "
                f"with: deltatag join {self.join.name} --restart"
            )
        if last is not None and unfinished:
            return self._go_on(last)
        before = {} if last is None else last.plan["sides"]
        sides = {name: self._plan_side(name, before.get(name), skip_changes) for name in self.join.streams}
        if all(side["slice"] is None for side in sides.values()):
            return None
        self._follow_columns(sides, before)
        stored = index_to_tag_with(self.lake, self.join.name)
        _, index, _ = self._index(stored.fingerprint)
        check_inputs(index.compiled, JoinScope(self.workspace, self.join).columns(), self.join.name)
        check_compiled(index.compiled, self.join.annotations, self.join.name)
        plan: dict[str, Any] = {
            "definition": definition,
            "sides": sides,
            "series": uuid.uuid4().hex if last is None else last.plan["series"],
            "id_type": self.lake.rule_id_type(),
            "lateness": self.join.lateness,
            "latest": None if last is None else last.plan.get("latest"),
        }
        if last is not None and last.fingerprint == stored.fingerprint and left_out(last.plan):
            plan["suspects"] = sorted(left_out(last.plan))
        files = self._files(sides, least_time(plan))
        for side in files:
            sides[side.stream.name] |= {
                "read_share": round(side.read_share, 4),
                "earlier_files": len(side.earlier),
                "new_files": len(side.new.files) if side.new else 0,
            }
        self.runner.prepare(self.join, files, plan["id_type"])
        return self._recorded(plan, stored, files)

    def _go_on(self, batch: MicroBatch) -> Planned:
        """A planned micro-batch; with the newest index if nothing of it is written yet."""
        files = self._files(batch.plan["sides"], least_time(batch.plan))
        newest = self._newer_index(batch)
        if newest is not None or "given_up" in batch.plan:
            newest = newest or self._index(str(batch.fingerprint))[0]
            batch = self._last = self._plan_anew(batch, newest, {"left_out": []})
            self._ended = False
        if not any(side.new is not None and side.new.files for side in files):
            return self._planned(batch, files, resumed=True)
        stored, index, _ = self._index(str(batch.fingerprint))
        self._attempts = Attempts(self.lake, batch, index.compiled, self._ended)
        guilty = self._attempts.begin(lambda without: self._match(files, without))
        batch = self._attempts.batch
        if guilty:
            listed = [*batch.plan.get("left_out", []), *described(index.compiled, guilty)]
            batch = self._plan_anew(batch, stored, {"left_out": listed})
        self._last = batch
        return self._planned(batch, files, resumed=True)

    def _newer_index(self, batch: MicroBatch) -> StoredIndex | None:
        """The newest index, if a planned micro-batch can be matched with it instead of its own; else None.

        It can if nothing is written yet, the sources have the columns that the newest index reads, and event times are
        the same instants in its time zone.
        """
        newest = newest_index(self.lake, self.join.name)
        if newest is None or newest.fingerprint == batch.fingerprint:
            return None
        may_go_on = "given_up" not in batch.plan and self._is_readable(str(batch.fingerprint))
        if may_go_on and not holds_nothing(self.lake, batch, self._names):
            return None
        compiled = self._index(newest.fingerprint)[1].compiled
        try:
            check_inputs(compiled, JoinScope(self.workspace, self.join).columns(), self.join.name)
        except IndexOutdatedError:
            return None
        return newest if self._zone in (None, compiled.time_zone) else None

    def _plan_anew(self, batch: MicroBatch, stored: StoredIndex, changes: Mapping[str, Any]) -> MicroBatch:
        of_rules = [tagged_table(self.join.name)]
        return plan_anew(self.lake, batch, self._names, of_rules, stored, changes, self.runner.give_up)

    @property
    def _names(self) -> list[str]:
        return [quarantine_table(self.join.name), tagged_table(self.join.name)]

    def _is_readable(self, fingerprint: str) -> bool:
        """Whether this version of deltatag can read an index."""
        try:
            self._index(fingerprint)
        except IndexOutdatedError:
            return False
        return True

    def _match(self, files: list[SideFiles], without: frozenset[str]) -> None:
        """Join the micro-batch's rows and write nothing; the derived columns in `without` are left out."""
        assert self._attempts is not None
        self.runner.match(self.widest, self._planned(self._attempts.batch, files, without=without))

    @contextmanager
    def _telling_lost_files(self, planned: Planned) -> Iterator[None]:
        """Turn an error that is due to deleted source files into one that says so."""
        way_out = f"Join everything that the sources hold now anew with: deltatag join {self.join.name} --restart"
        with ExitStack() as stack:
            for side in planned.sides:
                stack.enter_context(telling_lost_files(self.sources[side.stream.name], side.files, way_out))
            yield

    def _recorded(self, plan: dict[str, Any], stored: StoredIndex, files: list[SideFiles]) -> Planned:
        batch = MicroBatch(
            scope=self.join.name,
            batch=0 if self._last is None else self._last.batch + 1,
            state=PLANNED,
            plan=plan,
            rules_version=stored.rules_version,
            fingerprint=stored.fingerprint,
            source_version=None,
            started_at=datetime.now(UTC),
        )
        recorded = record_plan(self.lake, batch)
        if recorded.plan != plan:
            files = self._files(recorded.plan["sides"], least_time(recorded.plan))
        return self._planned(recorded, files)

    def _planned(
        self, batch: MicroBatch, files: list[SideFiles], resumed: bool = False, without: frozenset[str] | None = None
    ) -> Planned:
        """The micro-batch as runners take it. without: the inputs to leave out, by default those of the plan."""
        stored, index, path = self._index(str(batch.fingerprint))
        without = left_out(batch.plan) if without is None else without
        return Planned(self.join, batch, files, stored, index, path, resumed, without)

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
        return self._index(fingerprint)[1].compiled.time_zone

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
        source, stream = self.sources[name], self.streams[name]
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
            "schema_version": taken.schema_version if taken is not None else source.version,
        }

    def _follow_columns(self, sides: dict[str, Any], before: Mapping[str, Any]) -> None:
        """Add the sources' stored column names to the sides; SourceChangedError if they have changed."""
        for name, side in sides.items():
            side |= self.runner.followed(self.sources[name], side["schema_version"], before.get(name), self.join, name)

    def _files(self, sides: Mapping[str, Any], least: int | None) -> list[SideFiles]:
        zone = self._zone or self.workspace.configuration.rules.time_zone
        return side_files(self.widest, self.streams, self.sources, sides, zone, least)

    def execute(self, planned: Planned, placed: Placed) -> MicroBatch:
        """Write the micro-batch as planned, and record it as done."""
        started = time.perf_counter()
        batch, plan = planned.batch, planned.batch.plan
        files = sum(len(side.new.files) for side in planned.sides if side.new is not None)
        self.workspace.progress(f"{self.join.name}: micro-batch {batch.batch}, {files} new files")
        figures: dict[str, Any] = {"rows": 0, "joined": 0, "matches": 0, "quarantined": 0, "latest": plan["latest"]}
        if files:
            try:
                with self._telling_lost_files(planned):
                    figures = self._write(planned, placed)
            except SparkEndedError as error:
                raise (self._attempts.told(error) if self._attempts is not None else error) from error
        done = replace(
            batch,
            state=DONE,
            plan={**plan, "joined": figures["joined"], "latest": figures["latest"]},
            rows=figures["rows"],
            matches=figures["matches"],
            quarantined=figures["quarantined"],
            errors=errors_of(planned.index.compiled, plan, figures["rows"]),
            seconds=round(time.perf_counter() - started, 3),
        )
        record_done(self.lake, done)
        self._last, self._attempts, self._ended = done, None, False
        return done

    def _write(self, planned: Planned, placed: Placed) -> dict[str, Any]:
        return self.runner.write(planned, placed)

    def _index(self, fingerprint: str) -> tuple[StoredIndex, JoinIndex, Path]:
        if fingerprint not in self._indexes:
            name = self.join.name
            stored, compiled, path = load_planned(self.lake, name, fingerprint, f"deltatag join {name}")
            self._indexes[fingerprint] = (stored, JoinIndex.of(compiled, self.join.streams), path)
        return self._indexes[fingerprint]
