"""Runs the job in this process, without a web server or a daemon; for scripts, the demonstration and tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from assets.definitions import definitions_over
from assets.names import JOB
from assets.resources import LakeResource

if TYPE_CHECKING:
    from pipelines.workspace import Workspace


def run_once(
    workspace: Workspace, instance: dg.DagsterInstance, scopes: list[str] | None = None, quiet: bool = False
) -> dg.ExecuteInProcessResult:
    """Observe, check, compile, tag and join all scopes or the named ones; failures are in the result, not raised.

    instance: keeps the records, such as `dg.DagsterInstance.ephemeral()`, or `open_instance` for a folder; quiet: keep
    the log off the terminal (the instance still records it).
    """
    from assets.schedules_and_sensors import assets_of

    configuration = workspace.configuration
    job = definitions_over(configuration, LakeResource.over(workspace)).resolve_job_def(JOB)
    return job.execute_in_process(
        instance=instance,
        raise_on_error=False,
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}} if quiet else None,
        asset_selection=assets_of(configuration, scopes) if scopes is not None else None,
    )


def open_instance(folder: Path) -> dg.DagsterInstance:
    """A Dagster instance in a folder, which is created if missing; `dagster dev` shows it if DAGSTER_HOME names it."""
    folder.mkdir(parents=True, exist_ok=True)
    return dg.DagsterInstance.local_temp(str(folder.absolute()))
