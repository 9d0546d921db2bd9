"""Sources whose files have deletion vectors, read without a JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake

from pipelines.backtest import Candidate, backtest
from pipelines.compile import compile_scopes
from pipelines.errors import NeedsSparkError, PipelineError
from pipelines.join import join_streams
from pipelines.lake import deletion_vectors
from pipelines.lake.reading import read_rows
from pipelines.local_sql.statement import execute
from pipelines.retag import retag
from pipelines.sources.known_values import source_values
from pipelines.sources.positions import Position
from pipelines.sources.sample import source_sample
from pipelines.status import _obstacle
from pipelines.tag import tag_stream
from rules_index.workers import copied_files
from tests.tables import columns_of, delete_rows

RULES = [("odd", "s", "n = 1"), ("late", "s", "id > 60 AND text <> 'v3'"), ("none", "s", "id = 4")]
GROUPS = WriterProperties(max_row_group_size=16, compression="SNAPPY")
DELETED = [0, 4, 15, 16, 17, *range(32, 48), 49]


def write(folder: Path, start: int, stop: int, **options: Any) -> None:
    ids = range(start, stop)
    times = pa.array([each * 1_000_000 for each in ids], pa.timestamp("us", "UTC"))
    columns = {"id": ids, "n": [each % 3 for each in ids], "text": [f"v{each % 5}" for each in ids], "t": times}
    write_deltalake(str(folder), pa.table(columns), mode="append", writer_properties=GROUPS, **options)


def kept(folder: Path) -> set[int]:
    """The ids that are left, by delta-rs's own reader."""
    return set(read_rows(DeltaTable(str(folder)), ["id"])["id"].to_pylist())


def expected(ids: set[int], every: bool = True) -> dict[int, list[str]]:
    found = {}
    for each in ids:
        matched = {"odd": each % 3 == 1, "late": each > 60 and each % 5 != 3, "none": each == 4}
        rules = sorted(rule for rule, holds in matched.items() if holds)
        found |= {each: rules} if rules or every else {}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("partition_by", [None, ["n"]])
@pytest.mark.parametrize("output", ["all", "matched"])
def test_deleted_rows_are_not_tagged(
    tmp_path: Path, new_workspace: Any, add_rules: Any, monkeypatch: Any, output: str, partition_by: list[str] | None
) -> None:
    # columns of large row groups are copied without being decoded
    monkeypatch.setattr(copied_files, "_FEWEST_ROWS", 1)
    source = tmp_path / "source"
    write(source, 0, 80, partition_by=partition_by)
    deleted = [each for each in DELETED if partition_by is None or each < 26]
    delete_rows(source, 0, deleted)
    write(source, 80, 160)
    ids = kept(source)
    assert len(ids) == 160 - len(deleted) * (3 if partition_by else 1)
    # rows are not copied where some go to quarantine
    refused = {70} if output == "matched" else set()
    checks = {"sound": "id <> 70"} if refused else {}
    stream = {"source": str(source), "key": ["id"], "checks": checks, "output": output}
    workspace = new_workspace({"s": stream}, spark=False, runner="local")
    add_rules(workspace, *RULES)
    compile_scopes(workspace)
    result = tag_stream(workspace, "s")
    assert (result.rows, result.quarantined) == (len(ids), len(refused))
    wanted = expected(ids - refused, output == "all")
    assert dict(columns_of(workspace, "s_tagged", "id", "rule_ids")) == wanted
    pairs = {(each, rule) for each, rules in wanted.items() for rule in rules}
    assert set(columns_of(workspace, "s_matches", "id", "rule_id")) == pairs
    write(source, 160, 200)
    assert tag_stream(workspace, "s").rows == 40
    add_rules(workspace, ("new", "s", "text = 'v3'"))
    compile_scopes(workspace)
    retag(workspace, "s")
    again = dict(columns_of(workspace, "s_tagged", "id", "rule_ids"))
    assert {each for each, rules in again.items() if "new" in rules} == {
        n for n in kept(source) - refused if n % 5 == 3
    }
    assert tag_stream(workspace, "s", restart=True).rows == len(ids) + 40
    assert dict(columns_of(workspace, "s_tagged", "id", "rule_ids")) == again


