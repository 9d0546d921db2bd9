"""The schedule and the sensor of definitions that were loaded before the configuration changed."""

from pathlib import Path

import dagster as dg
import pytest

from assets.definitions import build_definitions
from assets.names import JOB
from assets.schedules_and_sensors import DUE_TAG
from pipelines.workspace import Workspace
from tests.dagster.job_runs import tick_schedule
from tests.dagster.small_lake import LAKE, append, make_lake

STREAMS = """
[streams.a]
source = "lake/flights"
event_time = "at"
{a}
[streams.b]
source = "lake/flights"
event_time = "at"
[joins.j]
streams = ["a", "b"]
on = ["flight_id"]
window = "1 h"
{j}
"""
LIST = '[lists.l]\nsource = "l"'
KEY = 'key = ["flight_id"]'


@pytest.mark.parametrize(
    ("before", "after", "skipped"),
    [
        ({"a": ""}, {"a": KEY}, ["a"]),
        ({"a": KEY}, {"a": ""}, ["a"]),
        ({"a": KEY}, {"a": KEY + "\nmatches = false"}, ["a"]),
        ({"a": ""}, {"a": 'checks = { sane = "delay > 0" }'}, ["a"]),
        ({"a": KEY}, {"a": KEY + '\nchecks = { sane = "delay > 0" }'}, []),
        ({"j": ""}, {"j": 'lateness = "1 h"'}, ["j"]),
        ({"j": 'lateness = "1 h"'}, {"j": ""}, ["j"]),
        ({"j": LIST}, {"j": ""}, []),
        ({"j": ""}, {"j": LIST}, []),
    ],
)
def test_a_run_can_have_what_is_selected_though_it_loads_the_changed_configuration(
    tmp_path: Path, instance: dg.DagsterInstance, before: dict[str, str], after: dict[str, str], skipped: list[str]
) -> None:
    old, new = (STREAMS.format(**{"a": "", "j": ""} | each) for each in (before, after))
    workspace = make_lake(tmp_path, old, [])
    append(workspace, range(2), "a")
    file = workspace.configuration.path
    stale = build_definitions(file)
    file.write_text(LAKE + new)
    (request,) = tick_schedule(Workspace.open(file), instance, stale).run_requests
    assert request.tags[DUE_TAG].split(", ") == [scope for scope in "abj" if scope not in skipped]
    selected = {*request.asset_selection}
    run = build_definitions(file).resolve_job_def(JOB).get_subset(asset_selection=selected)
    assert run.asset_layer.selected_asset_keys == selected
