"""The table of indexes, with several runs at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest

from pipelines.lake.index_store import fetch_index, newest_index, store_index
from pipelines.lake.runs import PLANNED, MicroBatch, record_plan


def test_runs_at_once_store_an_index_once(new_workspace, tmp_path) -> None:
    lake = new_workspace(spark=False).lake
    start = Barrier(4)

    def store(number: int):
        path = tmp_path / f"{number}.index"
        path.write_bytes(b"the same index" * 1000)
        start.wait()
        scope, fingerprint = ("s", "f" * 64) if number < 3 else ("other", "f" * 64)
        return store_index(lake, scope, 1, fingerprint, "asc", path, {})

    with ThreadPoolExecutor(4) as pool:
        *same, other = pool.map(store, range(4))
    assert same == [same[0]] * 3 and other.scope == "other"
    assert sorted(lake.arrow("rule_index", ["scope"])["scope"].to_pylist()) == ["other", "s"]
    assert fetch_index(lake, same[0]).read_bytes() == b"the same index" * 1000


def test_an_index_of_before_is_stored_again(new_workspace, tmp_path) -> None:
    lake = new_workspace(spark=False).lake
    path = tmp_path / "an.index"
    path.write_bytes(b"index")
    for fingerprint in ("a" * 64, "b" * 64, "a" * 64):
        store_index(lake, "s", 1, fingerprint, "asc", path, {})
    newest = newest_index(lake, "s")
    assert newest is not None and newest.fingerprint == "a" * 64
    assert lake.arrow("rule_index", ["scope"]).num_rows == 3


@pytest.mark.parametrize("from_scratch", [False, True])
def test_the_last_index_is_the_newest_whatever_the_clock_says(new_workspace, tmp_path, from_scratch: bool) -> None:
    lake = new_workspace(spark=False).lake
    path = tmp_path / "an.index"
    path.write_bytes(b"index")
    stored = store_index(lake, "s", 1, "a" * 64, "asc", path, {})
    ahead = stored.created_at + timedelta(days=1)
    lake.writable("rule_index").update(updates={"created_at": f"'{ahead.isoformat()}'"})
    record_plan(lake, MicroBatch("s", 0, PLANNED, {}, 1, "a" * 64, None, stored.created_at))
    store_index(lake, "s", 2, "b" * 64, "asc", path, {}, from_scratch)
    newest = newest_index(lake, "s")
    assert newest is not None and newest.fingerprint == "b" * 64 and newest.created_at > ahead
    assert lake.arrow("rule_index", ["scope"]).num_rows == 2 and fetch_index(lake, newest).read_bytes() == b"index"
