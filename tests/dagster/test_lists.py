"""An edit of a list of values starts a run, which compiles the rules that name it."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pyarrow as pa
from deltalake import write_deltalake

from assets.definitions import build_definitions
from assets.headless import run_once
from assets.names import index_key, list_key
from pipelines.lake.index_store import newest_index
from tests.dagster.small_lake import FLIGHTS, append, make_lake, tick

SENSOR = "rules_and_sources"
LISTS = '[lists.codes]\nsource = "lists/codes"\n'


def edit(folder: Path, *codes: str) -> None:
    write_deltalake(str(folder / "lists" / "codes"), pa.table({"code": list(codes)}), mode="append")


def test_the_sensor_notices_edits_of_lists(tmp_path: Path) -> None:
    workspace = make_lake(tmp_path, FLIGHTS + LISTS, [("listed", "flights", "code IN LIST('codes')")])
    append(workspace, range(10))
    edit(tmp_path, "1")
    with dg.DagsterInstance.ephemeral() as instance:
        first = tick(workspace, instance, None, SENSOR)
        assert len(first.run_requests) == 1
        assert run_once(workspace, instance, ["flights"], quiet=True).success
        seen = instance.get_latest_data_version_record(list_key("codes"))
        assert seen is not None and seen.asset_observation is not None
        assert (seen.asset_observation.tags or {})["dagster/data_version"].split()[1:3] == ["0", "code"]
        before = newest_index(workspace.lake, "flights")
        assert tick(workspace, instance, first.cursor, SENSOR).run_requests == []
        edit(tmp_path, "2")
        again = tick(workspace, instance, first.cursor, SENSOR)
        assert [dict(each.tags)["deltatag/due"] for each in again.run_requests] == ["flights"]
        assert run_once(workspace, instance, ["flights"], quiet=True).success
        after = newest_index(workspace.lake, "flights")
        assert before is not None and after is not None and before.fingerprint != after.fingerprint
        # what a list that no rule names does leaves nothing to be done
        assert tick(workspace, instance, again.cursor, SENSOR).run_requests == []


def test_an_index_follows_from_the_lists(tmp_path: Path) -> None:
    workspace = make_lake(tmp_path, FLIGHTS + LISTS, [("listed", "flights", "code IN LIST('codes')")])
    graph = build_definitions(workspace.configuration.path).resolve_asset_graph()
    assert list_key("codes") in graph.get(index_key("flights")).parent_keys