def test_queries_leave_out_deleted_rows(tmp_path: Path, new_workspace: Any) -> None:
    for name in ("s", "watch"):
        write(tmp_path / name, 0, 40)
        delete_rows(tmp_path / name, 0, [1, 38, 39])
    lists = {"watch": {"source": str(tmp_path / "watch"), "column": "id"}}
    lake = new_workspace({"s": {"source": str(tmp_path / "s")}}, spark=False, lists=lists)
    assert execute(lake, "SELECT count(*), max(id) FROM s").to_pylist() == [{"count(1)": 37, "max(id)": 37}]
    assert execute(lake, "SELECT id FROM s WHERE id > 36").to_pylist() == [{"id": 37}]
    assert execute(lake, "SELECT id FROM s ORDER BY id LIMIT 2").to_pylist() == [{"id": 0}, {"id": 2}]
    assert execute(lake, "SELECT count(*) AS n FROM watch").to_pylist() == [{"n": 37}]
    with pytest.raises(NeedsSparkError, match="the feature deletionVectors"):
        execute(lake, "DELETE FROM watch WHERE id = 3")


@pytest.mark.parametrize("partition_by", [None, ["n"]])
def test_samples_leave_out_deleted_rows(tmp_path: Path, new_workspace: Any, partition_by: list[str] | None) -> None:
    source = tmp_path / "source"
    write(source, 0, 40, partition_by=partition_by)
    delete_rows(source, 0, range(10))
    stream = new_workspace({"s": {"source": str(source)}}, spark=False).configuration.streams["s"]
    schema = pa.schema({"id": pa.int64(), "n": pa.int64(), "text": pa.string()})
    rows = source_sample(stream, schema)(["text", "id", "n"])
    assert rows is not None and rows.column_names == ["text", "id", "n"]
    ids = kept(source)
    assert sorted(zip(*rows.to_pydict().values(), strict=True)) == sorted((f"v{n % 5}", n, n % 3) for n in ids)
    known = source_values(stream, schema, ["id = 1 AND text = 'v1' AND n = 0"])
    assert (known["id"].low, known["id"].high, known["id"].rows) == (min(ids), max(ids), len(ids))
    assert known["text"].complete and known["text"].texts == {f"v{n % 5}" for n in ids}
    assert (known["n"].low, known["n"].high) == (0, 2)
    # a column that the source has lost since its columns were read
    assert source_sample(stream, schema.append(pa.field("gone", pa.int64())))(["id", "gone"]) is None


def test_fields_of_sampled_rows(tmp_path: Path, new_workspace: Any) -> None:
    source, values = tmp_path / "source", [{"x": {"y": "a"}}, {"x": {"y": "b"}}, {"x": None}, None]
    kind = pa.struct([("x", pa.struct([("y", pa.string())]))])
    write_deltalake(str(source), pa.table({"st": pa.array(values, kind)}))
    delete_rows(source, 0, [0])
    stream = new_workspace({"s": {"source": str(source)}}, spark=False).configuration.streams["s"]
    known = source_values(stream, pa.schema({"st": kind}), ["st.x.y = 'a'"])
    assert known["st.x.y"].texts == {"b"} and known["st.x.y"].rows == 3


@pytest.mark.slow
def test_deleted_rows_are_not_joined(tmp_path: Path, new_workspace: Any, add_rules: Any) -> None:
    for name in ("s", "u"):
        write(tmp_path / name, 0, 80)
        delete_rows(tmp_path / name, 0, DELETED if name == "s" else [70, 71])
        write(tmp_path / name, 80, 100)
    streams = {name: {"source": str(tmp_path / name), "event_time": "t"} for name in ("s", "u")}
    joins = {"j": {"streams": ["s", "u"], "on": ["id"], "window": "1 s"}}
    workspace = new_workspace(streams, spark=False, runner="local", joins=joins)
    add_rules(workspace, ("odd", "j", "s.n = 1 AND u.id < 90"))
    compile_scopes(workspace)
    result = join_streams(workspace, "j")
    assert result.rows == len(kept(tmp_path / "s")) + len(kept(tmp_path / "u"))
    wanted = {each for each in kept(tmp_path / "s") & kept(tmp_path / "u") if each % 3 == 1 and each < 90}
    assert {ids for (ids,) in columns_of(workspace, "j_tagged", "s.id")} == wanted


