"""The Dagster code location: all definitions for the configuration that this process serves."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import dagster as dg

from assets.checks import joined_checks, rules_checks, source_checks, tagged_checks
from assets.freshness import freshness_check, freshness_sensor
from assets.joins import join_assets
from assets.lint import lint_check
from assets.lists import list_asset
from assets.maintenance import maintain_job, maintain_schedule, maintenance_asset
from assets.names import RESOURCE
from assets.reports import report_asset, report_job, report_schedule
from assets.resources import LakeResource
from assets.retagging import can_retag_days, retag_asset, retag_job
from assets.rules import index_assets, rules_asset
from assets.schedules_and_sensors import change_sensor, run_job, run_schedule
from assets.streams import source_asset, tagged_assets
from pipelines.settings.configuration import CONFIG_VARIABLE, FILE_NAME, load_configuration
from pipelines.settings.model import Configuration

_PLACES = (Path(FILE_NAME), Path("demo") / FILE_NAME)
"""Where a configuration is looked for by default: in the working directory, then where `make demo` puts it."""


def configuration_path() -> Path | None:
    """The path of the configuration to serve: from DELTATAG_CONFIG, or else the first one found; None without any."""
    named = os.environ.get(CONFIG_VARIABLE)
    if named:
        return Path(named)
    return next((path for path in _PLACES if path.is_file()), None)


def build_definitions(path: Path | None) -> dg.Definitions:
    """All definitions for a configuration, or an asset that says how to create one; ConfigurationError if invalid."""
    if path is None:
        return dg.Definitions(assets=[_not_configured()])
    configuration = load_configuration(path)
    return definitions_over(configuration, LakeResource(configuration=str(path.absolute())))


def definitions_over(configuration: Configuration, lake: LakeResource) -> dg.Definitions:
    """All definitions for a configuration that is already read; `lake` is their resource."""
    with warnings.catch_warnings():
        # Dagster warns for each observable source asset that this is a beta feature
        warnings.simplefilter("ignore", dg.BetaWarning)
        return _definitions(configuration, lake)


def _definitions(configuration: Configuration, lake: LakeResource) -> dg.Definitions:
    streams, joins = list(configuration.streams.values()), list(configuration.joins.values())
    lists = configuration.lists
    timed = [stream for stream in streams if stream.freshness is not None]
    by_days = [stream for stream in streams if can_retag_days(stream)]
    job, upkeep, reports = run_job(configuration), maintain_job(), report_job(configuration)
    return dg.Definitions(
        assets=[
            rules_asset(configuration),
            *(list_asset(listed) for listed in lists.values()),
            *(source_asset(stream) for stream in streams),
            *(index_assets(stream.name, stream.owners, stream.source_stream, lists) for stream in streams),
            *(index_assets(join.name, join.owners, None, lists) for join in joins),
            *(tagged_assets(stream) for stream in streams),
            *(join_assets(join) for join in joins),
            *(retag_asset(configuration, stream) for stream in by_days),
            *(report_asset(stream.name, stream.owners) for stream in streams),
            *(report_asset(join.name, join.owners) for join in joins),
            maintenance_asset(),
        ],
        asset_checks=[
            rules_checks(configuration),
            *(lint_check(scope) for scope in [*configuration.streams, *configuration.joins]),
            *(source_checks(stream, any(stream.name in join.streams for join in joins)) for stream in streams),
            *(tagged_checks(stream) for stream in streams),
            *(joined_checks(configuration, join) for join in joins),
            *(freshness_check(stream) for stream in timed),
        ],
        jobs=[job, upkeep, reports, *(retag_job(stream) for stream in by_days)],
        schedules=[
            run_schedule(configuration, job),
            maintain_schedule(configuration, upkeep),
            report_schedule(configuration, reports),
        ],
        sensors=[change_sensor(configuration, job), *([freshness_sensor(timed)] if timed else [])],
        resources={RESOURCE: lake},
        executor=dg.in_process_executor,
    )


def _not_configured() -> dg.AssetSpec:
    return dg.AssetSpec(
        "no_configuration",
        description=(
            f"There is no {FILE_NAME} in the working directory, and {CONFIG_VARIABLE} names none. Make one with "
            "`deltatag init`, or a whole example with `make demo`, then reload this code location. To serve one from "
            f"elsewhere, set `{CONFIG_VARIABLE}` to its path before Dagster starts."
        ),
    )


defs = build_definitions(configuration_path())
