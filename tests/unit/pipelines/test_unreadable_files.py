"""A source whose files are gone or damaged stops its own stream, and no other one."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.compile import compile_scopes
from pipelines.run import run_due
from quality.gates import QualityGates
from tests.cases import quick_first


def newest_file(source: str) -> Path:
    before = set(DeltaTable(source, version=0).file_uris())
    (found,) = set(DeltaTable(source).file_uris()) - before
    return Path(unquote(urlparse(found).path))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("checks", "harm"),
    quick_first(
        1,
        [
            *(({}, "gone"), ({}, "truncated"), ({"small": "x < 90"}, "damaged")),
            *(({"small": "x < 90"}, "gone"), ({"small": "x < 90"}, "truncated"), ({}, "damaged")),
        ],
        3,
    ),
)
def test_the_other_streams_go_on(new_workspace, add_rules, harm: str, checks: dict[str, str]) -> None:
    names = ("a", "b", "c")
    streams = {name: {"source": f"lake/{name}", "key": ["id"], "checks": checks} for name in names}
    workspace = new_workspace(streams, spark=False)
    table = pa.table({"id": pa.array(range(2000)), "x": pa.array([n % 80 for n in range(2000)])})
    for name in names:
        write_deltalake(workspace.configuration.streams[name].source, table)
        add_rules(workspace, (f"of {name}", name, "x > 50"))
    compile_scopes(workspace)
    assert not run_due(workspace, QualityGates()).failures
    for name in names:
        write_deltalake(workspace.configuration.streams[name].source, table, mode="append")
    path = newest_file(workspace.configuration.streams["b"].source)
    whole = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        cut = {"truncated": whole[: len(whole) // 2], "damaged": whole[:100] + bytes(400) + whole[500:]}
        path.write_bytes(cut[harm])
    report = run_due(workspace, QualityGates())
    assert list(report.failures) == ["b"] and [each.stream for each in report.tagged] == ["a", "c"]
    if harm == "gone":
        assert "1 of the 1 files that b has to read next" in report.failures["b"]
        assert "deltatag tag b --skip-changes" in report.failures["b"]
    else:
        assert f"The source of b cannot be read: {path} is damaged: " in report.failures["b"]
    assert [workspace.lake.arrow(f"{name}_tagged").num_rows for name in names] == [4000, 2000, 4000]
    path.write_bytes(whole)
    assert not run_due(workspace, QualityGates()).failures
    assert workspace.lake.arrow("b_tagged").num_rows == 4000


@pytest.mark.slow
def test_a_join_names_the_damaged_file(new_workspace, add_rules, tmp_path: Path) -> None:
    streams = {name: {"source": f"lake/{name}", "event_time": "at"} for name in ("a", "b")}
    workspace = new_workspace(
        streams, spark=False, joins={"j": {"streams": ["a", "b"], "on": ["id"], "window": "1 hour"}}
    )
    times = pa.array([n * 10**6 for n in range(2000)], pa.timestamp("us", "UTC"))
    table = pa.table({"id": pa.array(range(2000)), "at": times})
    for name in streams:
        write_deltalake(workspace.configuration.streams[name].source, table)
    add_rules(workspace, ("of both", "j", "a.id < b.id + 50"))
    assert not run_due(workspace, QualityGates()).failures
    write_deltalake(workspace.configuration.streams["b"].source, table, mode="append")
    path = newest_file(workspace.configuration.streams["b"].source)
    path.write_bytes(path.read_bytes()[:-100] + bytes(100))
    report = run_due(workspace, QualityGates())
    assert report.failures == {"j": report.failures["j"]}
    assert f"The source of b cannot be read: {path} is damaged: " in report.failures["j"]
