"""What the configuration and a launch may ask for: owners, freshness, a restart and changes that are passed over."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

from assets.definitions import build_definitions, definitions_over
from assets.headless import run_once
from assets.names import JOB, runs_key, table_key
from assets.resources import LakeResource
from pipelines.errors import ConfigurationError
from pipelines.settings.configuration import load_configuration
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from tests.dagster.small_lake import FLIGHTS, RULES_OF_FLIGHTS, append, flights, make_lake, shown, tick

OWNED = FLIGHTS + 'owners = ["team:fraud", "ada@example.org"]\n'
TIMED = FLIGHTS + 'freshness = "1 hour"\n'
OF_ADA, NOBODYS = "| ada | 2 | 0 | 0 |", "| (nobody) | 1 | 0 | 0 |"


def test_an_index_shows_the_owners_of_its_rules_and_all_tables_of_a_stream_their_owners(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    rules = [
        ("late", "flights", "delay > 60", "ada"),
        ("number", "flights", "CAST(code AS INT) > 50", "ada"),
        ("wrong", "flights", "nosuch > 1", "bob"),
        ("free", "flights", "delay > 70"),
    ]
    workspace = make_lake(tmp_path, OWNED, rules)
    append(workspace, range(100))
    first = shown(run_once(workspace, instance, ["flights"], quiet=True), "rule_index/flights_rule_index")
    assert first["owners_count"] == 2
    assert first["owners"].splitlines()[::2] == ["| owner | rules | rejected | rows with errors |", OF_ADA, NOBODYS]
    assert "| bob | 1 | 1 | 0 |" in first["owners"].splitlines()
    # what the rules raised when rows were tagged stands there from the next compile on
    again = shown(run_once(workspace, instance, ["flights"], quiet=True), "rule_index/flights_rule_index")
    assert "| ada | 2 | 0 | 25 |" in again["owners"]

    graph = build_definitions(workspace.configuration.path).resolve_asset_graph()
    owned = {key.to_user_string() for key in graph.get_all_asset_keys() if set(graph.get(key).owners)}
    assert owned == {
        "flights_tagged",
        "flights_matches",
        "quarantine_flights",
        "report/flights_report",
        "retag/flights_retag",
        "runs/flights_runs",
        "rule_index/flights_rule_index",
        "rule_rejects/flights_rule_rejects",
    }
    assert set(graph.get(table_key("flights_tagged")).owners) == {"team:fraud", "ada@example.org"}


@pytest.mark.parametrize("owner", ["fraud", "team:", "ada@", "@example.org", "a da@example.org"])
def test_what_dagster_takes_as_no_owner_is_refused_with_the_key(tmp_path: Path, owner: str) -> None:
    path = tmp_path / "deltatag.toml"
    path.write_text(f'[lake]\nroot = "lake"\n{FLIGHTS}owners = ["{owner}"]\n')
    with pytest.raises(ConfigurationError, match=r"\[streams\.flights\] owners: .*team:fraud"):
        load_configuration(path)


@pytest.mark.parametrize("freshness", ["0 s", "soon", "1 fortnight"])
def test_a_freshness_that_is_no_duration_is_refused_with_the_key(tmp_path: Path, freshness: str) -> None:
    path = tmp_path / "deltatag.toml"
    path.write_text(f'[lake]\nroot = "lake"\n{FLIGHTS}freshness = "{freshness}"\n')
    with pytest.raises(ConfigurationError, match=r"\[streams\.flights\] freshness: expected"):
        load_configuration(path)


def grow_older(table: str, version: int, hours: float) -> None:
    """Have a commit of a table of delta-rs be older than it is."""
    entry = Path(table) / "_delta_log" / f"{version:020}.json"
    old = int((time.time() - hours * 3_600) * 1_000)
    entry.write_text(re.sub(r'"timestamp":\d+', f'"timestamp":{old}', entry.read_text()))
    os.utime(entry, (old / 1e3, old / 1e3))


def verdicts(workspace: Workspace, instance: dg.DagsterInstance, cursor: str | None) -> tuple[list[Any], str]:
    """What the sensor reports, and its cursor."""
    found = tick(workspace, instance, cursor, "freshness")
    return list(found.asset_events), str(found.cursor)


def test_rows_that_wait_longer_than_the_stream_allows_warn_until_they_are_tagged(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    workspace = make_lake(tmp_path, TIMED, RULES_OF_FLIGHTS)
    source = workspace.configuration.stream("flights").source
    append(workspace, range(10))
    (event,), cursor = verdicts(workspace, instance, None)
    assert event.passed and event.asset_key == table_key("flights_tagged") and event.check_name == "fresh"

    grow_older(source, 0, 2)
    (event,), cursor = verdicts(workspace, instance, cursor)
    assert (event.passed, event.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "longer than freshness = 3,600 s allows" in event.description
    assert event.metadata["waiting_seconds"].value >= 7_200
    # the same verdict is not told twice, and the tick says why
    assert verdicts(workspace, instance, cursor) == ([], cursor)
    skipped = tick(workspace, instance, cursor, "freshness").skip_message
    assert skipped.startswith("No verdict has changed: Rows of flights have been waiting")

    # a run tags them, and judges the check itself
    result = run_once(workspace, instance, ["flights"], quiet=True)
    (judged,) = [each for each in result.get_asset_check_evaluations() if each.check_name == "fresh"]
    assert judged.passed and judged.description == "No row is waiting to be tagged."
    (event,), cursor = verdicts(workspace, instance, cursor)
    assert event.passed

    # what brings no row waits for nothing; of rows that do, the oldest commit counts
    DeltaTable(source).optimize.compact()
    DeltaTable(source).alter.set_table_properties({"delta.logRetentionDuration": "interval 20 days"})
    for version in range(1, DeltaTable(source).version() + 1):
        grow_older(source, version, 5)
    assert verdicts(workspace, instance, cursor) == ([], cursor)
    append(workspace, range(10, 20))
    grow_older(source, DeltaTable(source).version(), 3)
    append(workspace, range(20, 30))
    (event,), _ = verdicts(workspace, instance, cursor)
    assert not event.passed and event.metadata["waiting_commits"].value == 2
    assert 10_800 <= event.metadata["waiting_seconds"].value < 18_000

    # rows also wait if the log no longer has the commit that brought them
    table, log = DeltaTable(source), Path(source, "_delta_log")
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 1 day"})
    grow_older(source, table.version(), 2)
    table.create_checkpoint()
    for version in range(table.version()):
        (log / f"{version:020}.json").unlink()
    assert verdicts(workspace, instance, None)[0][0].passed is False


def test_without_the_key_there_is_neither_check_nor_sensor(tmp_path: Path) -> None:
    definitions = build_definitions(make_lake(tmp_path, FLIGHTS, []).configuration.path)
    checks = definitions.resolve_asset_graph().asset_check_keys
    assert "fresh" not in {key.name for key in checks}
    assert [sensor.name for sensor in definitions.sensors or ()] == ["rules_and_sources"]


def launch(workspace: Workspace, instance: dg.DagsterInstance, **options: bool) -> dg.ExecuteInProcessResult:
    """The tagging step alone, launched with options."""
    job = definitions_over(workspace.configuration, LakeResource.over(workspace)).resolve_job_def(JOB)
    tables = [table_key(name) for name in ("flights_tagged", "flights_matches", "quarantine_flights")]
    return job.execute_in_process(
        instance=instance,
        raise_on_error=False,
        asset_selection=[*tables, runs_key("flights")],
        run_config={"ops": {"tag_flights": {"config": options}}} if options else None,
    )


def test_a_launch_may_restart_a_stream_or_pass_over_changes(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    workspace = make_lake(tmp_path, FLIGHTS, RULES_OF_FLIGHTS)
    append(workspace, range(20))
    assert run_once(workspace, instance, ["flights"], quiet=True).success
    source = DeltaTable(workspace.configuration.stream("flights").source)
    source.delete("flight_id < 5")
    append(workspace, range(20, 25))
    assert not launch(workspace, instance).success

    def ids() -> list[int]:
        return sorted(workspace.lake.arrow("flights_tagged", ["flight_id"])["flight_id"].to_pylist())

    sound = [n for n in flights(range(25))["flight_id"].to_pylist() if n % 10 != 9]
    assert ids() == [n for n in sound if n < 20]
    assert launch(workspace, instance, skip_changes=True).success and ids() == sound
    assert launch(workspace, instance, restart=True).success and ids() == [n for n in sound if n >= 5]
    # nothing is done anew where it is not asked for
    assert launch(workspace, instance).success and tag_stream(workspace, "flights").batches == 0


def test_the_launchpad_says_what_the_options_do(tmp_path: Path) -> None:
    workspace = make_lake(tmp_path, FLIGHTS, RULES_OF_FLIGHTS)
    job = build_definitions(workspace.configuration.path).resolve_job_def(JOB)
    fields = job.get_node_named("tag_flights").definition.config_schema.config_type.fields
    told = {name: (field.default_value, bool(field.description)) for name, field in fields.items()}
    assert told == {"restart": (False, True), "skip_changes": (False, True)}