@pytest.mark.slow
def test_deletion_vectors_of_later_commits_are_left_to_spark(
    tmp_path: Path, new_workspace: Any, add_rules: Any
) -> None:
    """As a RESTORE or a clone of a table writes them."""
    for name in ("s", "u"):
        write(tmp_path / name, 0, 30)
    streams = {name: {"source": str(tmp_path / name), "event_time": "t"} for name in ("s", "u")}
    joins = {"j": {"streams": ["s", "u"], "on": ["id"], "window": "1 s"}}
    workspace = new_workspace(streams, spark=False, runner="local", joins=joins)
    add_rules(workspace, ("odd", "s", "n = 1"), ("both", "j", "s.n = 1 AND u.id < 90"))
    compile_scopes(workspace)
    tag_stream(workspace, "s")
    join_streams(workspace, "j")
    write(tmp_path / "s", 30, 60)
    delete_rows(tmp_path / "s", 1, [3])
    with pytest.raises(PipelineError, match="has a deletion vector that was written with its rows"):
        tag_stream(workspace, "s")
    with pytest.raises(PipelineError, match="has a deletion vector that was written with its rows"):
        join_streams(workspace, "j")
    assert {each for (each,) in columns_of(workspace, "s_tagged", "id")} == set(range(30))
    # what is tagged from the start reads the files of a version
    assert tag_stream(workspace, "s", restart=True).rows == 59


@pytest.mark.parametrize("sample", [None, 100])
def test_deleted_rows_are_not_tried(tmp_path: Path, new_workspace: Any, sample: int | None) -> None:
    source = tmp_path / "source"
    write(source, 0, 160, partition_by=["n"])
    delete_rows(source, 0, [0, *range(16, 32)])
    workspace = new_workspace({"s": {"source": str(source), "event_time": "t"}}, spark=False, runner="local")
    ids = kept(source)
    candidates = [Candidate("odd", "n = 1"), Candidate("all", "TRUE")]
    found = backtest(workspace, "s", candidates, sample=sample)
    if sample is None:
        assert [each.matches for each in found.rules] == [sum(n % 3 == 1 for n in ids), len(ids)]
        since = backtest(workspace, "s", candidates, since="1970-01-01T00:01:00Z")
        assert [each.matches for each in since.rules] == [
            sum(n % 3 == 1 and n >= 60 for n in ids),
            sum(n >= 60 for n in ids),
        ]
    assert (found.rows == len(ids)) == (sample is None) and found.sampled == (sample is not None)
    assert found.rules[1].matches == found.rows
    examples = {each["row"]["t"].timestamp() for rule in found.rules for each in rule.examples}
    assert examples <= set(ids)


def test_deletion_vectors_of_too_many_rows_are_left_to_spark(
    tmp_path: Path, new_workspace: Any, add_rules: Any
) -> None:
    """delta-rs panics at them. Spark may read them, so `status` names no problem."""
    source = tmp_path / "source"
    for start in (0, 30):
        write(source, start, start + 30)
    stream = {"source": str(source)}
    workspace = new_workspace({"s": stream}, spark=False, runner="local")
    add_rules(workspace, *RULES)
    compile_scopes(workspace)
    delete_rows(source, 1, [3])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deletion_vectors, "_MOST_MASKED", 59)
        with pytest.raises(PipelineError, match="has deletion vectors and more than 59 rows"):
            tag_stream(workspace, "s")
        assert _obstacle(workspace.configuration.stream("s"), Position(1, 1, snapshot=True), "deltatag tag s") is None
    assert tag_stream(workspace, "s").rows == 59
