"""How runs start: a job over all assets, a schedule that runs what is due, a sensor that notices changes."""

import hashlib
import json
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.joins import join_tables
from assets.names import (
    JOB,
    MAINTENANCE,
    RESOURCE,
    RULES,
    index_key,
    list_key,
    rejects_key,
    report_key,
    retag_key,
    runs_key,
    source_key,
    table_key,
)
from assets.retagging import can_retag_days
from assets.streams import stream_tables
from pipelines.settings.model import Configuration

if TYPE_CHECKING:
    from pipelines.workspace import Workspace

CRON = "*/15 * * * *"
SENSOR = "rules_and_sources"
SENSOR_SECONDS = 30
DUE_TAG, SENSOR_TAG = "deltatag/due", "deltatag/sensor_of"
"""Tags of runs: the streams and joins that were due; and for runs that the sensor starts, its configuration's file."""
REPEAT_SECONDS = 15 * 60
"""Seconds after the end of its last, unfinished run until the sensor starts another one, though nothing has changed."""
_UNFINISHED = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


def run_job(configuration: Configuration) -> Any:
    """The job over all assets, which does what `deltatag run` does."""
    excluded = [
        MAINTENANCE,
        *map(report_key, [*configuration.streams, *configuration.joins]),
        *(retag_key(name) for name, stream in configuration.streams.items() if can_retag_days(stream)),
    ]
    observed = [RULES, *map(source_key, configuration.streams), *map(list_key, configuration.lists)]
    return dg.define_asset_job(
        JOB,
        selection=dg.AssetSelection.all() - dg.AssetSelection.assets(*excluded) | dg.AssetSelection.assets(*observed),
        description="Check quality, compile, tag and join whatever is due.",
        executor_def=dg.in_process_executor,
    )


