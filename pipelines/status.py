"""The verb status: the state of each stream and join; needs no JVM unless the lake or a source is in a catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from pipelines.annotated import check_widened
from pipelines.compiling.due import compile_is_due
from pipelines.errors import NeedsSparkError, PipelineError, SourceError
from pipelines.joining.definition import definition_changes, definition_of
from pipelines.joining.notices import notices
from pipelines.lake.index_store import StoredIndex, newest_index
from pipelines.lake.lake import open_delta, rows_in
from pipelines.lake.runs import DONE, MicroBatch, check_id_type, last_batch
from pipelines.lake.table_log import table_log
from pipelines.maintain import TableSizes, table_sizes
from pipelines.recovery.attempts import notices as left_out_notices
from pipelines.recovery.lost_rows import lost_or_restored_rows
from pipelines.scopes import scope_of
from pipelines.settings.configuration import is_catalog_name
from pipelines.settings.model import Join, Stream
from pipelines.sources.columns import refused_checks, source_columns
from pipelines.sources.newest_version import newest_version
from pipelines.sources.only_joined import command_of, is_only_joined, notice
from pipelines.sources.positions import Position, position_from_plan
from pipelines.sources.source import Source, older_copy
from pipelines.table_definitions import tagged_table
from pipelines.workspace import Workspace

_ALL = 1 << 62
"""More bytes than any source has."""


@dataclass(frozen=True, slots=True)
class ScopeStatus:
    """The state of one stream or join. Lags are None if they are unknown; `problem` then says why.

    The lags of a join are summed over its streams; its `source_version` and `tagged_version` are None. needs_spark: a
    clause that says which rule needs Spark; notices: sentences that are no problem, but worth reading; files, bytes:
    those of the scope's own tables, None if there are none yet; maintenance_due: the tables that the next run, or
    maintain, will compact or vacuum.
    """

    scope: str
    rules_version: int | None
    index_version: int | None
    fingerprint: str | None
    engine: str | None
    engine_reason: str | None
    rules: int | None
    rejects: int
    compile_due: bool
    source_version: int | None
    tagged_version: int | None
    lag_versions: int | None
    lag_rows: int | None
    last_batch: int | None
    last_state: str | None
    last_rows: int | None
    last_started_at: datetime | None
    problem: str | None = None
    streams: tuple[str, ...] = ()
    needs_spark: str | None = None
    notices: tuple[str, ...] = ()
    files: int | None = None
    bytes: int | None = None
    maintenance_due: tuple[str, ...] = ()


class _Lag(NamedTuple):
    """How far a scope is behind the newest version of one stream's source; None if unknown."""

    source_version: int | None
    versions: int | None
    rows: int | None
    problem: str | None = None


def status(workspace: Workspace) -> list[ScopeStatus]:
    """The state of every stream, then of every join; MissingTableError before `deltatag init`."""
    version = workspace.lake.version("rules")
    rejects = workspace.lake.arrow("rule_rejects", ["scope"])["scope"].to_pylist()
    scopes: list[Stream | Join] = [*workspace.configuration.streams.values(), *workspace.configuration.joins.values()]
    return [_status(workspace, scope, version, rejects.count(scope.name)) for scope in scopes]


def lag_of(workspace: Workspace, name: str) -> tuple[int | None, int | None]:
    """How many versions and rows of its sources a stream or a join is behind.

    None if that is unknown, and for a stream that only joins read.
    """
    if is_only_joined(workspace, name):
        return None, None
    configuration = workspace.configuration
    scopes: dict[str, Stream | Join] = {**configuration.streams, **configuration.joins}
    lags = [_lag(workspace, *each) for each in _positions(workspace, scopes[name], last_batch(workspace.lake, name))]
    return _total([lag.versions for lag in lags]), _total([lag.rows for lag in lags])


