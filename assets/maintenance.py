"""The maintenance of deltatag's own tables, as an asset with its own job and nightly schedule."""

from typing import Any

import dagster as dg

from assets.failures import ReportedError
from assets.names import MAINTENANCE, RESOURCE, SPARK_POOL
from pipelines.settings.model import Configuration

CRON = "10 3 * * *"
MAINTAIN_JOB = "maintain"


def maintenance_asset() -> dg.AssetsDefinition:
    """`deltatag/maintenance`: does what `deltatag maintain` does; the metadata has each table's files and bytes."""

    @dg.asset(
        key=MAINTENANCE,
        group_name="maintenance",
        description="deltatag's own tables, kept at few files and short logs, without files that no version refers to.",
        kinds={"deltalake", "spark"},
        required_resource_keys={RESOURCE},
        pool=SPARK_POOL,
    )
    def maintenance(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        """Maintain all tables; the metadata says what was done."""
        from pipelines.maintain import maintain
        from quality.findings import markdown_table

        results = maintain(context.resources.lake.workspace())
        failed = [f"{each.table}: {each.error}" for each in results if each.error is not None]
        if failed:
            raise ReportedError("; ".join(failed))
        for note in (note for each in results for note in each.notes):
            context.log.info(note)
        columns = ("table", "files", "bytes", "merged", "into", "removed", "rows")
        table = markdown_table(columns, [[getattr(each, name) for name in columns] for each in results])
        return dg.MaterializeResult(
            metadata={
                "files": sum(each.files for each in results),
                "bytes": sum(each.bytes for each in results),
                "merged": sum(each.merged for each in results),
                "removed": sum(each.removed for each in results),
                "tables": dg.MetadataValue.md(table),
            }
        )

    return maintenance


def maintain_job() -> Any:
    """The job of the maintenance asset."""
    return dg.define_asset_job(
        MAINTAIN_JOB,
        selection=dg.AssetSelection.assets(MAINTENANCE),
        description="Keep deltatag's own tables small.",
        executor_def=dg.in_process_executor,
    )


def maintain_schedule(configuration: Configuration, job: Any) -> dg.ScheduleDefinition:
    """The schedule that starts the job every night."""
    return dg.ScheduleDefinition(
        name="maintain_every_night",
        job=job,
        cron_schedule=CRON,
        execution_timezone=configuration.rules.time_zone,
        description="Merges small files and removes files that no version refers to any more.",
    )