def run_schedule(configuration: Configuration, job: Any) -> dg.ScheduleDefinition:
    """A schedule that starts the job every 15 minutes for the streams and joins that are due, if there are any."""

    @dg.schedule(
        name="run_every_quarter_of_an_hour",
        job=job,
        cron_schedule=CRON,
        execution_timezone=configuration.rules.time_zone,
        required_resource_keys={RESOURCE},
        description="Does what is due, including what an earlier run failed to do.",
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        """Request a run of what is due, or skip."""
        from pipelines.due import due_scopes

        workspace = context.resources.lake.workspace()
        unserved = unserved_scopes(context, configuration, workspace.configuration)
        due = [name for name in due_scopes(workspace) if name not in unserved]
        if not due:
            return dg.SkipReason("Nothing is due: no rule, source or stored index has changed.")
        selected = _selected(configuration, workspace.configuration, due)
        return dg.RunRequest(asset_selection=selected, tags={DUE_TAG: ", ".join(due)})

    return schedule


def change_sensor(configuration: Configuration, job: Any) -> dg.SensorDefinition:
    """A sensor that starts the job when an edit of the rules or a list, or new rows of a source, make something due."""

    @dg.sensor(
        name=SENSOR,
        job=job,
        minimum_interval_seconds=SENSOR_SECONDS,
        required_resource_keys={RESOURCE},
        description="Starts a run on edits of the rules table and of lists, and on new versions of the sources; "
        "repeats after a quarter of an hour what a run failed to do.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        """Request a run of what is due if versions have changed or the last run failed a while ago, or skip."""
        from pipelines.due import due_scopes

        workspace = context.resources.lake.workspace()
        unserved = unserved_scopes(context, configuration, workspace.configuration)
        versions = current_versions(workspace, unserved)
        cursor = json.dumps(versions, sort_keys=True)
        last = last_run(context.instance, configuration)
        if cursor == context.cursor and not is_to_be_repeated(last):
            return dg.SensorResult(skip_reason="No rule and no list was edited, and no source has a new version.")
        due = [name for name in due_scopes(workspace) if name not in unserved]
        if not due:
            return dg.SensorResult(skip_reason="The new versions require no run.", cursor=cursor)
        # Dagster starts no second run of a key, and a source that was put back to a copy has the same versions again
        after = last.dagster_run.run_id if last is not None else ""
        request = dg.RunRequest(
            run_key=hashlib.sha256(f"{context.cursor}{cursor}{after}".encode()).hexdigest(),
            asset_selection=_selected(configuration, workspace.configuration, due),
            tags={DUE_TAG: ", ".join(due), SENSOR_TAG: str(configuration.path.absolute())},
        )
        return dg.SensorResult(run_requests=[request], cursor=cursor)

    return sensor


def last_run(instance: dg.DagsterInstance, configuration: Configuration) -> dg.RunRecord | None:
    """The last run that the sensor started; None if there is none."""
    started = dg.RunsFilter(tags={SENSOR_TAG: str(configuration.path.absolute())})
    return next(iter(instance.get_run_records(started, limit=1)), None)


def is_to_be_repeated(last: dg.RunRecord | None) -> bool:
    """Whether the sensor's last run failed or was ended, at least `REPEAT_SECONDS` ago.

    A run whose machine died stays Started until it is terminated on the page, and is then canceled.
    """
    if last is None or last.dagster_run.status not in _UNFINISHED:
        return False
    return time.time() - (last.end_time or 0.0) >= REPEAT_SECONDS


def unserved_scopes(
    context: dg.ScheduleEvaluationContext | dg.SensorEvaluationContext, loaded: Configuration, now: Configuration
) -> list[str]:
    """Streams and joins that were added, removed or got other assets since the definitions were loaded.

    A run loads the definitions again, so it could not have the assets that these definitions select. Also logs a
    warning. loaded: the configuration of the definitions; now: that of the file.
    """
    scopes = {*loaded.streams, *loaded.joins, *now.streams, *now.joins}
    unserved = sorted(name for name in scopes if _own_assets(loaded, name) != _own_assets(now, name))
    if unserved:
        context.log.warning(
            f"{now.path} was changed since this code location was loaded: {', '.join(unserved)} were added, removed, "
            "joined differently or given other tables, and are skipped until the code location is reloaded."
        )
    return unserved


def _own_assets(configuration: Configuration, scope: str) -> list[dg.AssetKey]:
    """The assets of a run for one stream or join, without the rules and the lists; none if it is not configured."""
    join = configuration.joins.get(scope)
    if join is None and scope not in configuration.streams:
        return []
    sources = join.streams if join is not None else (scope,)
    tables = join_tables(join) if join is not None else stream_tables(configuration.stream(scope))
    keys = [source_key(stream) for stream in sources]
    return [*keys, index_key(scope), rejects_key(scope), *map(table_key, tables), runs_key(scope)]


def _selected(loaded: Configuration, now: Configuration, due: Sequence[str]) -> list[dg.AssetKey]:
    """The assets of a run that the definitions select, without lists that were removed since they were loaded."""
    kept = set(assets_of(now, due))
    return [key for key in assets_of(loaded, due) if key in kept]


def current_versions(workspace: "Workspace", unserved: Collection[str] = ()) -> dict[str, Any]:
    """The versions of the rules table, of every list, and of every source except those of unserved streams.

    Each comes with the table's id, since a table that was dropped and created again may reach the same version. None
    stands for a table that does not exist or cannot be read.
    """
    from pipelines.errors import PipelineError
    from pipelines.sources.newest_version import newest_version
    from pipelines.value_lists import list_versions

    versions: dict[str, Any] = {}
    try:
        rules = workspace.lake.delta("rules")
        versions["rules"] = [str(rules.metadata().id), int(rules.version())]
    except PipelineError:
        versions["rules"] = None
    for stream in workspace.configuration.streams.values():
        if stream.name in unserved:
            continue
        try:
            now = newest_version(workspace, stream)
            versions[f"source {stream.name}"] = [now.table_id, now.version]
        except PipelineError:
            versions[f"source {stream.name}"] = None
    for name in workspace.configuration.lists:
        try:
            versions[f"list {name}"] = list_versions(workspace.configuration, [name])[name]
        except PipelineError:
            versions[f"list {name}"] = None
    return versions


def assets_of(configuration: Configuration, scopes: Sequence[str]) -> list[dg.AssetKey]:
    """The assets of a run for these streams and joins, including the rules, the lists and the sources."""
    keys = [RULES, *map(list_key, configuration.lists)]
    for name in scopes:
        keys += _own_assets(configuration, name)
    return list(dict.fromkeys(keys))
