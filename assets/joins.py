"""The tables that each join writes: joined rows that satisfy a rule, what went to quarantine, and its micro-batches."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.names import RESOURCE, SPARK_POOL, index_key, runs_key, source_key, table_key
from assets.streams import BATCHES, newest_batch, table_version
from pipelines.config import Join
from pipelines.tables import RUNS, quarantine_table, tagged_table

if TYPE_CHECKING:
    from pipelines.join import JoinResult


def join_tables(join: Join) -> dict[str, str]:
    """The join's tables with what they hold."""
    streams = f"{', '.join(join.streams[:-1])} and {join.streams[-1]}"
    tables = {
        tagged_table(join.name): f"Joined rows of {streams} that satisfy a rule, each with the ids of all such rules."
    }
    if join.lateness is not None:
        tables[quarantine_table(join.name)] = f"Rows of {streams} that came too late to be joined."
    return tables


def join_assets(join: Join) -> dg.AssetsDefinition:
    """`<join>_tagged`, `quarantine_<join>` and `runs/<join>`, written by one step from the sources of all streams."""
    deps = [*(source_key(stream) for stream in join.streams), index_key(join.name)]
    specs = [
        dg.AssetSpec(table_key(name), deps=deps, group_name=join.name, description=text, kinds={"deltalake", "spark"})
        for name, text in join_tables(join).items()
    ]
    text = f"The micro-batches of {join.name}: what each read of every stream, and what it wrote."
    specs.append(
        dg.AssetSpec(runs_key(join.name), deps=deps, group_name=join.name, description=text, kinds={"deltalake"})
    )

    @dg.multi_asset(name=f"join_{join.name}", specs=specs, required_resource_keys={RESOURCE}, pool=SPARK_POOL)
    def run_join(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        from pipelines.join import join_streams

        workspace = context.resources.lake.workspace()
        result = join_streams(workspace, join.name)
        context.log.info(
            f"{join.name}: {result.joined} joined rows of {result.rows} new rows in {result.batches} micro-batches, "
            f"{result.seconds:.1f} s"
        )
        for notice in result.notices:
            context.log.warning(notice)
        counts = {
            tagged_table(join.name): _joined_metadata(result),
            quarantine_table(join.name): {"new_rows": result.quarantined},
        }
        for name in join_tables(join):
            yield dg.MaterializeResult(
                asset_key=table_key(name),
                data_version=table_version(workspace, name),
                metadata={**counts[name], "dagster/uri": workspace.lake.uri(name)},
            )
        yield dg.MaterializeResult(
            asset_key=runs_key(join.name),
            data_version=dg.DataVersion(newest_batch(workspace, join.name)),
            metadata={BATCHES: result.batches, "dagster/uri": workspace.lake.uri(RUNS.name)},
        )

    return run_join


def _joined_metadata(result: "JoinResult") -> dict[str, Any]:
    metadata: dict[str, Any] = {
        BATCHES: result.batches,
        "new_rows": result.joined,
        "source_rows": result.rows,
        "matches": result.matches,
        "matches_per_row": result.matches / result.joined if result.joined else 0.0,
        "quarantine_rate": result.quarantined / result.rows if result.rows else 0.0,
        "rows_per_second": result.rows / result.seconds if result.seconds else 0.0,
        "seconds": result.seconds,
    }
    if result.rules_version is not None:
        metadata["rules_version"] = result.rules_version
        metadata |= {f"source_version_{stream}": version for stream, version in result.source_versions.items()}
    if result.notices:
        metadata["notices"] = dg.MetadataValue.md("\n".join(f"- {notice}" for notice in result.notices))
    return metadata
