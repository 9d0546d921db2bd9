"""Runs of the job over a small lake: what is made, what stops, what starts a run and what does not."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import pyarrow as pa
import pytest
from dagster._daemon.monitoring.concurrency import execute_concurrency_slots_iteration
from dagster._time import get_current_datetime
from deltalake import DeltaTable, write_deltalake

from assets.definitions import build_definitions, definitions_over
from assets.headless import run_once
from assets.names import JOB, runs_key, table_key
from assets.resources import LakeResource
from assets.schedules_and_sensors import assets_of
from pipelines.due import due_scopes
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from tests.dagster.job_runs import add_rules, ended_run, failed_checks, made, seen, sql, tick_schedule, tick_sensor
from tests.java import INTERPRETED
from tests.lakes import make_tables

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = """
[lake]
root = "lake"
[rules]
max_reject_share = 0.5
[streams.flights]
source = "lake/flights"
key = ["flight_id"]
checks = { sane = "delay > -120" }
max_quarantine_share = 0.2
"""
SPARK = f"{CONFIGURATION}[spark]\n" + "".join(f'"{name}" = "{value}"\n' for name, value in INTERPRETED.items())
LOCAL = CONFIGURATION.replace("[lake]", '[lake]\nrunner = "local"')
TABLES = ("rules", "rule_rejects", "rule_index", "runs", "flights_tagged", "flights_matches", "quarantine_flights")


def flights(start: int, stop: int) -> pa.Table:
    """Every tenth flight has a delay that the check refuses."""
    numbers = range(start, stop)
    delays = [-500 if n % 10 == 9 else n % 100 for n in numbers]
    return pa.table({"flight_id": pa.array(numbers, pa.int64()), "delay": pa.array(delays, pa.int32())})


@pytest.fixture
def workspace(tmp_path: Path, request: pytest.FixtureRequest) -> Workspace:
    """A lake with 100 flights and three rules, one of which is wrong; this process tags, or a session of Spark."""
    if getattr(request, "param", "local") == "spark":
        (tmp_path / "deltatag.toml").write_text(SPARK)
        opened = Workspace.open(tmp_path / "deltatag.toml", request.getfixturevalue("spark"))
    else:
        (tmp_path / "deltatag.toml").write_text(LOCAL)
        opened = Workspace.open(tmp_path / "deltatag.toml")
    make_tables(opened)
    write_deltalake(str(tmp_path / "lake" / "flights"), flights(0, 100))
    rules = [("late", "delay > 60"), ("even", "flight_id % 2 = 0"), ("wrong", "nosuch > 1")]
    add_rules(opened, rules)
    return opened


def append_flights(workspace: Workspace, start: int, stop: int) -> None:
    write_deltalake(workspace.configuration.stream("flights").source, flights(start, stop), mode="append")


def versions(workspace: Workspace) -> dict[str, int]:
    return {name: workspace.lake.version(name) for name in TABLES if workspace.lake.exists(name)}


def tagged(workspace: Workspace) -> dict[int, list[str]]:
    rows = workspace.lake.arrow("flights_tagged", ["flight_id", "rule_ids"]).to_pylist()
    assert len({row["flight_id"] for row in rows}) == len(rows)
    return {row["flight_id"]: row["rule_ids"] for row in rows}


def expected(workspace: Workspace, rules: dict[str, Callable[[int, int], bool]], start: int, stop: int) -> dict:
    rows = flights(start, stop).to_pylist()
    sound = [(row["flight_id"], row["delay"]) for row in rows if row["delay"] > -120]
    return {number: sorted(name for name, holds in rules.items() if holds(number, delay)) for number, delay in sound}


FIRST = {"late": lambda number, delay: delay > 60, "even": lambda number, delay: number % 2 == 0}


@pytest.mark.parametrize("workspace", ["spark"], indirect=True)
def test_from_nothing_to_tags_and_a_rule_edited_by_sql_tags_what_arrives_before_the_next_tick(
    workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    # The first tick finds everything to be done, and the run makes all assets.
    tick = tick_sensor(workspace, instance, None)
    (request,) = tick.run_requests
    keys = {key.to_user_string() for key in request.asset_selection}
    assert {"rules", "source/flights", "rule_index/flights_rule_index", "flights_tagged", "quarantine_flights"} <= keys
    assert tick_schedule(workspace, instance).run_requests[0].asset_selection == request.asset_selection
    result = run_once(workspace, instance, ["flights"])
    assert result.success
    first = made(result)
    assert set(first) == keys - {"rules", "source/flights"}
    assert tagged(workspace) == expected(workspace, FIRST, 0, 100)
    assert DeltaTable(workspace.lake.uri("quarantine_flights")).to_pyarrow_table().num_rows == 10
    # One row's and one rule's faults are warnings, and stop nothing.
    assert failed_checks(result) == {"check_sane_holds": "WARN", "nothing_odd": "WARN"}
    assert_told(result)

    # A further tick does nothing, and a run that is started all the same commits nothing.
    before = versions(workspace)
    assert tick_sensor(workspace, instance, tick.cursor).run_requests == []
    assert tick_schedule(workspace, instance).run_requests == []
    assert made(run_once(workspace, instance)) == first
    assert versions(workspace) == before

    # A rule is edited by SQL, then rows arrive: one tick, and they carry the new rule's tags; the others keep theirs.
    sql(workspace, "UPDATE rules SET expression = 'delay > 90' WHERE rule_id = 'late'")
    sql(workspace, "INSERT INTO rules (rule_id, scope, expression) VALUES ('third', 'flights', 'flight_id % 3 = 0')")
    append_flights(workspace, 100, 160)
    tick = tick_sensor(workspace, instance, tick.cursor)
    assert len(tick.run_requests) == 1
    result = run_once(workspace, instance, ["flights"])
    assert result.success
    second = made(result)
    assert second["rule_index/flights_rule_index"] != first["rule_index/flights_rule_index"]
    edited = {
        **FIRST,
        "late": lambda number, delay: delay > 90,
        "third": lambda number, delay: number % 3 == 0,
    }
    assert tagged(workspace) == expected(workspace, FIRST, 0, 100) | expected(workspace, edited, 100, 160)

    # And the next tick does nothing again.
    before = versions(workspace)
    tick = tick_sensor(workspace, instance, tick.cursor)
    assert tick.run_requests == [] and tick.skip_message
    assert tick_schedule(workspace, instance).run_requests == []
    assert versions(workspace) == before


def assert_told(result: dg.ExecuteInProcessResult) -> None:
    """The metadata says what was found: counts, rates, tables and a picture."""
    checks = {(c.asset_key.to_user_string(), c.check_name): c for c in result.get_asset_check_evaluations()}
    source = checks["source/flights", "followed"].metadata
    assert (source["new_rows"].value, source["refused"].value, source["quarantine_share"].value) == (100, 10, 0.1)
    found = checks["flights_tagged", "row_count"].metadata
    assert found["tagged_rows"].value == 90
    assert "| late |" in str(found["rules_with_most_matches"].value)
    assert "(data:image/png;base64," in str(found["matches_per_rule"].value)
    page = Path(str(found["data_docs"].value))
    assert "Tagged rows are those of the source" in page.read_text(encoding="utf-8")
    materializations = {
        e.asset_key.to_user_string(): e for e in result.get_asset_materialization_events() if e.asset_key
    }
    rejects = materializations["rule_rejects/flights_rule_rejects"].step_materialization_data.materialization.metadata
    assert "UNKNOWN_COLUMN" in str(rejects["rejects"].value)


def test_too_many_refused_rules_of_a_scope_stop_its_compile_and_what_depends_on_it(
    workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    add_rules(workspace, [(None, "delay > 1")] * 5)
    result = run_once(workspace, instance)
    assert not result.success
    assert set(made(result)) == {"rule_rejects/flights_rule_rejects"}
    checks = failed_checks(result)
    assert checks["reject_share"] == "WARN" and checks["rule_id_not_null"] == "WARN"
    assert not workspace.lake.exists("flights_tagged")
    # The scope waits as long as the fault is there, and is compiled as soon as it is gone.
    sql(workspace, "DELETE FROM rules WHERE rule_id IS NULL")
    assert due_scopes(workspace) == ["flights"]
    assert run_once(workspace, instance).success


def shown(result: dg.ExecuteInProcessResult, asset: str) -> dict[str, Any]:
    """The metadata that the run gave to an asset."""
    (event,) = [
        e
        for e in result.get_asset_materialization_events()
        if e.asset_key is not None and e.asset_key.to_user_string() == asset
    ]
    return {key: each.value for key, each in event.step_materialization_data.materialization.metadata.items()}


def test_a_table_shows_its_rows_columns_and_a_query_and_no_zeros_where_nothing_was_due(
    workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    told = shown(run_once(workspace, instance), "flights_tagged")
    assert (told["dagster/row_count"], told["new_rows"], told["quarantine_rate"]) == (90, 90, 0.1)
    pairs = sum(len(ids) for ids in tagged(workspace).values())
    assert told["matches_per_row"] == float(f"{pairs / 90:.4g}")
    names = ["flight_id", "delay", "rule_ids", "rules_version", "index_fingerprint", "source_version", "tagged_at"]
    assert [column.name for column in told["dagster/column_schema"].columns] == names
    assert len(told["sample_rows"].records if hasattr(told["sample_rows"], "records") else told["sample_rows"]) == 5
    assert "SELECT * FROM flights_tagged WHERE size(rule_ids) > 0" in told["query"]
    again = shown(run_once(workspace, instance), "flights_tagged")
    assert again["dagster/row_count"] == 90
    assert not {"new_rows", "matches", "seconds", "micro_batches", "quarantine_rate", "rows_per_second"} & set(again)


def test_a_step_fails_with_a_sentence_and_without_a_stack_trace(
    workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    assert run_once(workspace, instance).success
    write_deltalake(workspace.configuration.stream("flights").source, flights(0, 50), mode="overwrite")
    # the step alone, without the gate that would stop it before
    tables = [table_key(name) for name in ("flights_tagged", "flights_matches", "quarantine_flights")]
    job = definitions_over(workspace.configuration, LakeResource.over(workspace)).resolve_job_def(JOB)
    result = job.execute_in_process(
        instance=instance, raise_on_error=False, asset_selection=[*tables, runs_key("flights")]
    )
    (failed,) = [event for event in result.all_events if event.is_step_failure and event.step_key == "tag_flights"]
    data = failed.step_failure_data
    assert data.error is not None and list(data.error.stack) == [] and data.error.cause is None
    assert data.user_failure_data is not None and "--restart" in str(data.user_failure_data.description)
    assert data.error.message == data.user_failure_data.description


def test_rules_of_a_scope_that_is_unknown_stop_nothing(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    add_rules(workspace, [(f"r{number}", "delay > 1") for number in range(20)], "renamed")
    result = run_once(workspace, instance)
    assert result.success and failed_checks(result)["scope_known"] == "WARN"
    assert tagged(workspace) == expected(workspace, FIRST, 0, 100)


def test_too_many_bad_rows_stop_the_tagging_only(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    bad = pa.table({"flight_id": pa.array([None] * 60, pa.int64()), "delay": pa.array([1] * 60, pa.int32())})
    write_deltalake(workspace.configuration.stream("flights").source, bad, mode="append")
    result = run_once(workspace, instance)
    assert not result.success
    assert failed_checks(result)["quarantine_share"] == "ERROR"
    assert set(made(result)) == {"rule_index/flights_rule_index", "rule_rejects/flights_rule_rejects"}
    assert workspace.lake.arrow("runs").num_rows == 0


def test_a_source_that_is_missing_is_named(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    source = Path(workspace.configuration.stream("flights").source)
    source.rename(source.with_name("elsewhere"))
    result = run_once(workspace, instance)
    assert not result.success
    messages = {c.check_name: c.description for c in result.get_asset_check_evaluations() if not c.passed}
    assert "there is no Delta table at" in str(messages["followed"])


def test_a_killed_run_gives_its_place_in_a_pool_back(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(ROOT / "dagster.yaml", home)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        run = ended_run(instance, workspace, {})
        assert instance.run_monitoring_enabled
        events = instance.event_log_storage
        events.initialize_concurrency_limit_to_default("spark")
        assert events.claim_concurrency_slot("spark", run.run_id, "tag_flights").is_claimed
        later = get_current_datetime() + timedelta(minutes=1)
        monkeypatch.setattr("dagster._daemon.monitoring.concurrency.get_current_datetime", lambda: later)
        daemon = SimpleNamespace(instance=instance)
        list(execute_concurrency_slots_iteration(cast(Any, daemon), logging.getLogger("test")))
        assert events.claim_concurrency_slot("spark", "next", "tag_flights").is_claimed


ADDED = """
[streams.added]
source = "lake/flights"
"""


def test_a_stream_that_came_or_went_is_passed_over_until_the_code_location_is_reloaded(
    workspace: Workspace, instance: dg.DagsterInstance, capsys: pytest.CaptureFixture[str]
) -> None:
    file = workspace.configuration.path
    before = build_definitions(file)
    file.write_text(LOCAL + ADDED)
    now = Workspace.open(file)
    assert due_scopes(now) == ["flights", "added"]
    known = set(assets_of(workspace.configuration, ["flights"]))
    tick = tick_sensor(now, instance, None, before)
    assert seen(tick) == {"rules": 1, "source flights": 0}
    for (request,) in (tick.run_requests, tick_schedule(now, instance, before).run_requests):
        assert (set(request.asset_selection), request.tags["deltatag/due"]) == (known, "flights")
    assert capsys.readouterr().err.count("added were added, removed, joined differently") == 2

    # Reloaded, the sensor sees the stream; and where it goes again, the others run on.
    tick = tick_sensor(now, instance, tick.cursor)
    assert capsys.readouterr().err == ""
    assert [request.tags["deltatag/due"] for request in tick.run_requests] == ["flights, added"]
    reloaded = build_definitions(file)
    file.write_text(LOCAL)
    (request,) = tick_sensor(workspace, instance, tick.cursor, reloaded).run_requests
    assert set(request.asset_selection) == known
    assert "skipped until the code location is reloaded" in capsys.readouterr().err


READER = (
    LOCAL.replace("[streams.flights]", '[streams.flights]\noutput = "matched"')
    + """
