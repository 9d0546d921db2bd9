"""Each stream's source as an observable source asset, and the assets that tagging writes."""

from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.names import RESOURCE, index_key, source_key, table_key
from assets.rules import DELTA, MISSING
from assets.tables import BATCHES, StepOptions, StepResult, rates, written_assets
from pipelines.settings.model import Stream
from pipelines.table_definitions import matches_table, quarantine_table, tagged_table

if TYPE_CHECKING:
    from pipelines.tag import TagResult
    from pipelines.workspace import Workspace


def source_asset(stream: Stream) -> Any:
    """`<stream>`: the source table; its data version is the table's Delta version.

    If the source is another stream's tagged table, the asset depends on that table.
    """
    if stream.source_stream is not None:
        return _origin_asset(stream, stream.source_stream)

    @dg.observable_source_asset(
        key=source_key(stream.name),
        group_name=stream.name,
        description=f"The table whose rows are tagged: {stream.source}",
        metadata={"dagster/uri": stream.source},
        tags=DELTA,
        required_resource_keys={RESOURCE},
    )
    def look_at_source(context: dg.AssetExecutionContext) -> dg.DataVersion:
        return _version(context, stream)

    return look_at_source


def _origin_asset(stream: Stream, origin: str) -> dg.AssetsDefinition:
    """The source of a stream that reads the origin's tagged rows; it is observed after these are written."""

    @dg.asset(
        key=source_key(stream.name),
        deps=[table_key(tagged_table(origin))],
        group_name=stream.name,
        description=f"What {origin} has tagged. {stream.name} tags these rows by its own rules: {stream.source}",
        metadata={"dagster/uri": stream.source},
        kinds={"deltalake"},
        required_resource_keys={RESOURCE},
    )
    def look_at_origin(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        return dg.MaterializeResult(data_version=_version(context, stream))

    return look_at_origin


def _version(context: dg.AssetExecutionContext, stream: Stream) -> dg.DataVersion:
    from pipelines.errors import SourceError
    from pipelines.sources.newest_version import newest_version

    try:
        return dg.DataVersion(str(newest_version(context.resources.lake.workspace(), stream).version))
    except SourceError:
        return dg.DataVersion(MISSING)


def stream_tables(stream: Stream) -> dict[str, str]:
    """The stream's tables, with their descriptions."""
    tables = {tagged_table(stream): f"The rows of {stream.name}, each with the ids of the rules that it satisfies."}
    if stream.keeps_matches:
        tables[matches_table(stream)] = (
            f"One row for each pair of a row of {stream.name} and a rule, clustered by rule."
        )
    if stream.can_quarantine:
        tables[quarantine_table(stream)] = f"Rows of {stream.name} that could not be tagged, with the reason."
    return tables


def tagged_assets(stream: Stream) -> dg.AssetsDefinition:
    """`<stream>_tagged`, `<stream>_matches`, `quarantine_<stream>` and `runs/<stream>_runs`, written by one step."""

    def write(context: dg.AssetExecutionContext, workspace: "Workspace", options: StepOptions) -> StepResult:
        """Tag and re-tag, log what was done, and return the tables' metadata."""
        from pipelines.due import retag_is_due
        from pipelines.retag import retag_due
        from pipelines.tag import tag_stream

        result = tag_stream(workspace, stream.name, options.restart, options.skip_changes)
        context.log.info(f"{stream.name}: {result.rows} rows in {result.batches} micro-batches, {result.seconds:.1f} s")
        metadata = {
            tagged_table(stream): _tagged_metadata(result),
            matches_table(stream): {"new_rows": result.matches},
            quarantine_table(stream): {"new_rows": result.quarantined},
        }
        retagged = retag_due(workspace, stream) if retag_is_due(workspace, stream) else None
        if retagged is not None:
            context.log.info(f"{stream.name}: the rules of {retagged.rows_changed} earlier rows changed")
            metadata[tagged_table(stream)] |= {"retagged_rows": retagged.rows_changed}
        return StepResult(result.batches, metadata)

    runs = f"The micro-batches of {stream.name}: what each read, what it wrote, and which rules raised errors."
    deps = [source_key(stream.name), index_key(stream.name)]
    return written_assets(stream.name, f"tag_{stream.name}", stream_tables(stream), runs, deps, write, stream.owners)


def _tagged_metadata(result: "TagResult") -> dict[str, Any]:
    tagged = result.rows - result.quarantined
    metadata: dict[str, Any] = {BATCHES: result.batches}
    metadata |= rates(tagged, result.rows, result.matches, result.quarantined, result.errors, result.seconds)
    if result.rules_version is not None:
        metadata |= {"rules_version": result.rules_version, "source_version": result.source_version}
    return metadata
