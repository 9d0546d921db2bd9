"""The assets of each join: joined rows that satisfy a rule, rows in quarantine, and micro-batches."""

from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.names import index_key, source_key
from assets.tables import BATCHES, StepOptions, StepResult, rates, written_assets
from pipelines.settings.model import Join
from pipelines.table_definitions import quarantine_table, tagged_table

if TYPE_CHECKING:
    from pipelines.join import JoinResult
    from pipelines.workspace import Workspace


def join_tables(join: Join) -> dict[str, str]:
    """The join's tables, with their descriptions."""
    streams = f"{', '.join(join.streams[:-1])} and {join.streams[-1]}"
    tables = {
        tagged_table(join.name): f"Joined rows of {streams} that satisfy a rule, each with the ids of all such rules."
    }
    if join.lateness is not None:
        tables[quarantine_table(join.name)] = f"Rows of {streams} that came too late to be joined."
    return tables


def join_assets(join: Join) -> dg.AssetsDefinition:
    """`<join>_tagged`, `quarantine_<join>` and `runs/<join>_runs`, written by one step from all sources."""

    def write(context: dg.AssetExecutionContext, workspace: "Workspace", options: StepOptions) -> StepResult:
        """Join, log what was done, and return the tables' metadata."""
        from pipelines.join import join_streams

        result = join_streams(workspace, join.name, options.restart, options.skip_changes)
        context.log.info(
            f"{join.name}: {result.joined} joined rows of {result.rows} new rows in {result.batches} micro-batches, "
            f"{result.seconds:.1f} s"
        )
        for notice in result.notices:
            context.log.warning(notice)
        metadata = {
            tagged_table(join.name): _joined_metadata(result),
            quarantine_table(join.name): {"new_rows": result.quarantined},
        }
        return StepResult(result.batches, metadata)

    runs = f"The micro-batches of {join.name}: what each one read from every stream, and what it wrote."
    deps = [*(source_key(stream) for stream in join.streams), index_key(join.name)]
    return written_assets(join.name, f"join_{join.name}", join_tables(join), runs, deps, write, join.owners)


def _joined_metadata(result: "JoinResult") -> dict[str, Any]:
    metadata: dict[str, Any] = {BATCHES: result.batches, "source_rows": result.rows}
    metadata |= rates(result.joined, result.rows, result.matches, result.quarantined, result.errors, result.seconds)
    if result.rules_version is not None:
        metadata["rules_version"] = result.rules_version
        metadata |= {f"source_version_{stream}": version for stream, version in result.source_versions.items()}
    if result.notices:
        metadata["notices"] = dg.MetadataValue.md("\n".join(f"- {notice}" for notice in result.notices))
    return metadata
