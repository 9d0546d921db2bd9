"""What the sensor of a lake starts, and when."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable, write_deltalake

from assets.definitions import build_definitions
from assets.headless import run_once
from assets.schedules_and_sensors import SENSOR_TAG
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from tests.dagster.job_runs import ended_run, seen, tick_sensor
from tests.dagster.small_lake import FLIGHTS, RULES_OF_FLIGHTS, append, make_lake
from tests.lakes import make_tables, write_rules


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A lake with 100 flights, which nothing has tagged yet."""
    opened = make_lake(tmp_path, FLIGHTS, RULES_OF_FLIGHTS)
    append(opened, range(100))
    return opened


def test_a_new_version_of_a_source_starts_a_run(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    tick = tick_sensor(workspace, instance, None)
    assert seen(tick) == {"rules": 1, "source flights": 0}
    append(workspace, range(100, 110))
    (request,) = tick_sensor(workspace, instance, tick.cursor).run_requests
    assert request.run_key


def test_a_lake_made_anew_starts_a_run_though_its_versions_have_the_same_numbers(
    workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    tick = tick_sensor(workspace, instance, None)
    (first,) = tick.run_requests
    run_once(workspace, instance)
    assert tick_sensor(workspace, instance, tick.cursor).run_requests == []
    rules = workspace.lake.arrow("rules").to_pylist()
    rows = DeltaTable(workspace.configuration.stream("flights").source).to_pyarrow_table()
    shutil.rmtree(str(workspace.configuration.lake.root))
    make_tables(workspace)
    write_rules(workspace, rules)
    write_deltalake(workspace.configuration.stream("flights").source, rows)
    (again,) = (anew := tick_sensor(workspace, instance, tick.cursor)).run_requests
    assert seen(anew) == seen(tick)
    # Dagster starts no second run of a key.
    assert again.run_key != first.run_key


@pytest.mark.parametrize("report", ["report_run_failed", "report_run_canceled"])
def test_what_a_failed_run_left_undone_is_done_though_nothing_changed_since(
    workspace: Workspace, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, report: str
) -> None:
    monkeypatch.chdir(workspace.configuration.path.parent)
    tick = tick_sensor(workspace, instance, None, build_definitions(Path("deltatag.toml")))
    (first,) = tick.run_requests
    ended_run(instance, workspace, first.tags, report)
    ended_run(instance, workspace, {**first.tags, SENSOR_TAG: "another/deltatag.toml"})
    assert tick_sensor(workspace, instance, tick.cursor).run_requests == []
    monkeypatch.setattr("assets.schedules_and_sensors.REPEAT_SECONDS", 0)
    (again,) = tick_sensor(workspace, instance, tick.cursor).run_requests
    assert again.asset_selection == first.asset_selection
    # Dagster starts no second run of a key.
    assert again.run_key != first.run_key
    run_once(workspace, instance, ["flights"])
    assert tick_sensor(workspace, instance, tick.cursor).run_requests == []


def test_new_rows_start_a_run_though_a_copy_of_the_source_had_the_same_versions_before(
    workspace: Workspace, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    source, copy = workspace.configuration.stream("flights").source, str(tmp_path / "copy")

    def launched(tick: Any) -> str:
        """Start the run of a tick, and return its key."""
        (request,) = tick.run_requests
        ended_run(instance, workspace, request.tags)
        return str(request.run_key)

    tick = tick_sensor(workspace, instance, None)
    launched(tick)
    shutil.copytree(source, copy)
    append(workspace, range(100, 110))
    newer = tick_sensor(workspace, instance, tick.cursor)
    first = launched(newer)
    run_once(workspace, instance)
    shutil.rmtree(source)
    shutil.copytree(copy, source)
    older = tick_sensor(workspace, instance, newer.cursor)
    launched(older)
    tag_stream(workspace, "flights", restart=True)
    append(workspace, range(100, 110))
    again = tick_sensor(workspace, instance, older.cursor)
    assert (older.cursor, again.cursor) == (tick.cursor, newer.cursor)
    # Dagster starts no second run of a key.
    assert launched(again) != first
