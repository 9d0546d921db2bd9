"""The suite of a stream's source, checked before tagging: the source, and its rows that are not tagged yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipelines.errors import CheckError, NeedsSparkError, PipelineError, SourceError
from pipelines.sources.columns import check_columns, check_event_time, source_columns
from pipelines.sources.lost_files import join_again, reporting_lost_files, reporting_lost_rows
from pipelines.sources.only_joined import command_of
from quality.evaluation import MeasuredSuites, Suite
from quality.findings import WARNING, Expectation
from quality.validation import between, none_of, one_of

if TYPE_CHECKING:
    from pipelines.runners.runner import Runner
    from pipelines.settings.model import Join, Stream
    from pipelines.workspace import Workspace

OK = "yes"
MISSING = "missing"
_EVENT_TIMES = ["timestamp", "timestamp_ntz", "date"]
_ALL_BYTES = 1 << 62
OF_STREAM = ("columns",)
"""Names of the expectations that a stream needs and its joins do not; joins only need the others."""


def expectations(stream: Stream) -> tuple[Expectation, ...]:
    """The expectations about the source as a whole, and about its new rows."""
    keys, checks = list(enumerate(stream.key)), list(enumerate(stream.checks))
    listed = [
        one_of("followed", "The source is a Delta table that only grew since it was tagged last", "followed", [OK]),
        one_of("columns", "The source has the columns that the stream names, and none of deltatag's", "columns", [OK]),
    ]
    if stream.event_time is not None:
        text = f"The event time {stream.event_time} is a TIMESTAMP, a TIMESTAMP_NTZ or a DATE"
        listed.append(one_of("event_time_type", text, "event_time_type", _EVENT_TIMES))
    if stream.checks:
        listed.append(one_of("checks_valid", "Every check is a condition over the source's columns", "checks", [OK]))
    for number, name in keys:
        text = f"No new row has NULL in its key {name}"
        listed.append(none_of(f"key_{_word(name)}_not_null", text, f"null_key_{number}", WARNING))
    for number, name in checks:
        text = f"No new row fails the check {name}"
        listed.append(none_of(f"check_{_word(name)}_holds", text, f"failed_check_{number}", WARNING))
    if stream.can_quarantine:
        text = "Share of new rows that go to quarantine"
        listed.append(between("quarantine_share", text, "quarantine_share", 0, stream.max_quarantine_share))
    return tuple(_distinct(listed))


def as_joined(stream: Stream) -> Stream:
    """The stream reduced to what a join needs of it: without key, clustering, partitions and annotations."""
    return replace(stream, key=(), cluster_by=(), partition_by=None, annotations=())


def suites(workspace: Workspace, stream: Stream, join: Join | None = None) -> MeasuredSuites:
    """The suite over the source's newest version, and its measures.

    join: measure only what this join needs of the source, and the rows that it has not taken yet; `stream` must then be
    a result of `as_joined`.
    """
    measures: dict[str, Any] = {"followed": OK, "columns": OK, "checks": OK, "event_time_type": MISSING}
    try:
        schema = source_columns(workspace, stream)
    except PipelineError as error:
        schema = None
        measures["followed"] = str(error)
    if schema is not None:
        measures |= _structure(stream, schema, check_columns if join is None else check_event_time)
    measures |= _no_rows(stream)
    if schema is not None and measures["columns"] == OK:
        measures |= _new_rows(workspace, stream, join)
    elif schema is not None and measures["event_time_type"] in _EVENT_TIMES:
        # joins may go on, so their rows are judged
        measures |= _new_rows(workspace, as_joined(stream), join)
    return MeasuredSuites([Suite(stream.name, expectations(stream), measures)], measures)


def _structure(stream: Stream, schema: pa.Schema, check: Callable[[Stream, pa.Schema], None]) -> dict[str, str]:
    found = {"columns": OK}
    names = {name.lower(): name for name in schema.names}
    if stream.event_time is not None and stream.event_time.lower() in names:
        found["event_time_type"] = _sql_type(schema.field(names[stream.event_time.lower()]).type)
    try:
        check(stream, schema)
    except SourceError as error:
        if found.get("event_time_type", "date") in _EVENT_TIMES:
            found["columns"] = str(error)
        else:
            # the event time's type has its own expectation, so the other columns are checked without it
            found |= _structure(replace(stream, event_time=None), schema, check)
    return found


def _sql_type(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is not None else "timestamp_ntz"
    return "date" if pa.types.is_date(kind) else str(kind)


def _no_rows(stream: Stream) -> dict[str, Any]:
    counts = {f"null_key_{number}": 0 for number, _ in enumerate(stream.key)}
    counts |= {f"failed_check_{number}": 0 for number, _ in enumerate(stream.checks)}
    return {"new_rows": 0, "refused": 0, "quarantine_share": 0.0, **counts}


def _new_rows(workspace: Workspace, stream: Stream, join: Join | None) -> dict[str, Any]:
    """Counts over the rows that no micro-batch of the stream, or of the join, has taken yet, by the stream's runner."""
    from pipelines.runners.choice import going_on_with_spark, runner_of

    runner = runner_of(workspace, stream)
    try:
        return _counted_by(runner, workspace, stream, join)
    except NeedsSparkError as reason:
        return _counted_by(going_on_with_spark(workspace, stream, reason), workspace, stream, join)


