"""Re-tags of a stream by days of its event time: an asset with daily partitions, and its job.

A backfill of several days is one run, which re-tags the whole range at once.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.failures import reporting_failures
from assets.names import RESOURCE, SPARK_POOL, index_key, retag_key
from assets.table_metadata import rounded
from pipelines.settings.model import Configuration, Stream

if TYPE_CHECKING:
    from pipelines.retag import RetagResult

FIRST_DAY = "2000-01-01"
_DAY = "%Y-%m-%d"


def can_retag_days(stream: Stream) -> bool:
    """Whether days of the stream can be re-tagged: it has an event time, and all of its rows are written."""
    return stream.event_time is not None and stream.output == "all"


def retag_asset(configuration: Configuration, stream: Stream) -> dg.AssetsDefinition:
    """`retag/<stream>_retag`: does what `deltatag retag <stream> --from DAY --to DAY` does."""

    @dg.asset(
        key=retag_key(stream.name),
        deps=[index_key(stream.name)],
        group_name=stream.name,
        description=f"Days of {stream.name}, by {stream.event_time}, brought up to date with the rules.",
        kinds={"deltalake", "spark"},
        owners=stream.owners,
        partitions_def=dg.DailyPartitionsDefinition(FIRST_DAY, timezone=configuration.rules.time_zone, end_offset=1),
        backfill_policy=dg.BackfillPolicy.single_run(),
        required_resource_keys={RESOURCE},
        pool=SPARK_POOL,
    )
    def retag_days(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        """Re-tag the range of days of the run."""
        from pipelines.retag import compile_and_retag

        days = context.partition_time_window
        workspace = context.resources.lake.workspace()
        with reporting_failures():
            # both the texts without a zone and the partitions are in the configured time zone
            result = compile_and_retag(workspace, stream.name, days.start.strftime(_DAY), days.end.strftime(_DAY))
        last = (days.end - timedelta(hours=12)).strftime(_DAY)
        for notice in result.notices:
            context.log.warning(notice)
        return dg.MaterializeResult(metadata={"days": f"{days.start.strftime(_DAY)} to {last}", **_metadata(result)})

    return retag_days


def _metadata(result: "RetagResult") -> dict[str, Any]:
    """The counts of a run, which Dagster shows for each of its days."""
    metadata: dict[str, Any] = {
        "rows_changed": result.rows_changed,
        "files_read": result.files_read,
        "files_written": result.files_written,
        "seconds": rounded(result.seconds),
    }
    if result.rules_version is not None:
        metadata["rules_version"] = result.rules_version
    return metadata


def retag_job(stream: Stream) -> Any:
    """The job of a stream's asset of re-tagged days."""
    return dg.define_asset_job(
        f"retag_{stream.name}",
        selection=dg.AssetSelection.assets(retag_key(stream.name)),
        description=f"Bring rows of {stream.name} that are tagged up to date with edited rules, by days.",
        executor_def=dg.in_process_executor,
    )
