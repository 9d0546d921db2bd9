"""Re-tags by days of the event time, each day a partition, and several in one run."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from assets.definitions import definitions_over
from assets.headless import run_once
from assets.names import retag_key
from assets.resources import LakeResource
from pipelines.workspace import Workspace
from tests.dagster.small_lake import FLIGHTS, append, make_lake, shown
from tests.lakes import write_rules

DAY = 24
"""Flights of a day."""
DAYS_2000 = 10_957
"""From 1970-01-01 to 2000-01-01."""
NEW_YORK = '[rules]\ntime_zone = "America/New_York"\n'


def test_days_are_retagged_one_by_one_or_in_one_run_in_the_configured_time_zone(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")  # no day needs a JVM
    first = DAYS_2000 * DAY
    make_lake(tmp_path, NEW_YORK + FLIGHTS.replace("checks", "# checks"), [("old", "flights", "delay >= 0")])
    workspace = Workspace.open(tmp_path / "deltatag.toml")
    append(workspace, [n for n in range(first, first + 8 * DAY) if n % 10 != 9])
    assert run_once(workspace, instance, ["flights"], quiet=True).success
    write_rules(workspace, [("new", "flights", "delay >= 0")])
    job = definitions_over(workspace.configuration, LakeResource.over(workspace)).resolve_job_def("retag_flights")

    def newly_tagged() -> set[int]:
        """The days since 2000-01-01 on New York's clocks (UTC-5) whose flights all have the new rule."""
        found: dict[int, set[bool]] = {}
        for row in workspace.lake.arrow("flights_tagged", ["flight_id", "rule_ids"]).to_pylist():
            found.setdefault((row["flight_id"] - first - 5) // DAY, set()).add("new" in row["rule_ids"])
        assert all(len(tags) == 1 for tags in found.values())
        return {day for day, tags in found.items() if tags == {True}}

    assert newly_tagged() == set()
    result = job.execute_in_process(instance=instance, partition_key="2000-01-03")
    assert newly_tagged() == {2}
    told = shown(result, "retag/flights_retag")
    assert told["days"] == "2000-01-03 to 2000-01-03"
    assert 20 <= told["rows_changed"] <= 24 and told["files_written"] == 1

    # a backfill of three days is one run of the range
    result = job.execute_in_process(
        instance=instance,
        tags={"dagster/asset_partition_range_start": "2000-01-03", "dagster/asset_partition_range_end": "2000-01-05"},
    )
    assert newly_tagged() == {2, 3, 4}
    told = result.asset_materializations_for_node("retag__flights_retag")
    assert [each.metadata["days"].value for each in told] == ["2000-01-03 to 2000-01-05"] * 3
    assert result.success and len(instance.get_materialized_partitions(retag_key("flights"))) == 3


def test_streams_of_which_no_range_can_be_retagged_have_no_days(tmp_path: Path) -> None:
    matched = 'output = "matched"\n'
    timeless = FLIGHTS.replace("streams.flights", "streams.timeless").replace('event_time = "at"', "")
    workspace = make_lake(tmp_path, FLIGHTS + matched + timeless, [])
    definitions = definitions_over(workspace.configuration, LakeResource.over(workspace))
    jobs = {job.name for job in definitions.resolve_all_job_defs()}
    assert {name for name in jobs if not name.startswith("__")} == {"run", "maintain", "report"}