def _status(workspace: Workspace, scope: Stream | Join, rules_version: int, rejects: int) -> ScopeStatus:
    problems: list[str] = []
    stored: StoredIndex | None = None
    last: MicroBatch | None = None
    lags: list[_Lag] = []
    due = True
    sizes = TableSizes()
    is_stream = isinstance(scope, Stream)
    unneeded = False
    try:
        last = last_batch(workspace.lake, scope.name)
        stored = newest_index(workspace.lake, scope.name)
        unneeded = is_stream and is_only_joined(workspace, scope.name)
        command = command_of(workspace, scope.name) if is_stream else f"deltatag join {scope.name}"
        positions = list(_positions(workspace, scope, last))
        lags = [_lag(workspace, *each, command) for each in positions]
        found = [lag.problem or _obstacle(*each[:2], command) for lag, each in zip(lags, positions, strict=True)]
        problems += [each for each in found if each is not None]
        if loss := lost_or_restored_rows(workspace, scope, last):
            problems.append(loss)
        if isinstance(scope, Stream) and scope.checks and not unneeded:
            problems += refused_checks(scope, source_columns(workspace, scope))
        if isinstance(scope, Join):
            problems += _changes(workspace, scope, last)
        if stored is None and not unneeded:
            scope_of(workspace, scope.name).columns()  # raises an error if rules cannot be compiled over them
        due = compile_is_due(workspace, scope.name)
        sizes = table_sizes(workspace, scope.name)
        id_type = workspace.lake.rule_id_type()
        check_id_type(last, id_type, f"{command} --restart")
        if scope.annotations and workspace.lake.exists(table := tagged_table(scope.name)):
            held = [field.name for field in workspace.lake.delta(table).schema().fields]
            check_widened(scope.name, held, scope.annotations, id_type)
    except PipelineError as error:
        problems.append(str(error))
    return ScopeStatus(
        scope=scope.name,
        rules_version=rules_version,
        index_version=stored.rules_version if stored else None,
        fingerprint=stored.fingerprint if stored else None,
        engine=stored.engine if stored else None,
        engine_reason=stored.statistics.get("engine_reason") if stored else None,
        rules=stored.rules if stored else None,
        rejects=rejects,
        compile_due=due,
        source_version=lags[0].source_version if is_stream and lags else None,
        tagged_version=_tagged_version(last) if is_stream and last is not None else None,
        lag_versions=None if unneeded else _total([lag.versions for lag in lags]),
        lag_rows=None if unneeded else _total([lag.rows for lag in lags]),
        last_batch=last.batch if last else None,
        last_state=last.state if last else None,
        last_rows=last.rows if last else None,
        last_started_at=last.started_at if last else None,
        problem="; ".join(problems) or None,
        needs_spark=stored.needs_spark if stored else None,
        streams=(scope.name,) if isinstance(scope, Stream) else scope.streams,
        notices=_notices(scope.name, last) if last is not None else (notice(workspace, scope.name),) * unneeded,
        files=sizes.files,
        bytes=sizes.bytes,
        maintenance_due=sizes.due,
    )


def _tagged_version(last: MicroBatch) -> int | None:
    """The last version of the source whose rows are tagged; an unfinished micro-batch does not count."""
    if last.state == DONE:
        return last.source_version if "end" in last.plan else None
    if "start" not in last.plan:
        return None
    start = position_from_plan(last.plan["start"])
    version = start.version - (0 if start.index else 1)
    return version if version >= 0 and not (start.snapshot and not start.index) else None


def _notices(scope: str, last: MicroBatch) -> tuple[str, ...]:
    return (*notices(scope, last.plan), *left_out_notices(scope, last))


def position_of(workspace: Workspace, stream: Stream, last: MicroBatch | None) -> tuple[Position | None, str | None]:
    """The position after the tagged rows of a stream's source (None: the start), and its table's id (None: unknown)."""
    ((_, position, table_id),) = _positions(workspace, stream, last)
    return position, table_id


