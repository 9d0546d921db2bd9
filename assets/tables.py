"""The assets of a step that writes the tables of a stream or a join in micro-batches."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from assets.failures import reporting_failures
from assets.history import history_metadata
from assets.names import RESOURCE, SPARK_POOL, runs_key, table_key
from assets.rules import MISSING
from assets.table_metadata import rounded, table_metadata
from pipelines.table_definitions import RUNS, tagged_table
from quality.findings import markdown_table

if TYPE_CHECKING:
    from pipelines.workspace import Workspace

_ERRORS_SHOWN = 20
BATCHES = "micro_batches"
"""Key of a table's metadata: how many micro-batches the step wrote."""


class StepOptions(dg.Config):
    """Options of a launch of the step, like those of `deltatag tag` and `deltatag join`."""

    restart: bool = Field(
        default=False, description="Empty the tables, and process the sources as they are now from the beginning."
    )
    skip_changes: bool = Field(
        default=False,
        description="Skip commits of the sources that changed or removed rows, instead of stopping there.",
    )


@dataclass(frozen=True)
class StepResult:
    """The result of a step: how many micro-batches it wrote, and the metadata of each table by name."""

    batches: int
    metadata: Mapping[str, Mapping[str, Any]]


def written_assets(
    scope: str,
    step: str,
    tables: Mapping[str, str],
    runs: str,
    deps: Sequence[dg.AssetKey],
    write: Callable[[dg.AssetExecutionContext, "Workspace", StepOptions], StepResult],
    owners: Sequence[str],
) -> dg.AssetsDefinition:
    """The tables of a scope and `runs/<scope>_runs`, written by one step; tables, runs: their descriptions."""
    described = [(table_key(name), text, {"deltalake", "spark"}) for name, text in tables.items()]
    described.append((runs_key(scope), runs, {"deltalake"}))
    specs = [
        dg.AssetSpec(key, deps=deps, group_name=scope, description=text, kinds=kinds, owners=owners)
        for key, text, kinds in described
    ]

    @dg.multi_asset(name=step, specs=specs, required_resource_keys={RESOURCE}, pool=SPARK_POOL)
    def written(context: dg.AssetExecutionContext, config: StepOptions) -> Iterator[dg.MaterializeResult[Any]]:
        """Writes the micro-batches that are due."""
        workspace = context.resources.lake.workspace()
        with reporting_failures():
            done = write(context, workspace, config)
        for name in tables:
            history = history_metadata(workspace, scope) if name == tagged_table(scope) else {}
            yield dg.MaterializeResult(
                asset_key=table_key(name),
                data_version=table_version(workspace, name),
                metadata={**_plotted(done, name), **history, **table_metadata(workspace, name)},
            )
        yield dg.MaterializeResult(
            asset_key=runs_key(scope),
            data_version=dg.DataVersion(newest_batch(workspace, scope)),
            metadata={
                **({BATCHES: done.batches} if done.batches else {}),
                "dagster/uri": workspace.lake.uri(RUNS.name),
            },
        )

    return written


def _plotted(done: StepResult, name: str) -> dict[str, Any]:
    """A table's metadata; without zeros and seconds if nothing was due, since these would distort Dagster's plots."""
    found = done.metadata[name]
    if done.batches:
        return dict(found)
    idle = {key for key, value in found.items() if key == "seconds" or (isinstance(value, int | float) and not value)}
    return {key: value for key, value in found.items() if key not in idle}


def table_version(workspace: "Workspace", name: str) -> dg.DataVersion:
    """The Delta version of one of the lake's tables; MISSING if it does not exist yet."""
    return dg.DataVersion(str(workspace.lake.version(name)) if workspace.lake.exists(name) else MISSING)


def newest_batch(workspace: "Workspace", scope: str) -> str:
    """Number and state of the newest micro-batch of a stream or a join; MISSING if there is none."""
    from pipelines.lake.runs import last_batch

    last = last_batch(workspace.lake, scope)
    return MISSING if last is None else f"{last.batch} {last.state}"


def rates(
    new_rows: int, source_rows: int, matches: int, quarantined: int, errors: Mapping[str, int], seconds: float
) -> dict[str, Any]:
    """The metadata of a tagged table about its new rows, without rates over zero rows.

    errors: for each rule, the number of rows on which it raised an error.
    """
    metadata: dict[str, Any] = {"new_rows": new_rows, "matches": matches, "seconds": rounded(seconds)}
    metadata["errors"] = sum(errors.values())
    if errors:
        worst = sorted(errors.items(), key=lambda item: (-item[1], item[0]))[:_ERRORS_SHOWN]
        metadata["errors_by_rule"] = dg.MetadataValue.md(markdown_table(("rule", "rows with errors"), worst))
    if new_rows:
        metadata["matches_per_row"] = rounded(matches / new_rows)
    if source_rows:
        metadata["quarantine_rate"] = rounded(quarantined / source_rows)
        metadata["rows_per_second"] = rounded(source_rows / max(seconds, 1e-3))
    return metadata
