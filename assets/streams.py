"""Each stream's source as an asset that is only looked at, and the tables that tagging writes."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.names import RESOURCE, SPARK_POOL, index_key, runs_key, source_key, table_key
from assets.rules import DELTA, MISSING
from pipelines.config import Stream
from pipelines.tables import RUNS, matches_table, quarantine_table, tagged_table

if TYPE_CHECKING:
    from pipelines.tag import TagResult
    from pipelines.workspace import Workspace

BATCHES = "micro_batches"
"""Metadata of a tagged table: how many micro-batches the step wrote."""
_ERRORS_SHOWN = 20


def source_asset(stream: Stream) -> Any:
    """`<stream>`: the source table; its data version is the table's Delta version."""

    @dg.observable_source_asset(
        key=source_key(stream.name),
        group_name=stream.name,
        description=f"The table whose rows are tagged: {stream.source}",
        metadata={"dagster/uri": stream.source},
        tags=DELTA,
        required_resource_keys={RESOURCE},
    )
    def look_at_source(context: dg.AssetExecutionContext) -> dg.DataVersion:
        from pipelines.errors import SourceError
        from pipelines.tag import newest_source_version

        try:
            version = str(newest_source_version(context.resources.lake.workspace(), stream))
        except SourceError:
            version = MISSING
        return dg.DataVersion(version)

    return look_at_source


def stream_tables(stream: Stream) -> dict[str, str]:
    """The stream's tables with what they hold."""
    tables = {tagged_table(stream): f"The rows of {stream.name}, each with the ids of the rules that it satisfies."}
    if stream.keeps_matches:
        tables[matches_table(stream)] = (
            f"One row for each pair of a row of {stream.name} and a rule, clustered by rule."
        )
    if stream.can_quarantine:
        tables[quarantine_table(stream)] = f"Rows of {stream.name} that could not be tagged, with the reason."
    return tables


def tagged_assets(stream: Stream) -> dg.AssetsDefinition:
    """`<stream>_tagged`, `<stream>_matches`, `quarantine_<stream>` and `runs/<stream>`, written by one step."""
    deps = [source_key(stream.name), index_key(stream.name)]
    specs = [
        dg.AssetSpec(table_key(name), deps=deps, group_name=stream.name, description=text, kinds={"deltalake", "spark"})
        for name, text in stream_tables(stream).items()
    ]
    text = f"The micro-batches of {stream.name}: what each read, what it wrote, and which rules raised errors."
    specs.append(
        dg.AssetSpec(runs_key(stream.name), deps=deps, group_name=stream.name, description=text, kinds={"deltalake"})
    )

    @dg.multi_asset(name=f"tag_{stream.name}", specs=specs, required_resource_keys={RESOURCE}, pool=SPARK_POOL)
    def tag(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        from pipelines.tag import tag_stream

        workspace = context.resources.lake.workspace()
        result = tag_stream(workspace, stream.name)
        context.log.info(f"{stream.name}: {result.rows} rows in {result.batches} micro-batches, {result.seconds:.1f} s")
        counts = {
            tagged_table(stream): _tagged_metadata(result),
            matches_table(stream): {"new_rows": result.matches},
            quarantine_table(stream): {"new_rows": result.quarantined},
        }
        for name in stream_tables(stream):
            yield dg.MaterializeResult(
                asset_key=table_key(name),
                data_version=table_version(workspace, name),
                metadata={**counts[name], "dagster/uri": workspace.lake.uri(name)},
            )
        yield dg.MaterializeResult(
            asset_key=runs_key(stream.name),
            data_version=dg.DataVersion(newest_batch(workspace, stream.name)),
            metadata={BATCHES: result.batches, "dagster/uri": workspace.lake.uri(RUNS.name)},
        )

    return tag


def table_version(workspace: "Workspace", name: str) -> dg.DataVersion:
    """The Delta version of one of the lake's tables; MISSING where it is not there yet."""
    return dg.DataVersion(str(workspace.lake.version(name)) if workspace.lake.exists(name) else MISSING)


def newest_batch(workspace: "Workspace", scope: str) -> str:
    """Number and state of the newest micro-batch of a stream or a join; MISSING before the first."""
    from pipelines.runs import last_batch

    last = last_batch(workspace.lake, scope)
    return MISSING if last is None else f"{last.batch} {last.state}"


def _tagged_metadata(result: "TagResult") -> dict[str, Any]:
    from quality.findings import markdown_table

    tagged = result.rows - result.quarantined
    metadata: dict[str, Any] = {
        BATCHES: result.batches,
        "new_rows": tagged,
        "matches": result.matches,
        "matches_per_row": result.matches / tagged if tagged else 0.0,
        "quarantine_rate": result.quarantined / result.rows if result.rows else 0.0,
        "rows_per_second": result.rows / result.seconds if result.seconds else 0.0,
        "seconds": result.seconds,
    }
    if result.rules_version is not None:
        metadata |= {"rules_version": result.rules_version, "source_version": result.source_version}
    if result.errors:
        worst = sorted(result.errors.items(), key=lambda item: (-item[1], item[0]))[:_ERRORS_SHOWN]
        metadata["errors"] = dg.MetadataValue.md(markdown_table(("rule", "rows that raised"), worst))
    return metadata