def _positions(
    workspace: Workspace, scope: Stream | Join, last: MicroBatch | None
) -> Iterator[tuple[Stream, Position | None, str | None]]:
    """Each stream of the scope with the position after the last finished micro-batch, and the id of its table.

    The position is None for the start of the source; so is the id before rows of it were taken.
    """
    taken = last is not None and last.state == DONE
    if isinstance(scope, Stream):
        plan = last.plan if last is not None and "end" in last.plan else None
        yield scope, position_from_plan(plan["end" if taken else "start"]) if plan else None, _table_id(plan)
        return
    sides = last.plan.get("sides", {}) if last is not None else {}
    for name in scope.streams:
        side = sides.get(name)
        position = position_from_plan(side["end" if taken else "position"]) if side else None
        # until a row is taken, the position may be a start in the future, which says nothing of the table
        reached = side is not None and side["end" if taken else "position"] != side.get("first")
        yield workspace.configuration.stream(name), position, _table_id(side) if reached else None


def _table_id(plan: Mapping[str, Any] | None) -> str | None:
    return None if plan is None else plan.get("table_id")


def _changes(workspace: Workspace, join: Join, last: MicroBatch | None) -> Iterator[str]:
    """A sentence if the join's definition has changed since its rows were joined."""
    if last is not None and "definition" in last.plan:
        streams = {name: workspace.configuration.stream(name) for name in join.streams}
        if changes := definition_changes(last.plan["definition"], definition_of(join, streams)):
            yield (
                f"The join was changed ({changes}): deltatag join {join.name} will not continue until "
                "the change is undone, or everything is joined again with --restart."
            )


def _lag(
    workspace: Workspace, stream: Stream, position: Position | None, table_id: str | None, command: str = ""
) -> _Lag:
    """command: the one that takes the stream's rows, for the problem's cure."""
    again = f"Process everything again with: {command} --restart"
    newest = newest_version(workspace, stream)
    if table_id is not None and newest.table_id != table_id:
        return _Lag(newest.version, None, None, f"The source of {stream.name} was dropped and made again. {again}")
    if table_id is not None and position is not None and position.is_beyond(newest.version):
        return _Lag(newest.version, None, None, f"{older_copy(stream.name, newest.version)} {again}")
    if position is None and stream.start.kind != "earliest" and not is_catalog_name(stream.source):
        try:
            position = Source(stream.name, table_log(stream.source)).first_position(stream.start)
        except SourceError as error:
            return _Lag(newest.version, None, None, str(error))
    first = position.version if position is not None else 0
    behind = max(newest.version + 1 - first, 0)
    return _Lag(newest.version, behind, _rows_behind(stream, position) if behind else 0)


def _obstacle(stream: Stream, position: Position | None, command: str) -> str | None:
    """Why a run will stop after a position, such as at a commit that removed rows; None if it will not."""
    if position is None or is_catalog_name(stream.source):
        return None
    try:
        log, start = table_log(stream.source), stream.start
        source = Source(stream.name, log, command, stream.source_stream, stream.left_out, start)
        while (taken := source.take(position, None, _ALL, reached=False)) is not None:
            position = taken.end
    except SourceError as error:
        return str(error)
    except NeedsSparkError:
        return None  # a run with Spark may go on
    return None


def _total(counts: list[int | None]) -> int | None:
    """The sum; None if the list is empty or one of its counts is unknown."""
    known = [count for count in counts if count is not None]
    return sum(known) if counts and len(known) == len(counts) else None


def _rows_behind(stream: Stream, start: Position | None) -> int | None:
    """Rows that the source's log counts after a position (None: all rows); None if it does not say."""
    if is_catalog_name(stream.source):
        return None
    try:
        table = open_delta(stream.source, None, "a source", "")
        if start is None:
            return rows_in(table)
        if start.snapshot:
            return None
        behind = 0
        for commit in table.history(max(table.version() + 1 - start.version, 1)):
            if commit.get("version", -1) < start.version:
                break
            metrics: dict[str, Any] = commit.get("operationMetrics") or {}
            added = metrics.get("numOutputRows", metrics.get("num_added_rows"))
            if added is None and commit.get("operation") in ("WRITE", "STREAMING UPDATE", "MERGE"):
                return None
            behind += int(added or 0) if commit.get("operation") not in ("OPTIMIZE", "VACUUM END") else 0
        return behind
    except (PipelineError, SourceError, ValueError, KeyError):
        return None
