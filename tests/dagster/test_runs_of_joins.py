"""Runs of the job over two streams and their join: what is due, and what a missing source stops."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from assets.headless import run_once
from pipelines.due import due_scopes
from pipelines.workspace import Workspace
from tests.cases import soak_rest
from tests.dagster.job_runs import add_rules, failed_checks, made, seen, sql, tick_schedule, tick_sensor
from tests.lakes import make_tables

pytestmark = pytest.mark.spark


JOINED = """
[lake]
root = "lake"
[streams.flights]
source = "lake/flights"
event_time = "at"
[streams.weather]
source = "lake/weather"
event_time = "at"
[joins.both]
streams = ["flights", "weather"]
on = ["origin"]
window = { flights = "0 s", weather = "2 hours" }
"""


@pytest.fixture
def joined(tmp_path: Path, request: pytest.FixtureRequest) -> Workspace:
    """A lake with flights, hourly weather, a join of both and one rule on it; "spark" has the session join."""
    if getattr(request, "param", "local") == "spark":
        (tmp_path / "deltatag.toml").write_text(JOINED)
        opened = Workspace.open(tmp_path / "deltatag.toml", request.getfixturevalue("spark"))
    else:
        (tmp_path / "deltatag.toml").write_text(JOINED.replace("[lake]", '[lake]\nrunner = "local"'))
        opened = Workspace.open(tmp_path / "deltatag.toml")
    make_tables(opened)
    append_hours(opened, "flights", range(20))
    append_hours(opened, "weather", range(20))
    add_rules(opened, [("gust", "weather.number % 4 = 0 AND flights.number > 2")], "both")
    return opened


def append_hours(workspace: Workspace, stream: str, numbers: range) -> None:
    """One row an hour, all at one origin."""
    times = pa.array([number * 3_600_000_000 for number in numbers], pa.timestamp("us", tz="UTC"))
    columns = {"number": pa.array(numbers, pa.int64()), "origin": ["JFK"] * len(numbers), "at": times}
    write_deltalake(workspace.configuration.stream(stream).source, pa.table(columns), mode="append")


def joined_pairs(workspace: Workspace) -> list[tuple[int, int]]:
    rows = workspace.lake.arrow("both_tagged").to_pylist()
    assert {tuple(row["rule_ids"]) for row in rows} == {("gust",)}
    return sorted((row["flights"]["number"], row["weather"]["number"]) for row in rows)


def gusty(flights: int, weather: int) -> list[tuple[int, int]]:
    return [(f, w) for f in range(3, flights) for w in range(max(f - 2, 0), min(f + 1, weather)) if w % 4 == 0]


@pytest.mark.parametrize("joined", soak_rest(1, ["local", "spark"]), indirect=True)
def test_a_join_runs_when_a_row_has_come_on_either_side_and_its_checks_look_at_it(
    joined: Workspace, instance: dg.DagsterInstance
) -> None:
    tick = tick_sensor(joined, instance, None)
    assert seen(tick) == {"rules": 1, "source flights": 0, "source weather": 0}
    (request,) = tick.run_requests
    keys = [key.to_user_string() for key in request.asset_selection]
    assert len(keys) == len(set(keys)) and {
        "source/weather",
        "rule_index/both_rule_index",
        "both_tagged",
        "runs/both_runs",
    } <= set(keys)
    result = run_once(joined, instance)
    assert result.success and failed_checks(result) == {}
    assert joined_pairs(joined) == gusty(20, 20)
    steps = [event.step_key for event in result.all_events if event.is_step_success]
    assert steps.index("judge_weather") < steps.index("join_both") < steps.index("judge_both_tagged")
    (written,) = [
        event.step_materialization_data.materialization.metadata
        for event in result.get_asset_materialization_events()
        if event.asset_key and event.asset_key.to_user_string() == "both_tagged"
    ]
    assert (written["new_rows"].value, written["source_rows"].value) == (len(gusty(20, 20)), 40)
    assert due_scopes(joined) == [] and tick_schedule(joined, instance).run_requests == []

    # A rule of the join alone is edited: only the join is due, and it takes its sources along.
    sql(joined, "UPDATE rules SET expression = concat(expression, ' AND TRUE')")
    assert due_scopes(joined) == ["both"]
    (request,) = tick_sensor(joined, instance, tick.cursor).run_requests
    keys = {key.to_user_string() for key in request.asset_selection}
    assert {"source/flights", "source/weather", "both_tagged"} <= keys and "flights_tagged" not in keys
    assert run_once(joined, instance, ["both"]).success

    # Rows come on one side: the join is due, and not the stream, which has no rule.
    append_hours(joined, "flights", range(20, 23))
    assert due_scopes(joined) == ["both"]
    result = run_once(joined, instance, ["both"])
    assert result.success and failed_checks(result) == {}
    assert joined_pairs(joined) == gusty(23, 20)


def test_a_missing_source_stops_the_join_and_not_the_other_stream(
    joined: Workspace, instance: dg.DagsterInstance
) -> None:
    source = Path(joined.configuration.stream("weather").source)
    source.rename(source.with_name("elsewhere"))
    result = run_once(joined, instance)
    assert not result.success
    assert {"flights_tagged", "rule_index/flights_rule_index"} <= set(made(result))
    assert not {"both_tagged", "weather_tagged"} & set(made(result))


def test_a_join_needs_no_key_of_its_streams(joined: Workspace, instance: dg.DagsterInstance) -> None:
    path = joined.configuration.path
    path.write_text(path.read_text().replace('source = "lake/weather"', 'source = "lake/weather"\nkey = ["lacks"]'))
    result = run_once(Workspace.open(path), instance)
    assert not result.success and failed_checks(result) == {"columns": "ERROR"}
    assert "both_tagged" in made(result) and "rule_index/weather_rule_index" not in made(result)
    assert joined_pairs(joined) == gusty(20, 20)