[streams.long]
source_stream = "flights"
output = "matched"
key = ["flight_id"]
checks = { sane = "delay > -120" }
"""
)


def test_a_stream_that_reads_what_another_one_has_tagged_runs_behind_it(
    workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    workspace.configuration.path.write_text(READER)
    both = Workspace.open(workspace.configuration.path)
    add_rules(both, [("long", "delay > 80")], "long")
    result = run_once(both, instance)
    assert result.success, failed_checks(result)
    steps = [event.step_key for event in result.all_events if event.is_step_success]
    wanted = ["tag_flights", "judge_flights_tagged", "source__long", "judge_long", "tag_long", "judge_long_tagged"]
    assert [step for step in steps if step in wanted] == wanted
    assert steps.index("compile_flights") < steps.index("compile_long")
    assert both.lake.arrow("long_tagged").num_rows == sum(row["delay"] > 80 for row in flights(0, 100).to_pylist())
    assert due_scopes(both) == []

    # New rows of the source make both due; new rows of the tagged table alone only the stream that reads it.
    append_flights(both, 100, 200)
    assert due_scopes(both) == ["flights", "long"]
    tag_stream(both, "flights")
    assert due_scopes(both) == ["long"]
    (request,) = tick_sensor(both, instance, None).run_requests
    keys = {key.to_user_string() for key in request.asset_selection}
    assert {"source/long", "long_tagged"} <= keys and not {"source/flights", "flights_tagged"} & keys
    result = run_once(both, instance, ["long"])
    assert result.success, failed_checks(result)
    assert both.lake.arrow("long_tagged").num_rows == sum(row["delay"] > 80 for row in flights(0, 200).to_pylist())
