"""What assets show of their runs: numbers to plot, a picture, how far a table is behind, and what cannot be read."""

from __future__ import annotations

import base64
import re
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import pytest
from deltalake import write_deltalake

from assets.checks import _written
from assets.headless import run_once
from assets.history import last_batches
from assets.lint import NAME as LINT
from assets.plots import rows_and_matches
from assets.resources import LakeResource
from assets.table_metadata import rounded, table_metadata
from pipelines.compile import compile_scopes
from pipelines.lint import accept_finding
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from tests.dagster.small_lake import FLIGHTS, RULES_OF_FLIGHTS, append, flights, make_lake, shown
from tests.lakes import write_rules

BOTH = """
[streams.flights]
source = "lake/flights"
event_time = "at"
[streams.weather]
source = "lake/weather"
event_time = "at"
[joins.both]
streams = ["flights", "weather"]
on = ["delay"]
window = "1 hour"
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """100 flights and two rules, one of which raises on a quarter of the rows."""
    opened = make_lake(tmp_path, FLIGHTS, RULES_OF_FLIGHTS)
    append(opened, range(100))
    return opened


def picture(markdown: str) -> bytes:
    found = re.fullmatch(r"!\[rows and matches\]\(data:image/png;base64,([A-Za-z0-9+/=]+)\)", markdown)
    assert found is not None
    return base64.b64decode(found[1], validate=True)


def test_rules_are_linted_again_when_they_have_changed_or_after_a_while(
    workspace: Workspace, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look() -> tuple[str, Any]:
        evaluations = run_once(workspace, instance, ["flights"], quiet=True).get_asset_check_evaluations()
        (check,) = (each for each in evaluations if each.check_name == LINT)
        assert check.passed == (check.description == "no findings")
        assert not (check.description or "").startswith("1 findings")
        seconds = cast("float", check.metadata["seconds"].value)
        assert seconds == rounded(seconds)
        return check.description or "", check.metadata["looked_at"].value

    monkeypatch.setattr("assets.lint._SHARE", 1e-6)
    first = look()
    append(workspace, range(100, 110))
    assert look() == first
    write_rules(workspace, [("odd", "flights", "delay > 5 AND delay < 5")])
    (described, at), then = first, look()
    assert "contradiction" in then[0] and "contradiction" not in described and then[1] > at
    assert look() == then
    accept_finding(workspace, "odd", "contradiction")
    accepted = look()
    assert "contradiction" not in accepted[0]
    file = workspace.configuration.path
    file.write_text(file.read_text() + '\n[rules]\ntime_zone = "Asia/Tokyo"\n')
    workspace = Workspace.open(file)
    elsewhere = look()
    assert elsewhere[1] > accepted[1] and look() == elsewhere
    monkeypatch.setattr("assets.lint._SHARE", 1e6)
    assert look()[1] > elsewhere[1]


def test_a_tagged_table_shows_numbers_to_plot_and_a_picture_of_its_micro_batches(
    workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    told = shown(run_once(workspace, instance, ["flights"], quiet=True), "flights_tagged")
    # numbers 0, 4, ..., 96 have no number for a code; of them, 9, 19, ... none is in quarantine
    assert {key: told[key] for key in ("new_rows", "errors", "lag_rows", "lag_versions")} == {
        "new_rows": 90,
        "errors": 25,
        "lag_rows": 0,
        "lag_versions": 0,
    }
    assert told["matches"] > 0 and told["seconds"] > 0
    assert "| number | 25 |" in told["errors_by_rule"]
    first = picture(told["rows_and_matches"])
    assert first.startswith(b"\x89PNG") and len(told["rows_and_matches"]) < 60_000

    # Another micro-batch is another bar; where nothing is due the picture stays, and no zero is told of rows.
    append(workspace, range(100, 400))
    second = picture(
        shown(run_once(workspace, instance, ["flights"], quiet=True), "flights_tagged")["rows_and_matches"]
    )
    assert second != first
    idle = shown(run_once(workspace, instance, ["flights"], quiet=True), "flights_tagged")
    assert picture(idle["rows_and_matches"]) == second
    assert not {"new_rows", "matches", "errors", "seconds"} & set(idle)


def test_the_picture_has_the_newest_micro_batches_and_none_from_before_a_restart(
    workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    assert last_batches(workspace, "flights") == []
    run_once(workspace, instance, ["flights"], quiet=True)
    for start in (100, 110, 120):
        append(workspace, range(start, start + 10))
        tag_stream(workspace, "flights")
    assert [batch.batch for batch in last_batches(workspace, "flights")] == [0, 1, 2, 3]
    assert [batch.batch for batch in last_batches(workspace, "flights", 2)] == [2, 3]
    tag_stream(workspace, "flights", restart=True)
    (batch,) = last_batches(workspace, "flights")
    assert (batch.batch, batch.rows, batch.quarantined) == (5, 130, 13)
    # many micro-batches of many rows make no large picture
    many = [replace(batch, batch=n, rows=10**9 + n * 10**7, matches=n**3) for n in range(100_000, 100_060)]
    assert len(rows_and_matches("a_stream_with_a_name_that_is_rather_long", many)) < 60_000


def test_a_join_shows_its_micro_batches_too(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    workspace = make_lake(tmp_path, BOTH, [("some", "both", "flights.flight_id > 10")])
    append(workspace, range(50))
    append(workspace, range(50), "weather")
    told = shown(run_once(workspace, instance, ["both"], quiet=True), "both_tagged")
    assert (told["source_rows"], told["errors"], told["lag_rows"]) == (100, 0, 0)
    assert told["new_rows"] == told["matches"] > 0
    assert picture(told["rows_and_matches"]).startswith(b"\x89PNG")

    # Each field of a side is a cell of its own, since a whole row of a side does not fit one.
    record = told["sample_rows"].records[0]
    assert (record.data["flights.flight_id"], record.data["rule_ids"]) == (record.data["weather.flight_id"], "some")
    assert {"weather.delay", "weather.code", "weather.at"} <= set(record.data)


def test_a_row_with_a_time_that_python_lacks_is_shown(tmp_path: Path) -> None:
    workspace = make_lake(tmp_path, FLIGHTS, RULES_OF_FLIGHTS)
    write_deltalake(workspace.lake.uri("flights_tagged"), flights([10**8]))
    (record,) = table_metadata(workspace, "flights_tagged")["sample_rows"].records
    assert record.data["at"].startswith("13377-")


def test_types_are_named_as_in_sql_and_times_are_in_the_configured_zone(tmp_path: Path) -> None:
    workspace = make_lake(tmp_path, '[rules]\ntime_zone = "Europe/Berlin"\n' + FLIGHTS, RULES_OF_FLIGHTS)
    write_deltalake(workspace.lake.uri("flights_tagged"), flights([0]))
    told = table_metadata(workspace, "flights_tagged")
    types = {column.name: column.type for column in told["dagster/column_schema"].columns}
    assert (types["flight_id"], types["at"]) == ("bigint", "timestamp")
    assert told["sample_rows"].records[0].data["at"] == "1970-01-01 01:00:00+01:00"


def test_the_micro_batches_to_judge_are_those_of_the_same_lake(
    workspace: Workspace, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    """Two lakes in one Dagster may have streams of the same name, and so assets of the same key."""
    run_once(workspace, instance, ["flights"], quiet=True)
    (tmp_path / "other").mkdir()
    other = make_lake(tmp_path / "other", FLIGHTS, RULES_OF_FLIGHTS)
    for lake, batches in ((workspace, 1), (other, 0)):
        resources = SimpleNamespace(lake=LakeResource.over(lake))
        context = cast("Any", SimpleNamespace(instance=instance, resources=resources))
        assert _written(context, dg.AssetKey("flights_tagged")) == batches


def test_a_table_that_is_not_made_says_so(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    workspace = make_lake(tmp_path, BOTH, [("some", "both", "flights.flight_id > 10")])
    append(workspace, range(50))
    append(workspace, range(50), "weather")
    told = shown(run_once(workspace, instance, quiet=True), "weather_tagged")
    assert not workspace.lake.exists("weather_tagged")
    assert "does not exist yet" in told["state"] and "dagster/uri" not in told


def test_rules_that_cannot_be_read_are_told_by_their_check(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    for commit in Path(workspace.lake.uri("rules"), "_delta_log").glob("*.json"):
        commit.write_text('{"torn')
    result = run_once(Workspace.open(workspace.configuration.path), instance, quiet=True)
    messages = {c.check_name: c.description for c in result.get_asset_check_evaluations() if not c.passed}
    told = f"The table rules at {workspace.lake.uri('rules')} cannot be opened"
    assert not result.success and told in str(messages["table"])


def test_the_query_can_be_copied_whatever_the_folder_is_called(tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s "$HOME" `x`'
    folder.mkdir()
    query = table_metadata(make_lake(folder, FLIGHTS, []), "rules")["query"].value
    command = shlex.split(query.splitlines()[1])
    assert command == ["deltatag", "sql", "--config", str(folder / "deltatag.toml"), "SELECT * FROM rules LIMIT 10"]


def test_a_closed_gate_fails_its_step_with_a_sentence(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    compile_scopes(workspace)
    tag_stream(workspace, "flights")
    write_deltalake(workspace.configuration.stream("flights").source, flights(range(10)), mode="overwrite")
    result = run_once(workspace, instance, quiet=True)
    (failed,) = [event for event in result.all_events if event.is_step_failure]
    assert failed.step_key == "judge_flights"
    error = failed.step_failure_data.error
    assert error is not None and list(error.stack) == []
    assert error.message.startswith("The quality gate of flights is closed. Expected: ")
    assert "--skip-changes" in error.message
    assert "followed" in [check.check_name for check in result.get_asset_check_evaluations() if not check.passed]
