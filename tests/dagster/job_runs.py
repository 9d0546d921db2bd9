"""Edits before runs of the job, its sensor and schedule, and what its runs have told."""

from __future__ import annotations

import json
from typing import Any

import dagster as dg

from assets.definitions import build_definitions
from assets.names import RESOURCE
from assets.resources import LakeResource
from pipelines.sql import run_statement
from pipelines.workspace import Workspace
from tests.lakes import write_rules


def add_rules(workspace: Workspace, rules: list[tuple[str | None, str]], scope: str = "flights") -> None:
    write_rules(workspace, [(rule_id, scope, expression) for rule_id, expression in rules])


def sql(workspace: Workspace, statement: str) -> None:
    """Edit the rules as their author does."""
    run_statement(workspace, statement)


def failed_checks(result: dg.ExecuteInProcessResult) -> dict[str, str]:
    return {c.check_name: c.severity.value for c in result.get_asset_check_evaluations() if not c.passed}


def made(result: dg.ExecuteInProcessResult) -> dict[str, str]:
    """Assets that the run materialised, with their data versions."""
    found = {}
    for event in result.get_asset_materialization_events():
        materialization = event.step_materialization_data.materialization
        found[materialization.asset_key.to_user_string()] = (materialization.tags or {})["dagster/data_version"]
    return found


def tick_sensor(
    workspace: Workspace, instance: dg.DagsterInstance, cursor: str | None, definitions: dg.Definitions | None = None
) -> Any:
    definitions = definitions or build_definitions(workspace.configuration.path)
    context = dg.build_sensor_context(
        instance=instance, cursor=cursor, resources={RESOURCE: LakeResource.over(workspace)}, definitions=definitions
    )
    (sensor,) = definitions.sensors or ()
    return sensor.evaluate_tick(context)


def seen(tick: Any) -> dict[str, int]:
    """The versions that the sensor has seen, without the ids of tables."""
    return {name: version for name, (_, version) in json.loads(tick.cursor).items()}


def tick_schedule(workspace: Workspace, instance: dg.DagsterInstance, definitions: dg.Definitions | None = None) -> Any:
    definitions = definitions or build_definitions(workspace.configuration.path)
    context = dg.build_schedule_context(instance=instance, resources={RESOURCE: LakeResource.over(workspace)})
    (schedule,) = (each for each in definitions.schedules or () if each.name == "run_every_quarter_of_an_hour")
    assert isinstance(schedule, dg.ScheduleDefinition)
    return schedule.evaluate_tick(context)


def ended_run(
    instance: dg.DagsterInstance, workspace: Workspace, tags: dict[str, str], report: str = "report_run_failed"
) -> dg.DagsterRun:
    """A run that has failed, as Dagster records one whose process was killed; or that was terminated on the page."""
    job = build_definitions(workspace.configuration.path).resolve_job_def("run")
    run = instance.create_run_for_job(job, tags=tags)
    getattr(instance, report)(run, "killed")
    return run