def _counted_by(runner: Runner, workspace: Workspace, stream: Stream, join: Join | None) -> dict[str, Any]:
    measures = _no_rows(stream)
    command = command_of(workspace, stream.name) if join is None else f"deltatag join {join.name}"
    try:
        with runner.session(), runner.in_zone(workspace.configuration.rules.time_zone):
            source = runner.open_source(command)
            taken = _what_is_new(workspace, stream, join, source)
            measures["source_version"] = source.version
            if taken is None or not stream.can_quarantine:
                return measures
            lost = reporting_lost_rows(source, taken.files)
            if command.startswith("deltatag join"):
                lost = reporting_lost_files(source, taken.files, join_again(command, stream))
            with lost:
                found = runner.refused(source, taken, {"key": list(stream.key), "checks": dict(stream.checks)})
    except CheckError as error:
        return {**measures, "checks": str(error)}
    except SourceError as error:
        return {**measures, "followed": str(error)}
    share = found.refused / found.rows if found.rows else 0.0
    counts = {f"null_key_{number}": count for number, count in enumerate(found.null_keys)}
    counts |= {f"failed_check_{number}": count for number, count in enumerate(found.failed_checks)}
    return {**measures, "new_rows": found.rows, "refused": found.refused, "quarantine_share": share, **counts}


def _what_is_new(workspace: Workspace, stream: Stream, join: Join | None, source: Any) -> Any:
    """The files after the last planned micro-batch, as one slice of at most `MAX_FILES`; None if none are new."""
    from pipelines.lake.runs import last_batch
    from pipelines.sources.positions import position_from_plan

    last = last_batch(workspace.lake, stream.name if join is None else join.name)
    if last is None or last.plan.get("reset"):
        return source.take(source.first_position(stream.start), None, _ALL_BYTES, reached=False)
    plan = last.plan if join is None else last.plan["sides"][stream.name]
    reached = plan["end"] != plan.get("first")  # a join has not reached a start in the future
    position = position_from_plan(plan["end"]) if reached else source.first_position(stream.start)
    return source.take(position, plan["table_id"], _ALL_BYTES, reached=reached)


def _distinct(listed: list[Expectation]) -> list[Expectation]:
    """The expectations with a number appended to names that are already taken."""
    taken: set[str] = set()
    for number, expectation in enumerate(listed):
        if expectation.name in taken:
            listed[number] = replace(expectation, name=f"{expectation.name}_{number}")
        taken.add(listed[number].name)
    return listed


def _word(name: str) -> str:
    """The name with all but ASCII letters, digits and underscores replaced, for the name of an expectation."""
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
