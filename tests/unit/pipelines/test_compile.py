"""Rules table to index without a JVM: what is compiled, refused, kept and written."""

from __future__ import annotations

import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import rules_index as ri
from deltatag.lines import compile_line
from pipelines.compile import compile_scopes
from pipelines.compiling.due import compile_is_due
from pipelines.errors import IndexDamagedError, TableError
from pipelines.lake.index_store import fetch_index, newest_index, read_index, update_statistics
from pipelines.table_definitions import CHUNK_BYTES

STREAM = {"s": {"source": "lake/source", "event_time": "t"}}


@pytest.fixture
def workspace(new_workspace):
    found = new_workspace(STREAM, spark=False)
    rows = pl.DataFrame({"x": [1, 2], "s": ["a", None]}).with_columns(t=pl.datetime(2024, 1, 1, time_zone="UTC"))
    rows.write_delta(found.configuration.streams["s"].source)
    return found


def table(workspace, name: str) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(workspace.lake.arrow(name)))


def test_a_scope_without_rules_gets_an_empty_index(workspace) -> None:
    (result,) = compile_scopes(workspace)
    assert (result.state, result.rules) == ("compiled", 0)
    stored = newest_index(workspace.lake, "s")
    assert stored is not None
    assert len(ri.load(fetch_index(workspace.lake, stored))) == 0


def test_the_stored_index_matches(workspace, add_rules) -> None:
    add_rules(workspace, ("a", "s", "x > 1"), ("b", "s", "s IS NULL"), ("c", "s", "s = 'a'"))
    (result,) = compile_scopes(workspace)
    assert (result.state, result.rules, result.rejects, result.rules_version) == ("compiled", 3, 0, 1)
    compiled = ri.loads(read_index(workspace.lake, newest_index(workspace.lake, "s")))
    assert compiled.match(pl.DataFrame({"x": [1, 2], "s": ["a", None]})).to_pylist() == [["c"], ["a", "b"]]


@pytest.mark.slow
def test_another_time_zone_is_told(new_workspace, workspace, add_rules) -> None:
    """Two configurations of one lake that differ in it compile in turn for ever."""
    add_rules(workspace, ("a", "s", "x > 1"), ("b", "s", "hour(t) > 1"))
    other = new_workspace(STREAM, {"time_zone": "Asia/Tokyo"}, spark=False)
    (first,) = compile_scopes(workspace)
    assert first.notices == ()
    for again, zones in ((other, ("UTC", "Asia/Tokyo")), (workspace, ("Asia/Tokyo", "UTC"))):
        assert compile_is_due(again, "s")
        (result,) = compile_scopes(again)
        (notice,) = result.notices
        assert "time_zone = {} before, and now with {}".format(*zones) in notice and "another configuration" in notice
        assert notice in compile_line(result).replace("\n", " ")
        assert compile_scopes(again)[0].notices == ()


def test_the_stored_index_is_compressed_and_has_no_copies_of_itself(workspace, add_rules) -> None:
    add_rules(workspace, ("a", "s", "x > 1"))
    for force in (False, True):
        compile_scopes(workspace, force=force)
        (file,) = workspace.lake.delta("rule_index").file_uris()
        group = pq.read_metadata(file).row_group(0)
        (data,) = (c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "data")
        assert (data.compression, data.statistics) == ("ZSTD", None)


@pytest.mark.slow
def test_the_configured_engine_is_stored_and_another_can_be_tried(new_workspace, add_rules) -> None:
    streams = {"s": {"source": "lake/source"}, "t": {"source": "lake/source", "engine": "r_tree"}}
    workspace = new_workspace(streams, {"engine": "cei"}, spark=False)
    pl.DataFrame({"x": [1, 2]}).write_delta(workspace.configuration.streams["s"].source)
    add_rules(workspace, *((f"{scope}{i}", scope, f"x > {i} AND x < {i + 5}") for scope in "st" for i in range(20)))
    assert [each.engine for each in compile_scopes(workspace)] == ["cei", "r_tree"]
    stored = newest_index(workspace.lake, "s")
    assert stored is not None and stored.engine == "cei" and stored.statistics["structure"]["constructs"] > 0
    assert [each.state for each in compile_scopes(workspace)] == ["unchanged"] * 2
    (tried,) = compile_scopes(workspace, ["s"], engine="be_tree")
    assert (tried.state, tried.engine, tried.fingerprint) == ("compiled", "be_tree", stored.fingerprint)
    found = newest_index(workspace.lake, "s")
    assert found is not None and ri.loads(read_index(workspace.lake, found)).engine == "be_tree"
    assert compile_is_due(workspace, "s") and not compile_is_due(workspace, "t")
    assert [each.engine for each in compile_scopes(workspace)] == ["cei", "r_tree"]
    assert not compile_is_due(workspace, "s")


def test_rows_of_the_source_decide_the_engine(workspace, add_rules) -> None:
    rows = pl.DataFrame({"x": range(5_000), "s": ["a"] * 5_000, "p": [1, 2] * 2_500})
    rows = rows.with_columns(t=pl.datetime(2024, 1, 1, time_zone="UTC"))
    source = workspace.configuration.streams["s"].source
    write_deltalake(source, rows.to_arrow(), mode="overwrite", partition_by=["p"], schema_mode="overwrite")
    add_rules(workspace, ("a", "s", "x > 1 AND p = 2 AND t > TIMESTAMP '2023-01-01'"))
    compile_scopes(workspace)
    assert newest_index(workspace.lake, "s").statistics["sampled_rows"] == 4_096


def test_each_rule_that_is_refused_is_told_apart(workspace, add_rules) -> None:
    add_rules(
        workspace,
        ("good", "s", "x > 1"),
        ("column", "s", "y > 1"),
        ("syntax", "s", "x > > 1"),
        ("scope", "ss", "x > 1"),
        ("twice", "s", "x = 1"),
        ("twice", "other", "x = 2"),
        ("null", "s", None),
        (None, "s", "x = 1"),
        ("nowhere", None, "x = 1"),
        {"rule_id": "off", "scope": "s", "expression": "rubbish", "enabled": False},
        {"rule_id": "good", "scope": "s", "expression": "rubbish", "enabled": False},
    )
    (result,) = compile_scopes(workspace)
    assert (result.state, result.rules, result.rejects) == ("compiled", 6, 5)
    found = table(workspace, "rule_rejects").sort("rule_id", "scope", nulls_last=True)
    assert found.select("rule_id", "scope", "error").rows() == [
        ("column", "s", "UNKNOWN_COLUMN"),
        ("nowhere", None, "MISSING_VALUE"),
        ("null", "s", "MISSING_VALUE"),
        ("scope", "ss", "UNKNOWN_SCOPE"),
        ("syntax", "s", "SYNTAX"),
        ("twice", "other", "DUPLICATE_ID"),
        ("twice", "s", "DUPLICATE_ID"),
        (None, "s", "MISSING_VALUE"),
    ]
    assert found["rules_version"].unique().to_list() == [1]
    assert found.filter(pl.col("rule_id") == "column")["position"].item() == 0


def test_a_bounded_rule_needs_an_event_time(new_workspace, add_rules) -> None:
    workspace = new_workspace({"s": {"source": "lake/source"}}, spark=False)
    pl.DataFrame({"x": [1]}).write_delta(workspace.configuration.streams["s"].source)
    bound = pl.datetime(2024, 1, 1, time_zone="UTC")
    rule = {"rule_id": "r", "scope": "s", "expression": "x = 1", "valid_from": pl.select(bound).item()}
    add_rules(workspace, rule)
    compile_scopes(workspace)
    assert table(workspace, "rule_rejects")["error"].to_list() == ["NO_EVENT_TIME"]


def test_nothing_new_writes_nothing(workspace, add_rules) -> None:
    add_rules(workspace, ("a", "s", "x > 1"), ("bad", "s", "y > 1"))
    assert compile_is_due(workspace, "s")
    first = compile_scopes(workspace)[0]
    versions = {name: workspace.lake.version(name) for name in ("rule_index", "rule_rejects")}
    assert not compile_is_due(workspace, "s")
    again = compile_scopes(workspace)[0]
    assert (again.state, again.fingerprint, again.rejects) == ("unchanged", first.fingerprint, 1)
    assert {name: workspace.lake.version(name) for name in versions} == versions


def assert_settled_without_a_new_index(workspace, scope: str, rejected: int) -> None:
    """The scope is due; one compile, which gives the stored index, ends that, and a further one writes nothing."""
    assert compile_is_due(workspace, scope)
    before = newest_index(workspace.lake, scope)
    (result,) = compile_scopes(workspace, [scope])
    assert (result.state, result.fingerprint, result.rejects) == ("unchanged", before.fingerprint, rejected)
    assert not compile_is_due(workspace, scope)
    stored = newest_index(workspace.lake, scope)
    assert (stored.statistics["rejected"], stored.created_at) == (rejected, before.created_at)
    assert ri.loads(read_index(workspace.lake, stored)).fingerprint == before.fingerprint
    versions = {name: workspace.lake.version(name) for name in ("rule_index", "rule_rejects")}
    assert compile_scopes(workspace, [scope])[0].state == "unchanged"
    assert {name: workspace.lake.version(name) for name in versions} == versions


@pytest.mark.slow
def test_nothing_is_due_after_a_compile_that_refused_a_rule_and_found_no_other(workspace, add_rules) -> None:
    add_rules(workspace, ("a", "s", "x > 1"))
    compile_scopes(workspace)
    add_rules(workspace, ("bad", "s", "y > 1"))
    assert_settled_without_a_new_index(workspace, "s", 1)
    workspace.lake.delta("rules").delete("rule_id = 'bad'")
    assert_settled_without_a_new_index(workspace, "s", 0)


@pytest.mark.slow
def test_nothing_is_due_after_a_compile_of_an_edit_that_means_the_same(workspace, add_rules) -> None:
    add_rules(workspace, ("a", "s", "x > 1"), ("bad", "s", "y > 1"))
    compile_scopes(workspace)
    workspace.lake.delta("rules").update(new_values={"expression": "x > 1 "}, predicate="rule_id = 'a'")
    assert_settled_without_a_new_index(workspace, "s", 1)


def test_nothing_is_due_after_a_compile_with_a_column_that_no_rule_of_the_join_reads(new_workspace, add_rules) -> None:
    streams = {name: {"source": f"lake/{name}", "event_time": "t"} for name in ("a", "b")}
    joins = {"j": {"streams": ["a", "b"], "on": ["x"], "window": "1 h"}}
    workspace = new_workspace(streams, joins=joins, spark=False)
    rows = pl.DataFrame({"x": [1]}).with_columns(t=pl.datetime(2024, 1, 1, time_zone="UTC"))
    for stream in workspace.configuration.streams.values():
        rows.write_delta(stream.source)
    add_rules(workspace, ("r", "j", "a.x > 0 AND b.x < 5"))
    compile_scopes(workspace)
    rows = rows.with_columns(y=pl.lit("new"))
    write_deltalake(workspace.configuration.streams["a"].source, rows.to_arrow(), mode="append", schema_mode="merge")
    assert_settled_without_a_new_index(workspace, "j", 0)


def test_statistics_are_brought_up_to_date_once_beside_others_that_do_the_same(
    workspace, add_rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_rules(workspace, ("a", "s", "x > 1"))
    compile_scopes(workspace)
    stored = newest_index(workspace.lake, "s")
    read_before = workspace.lake.writable("rule_index")
    update_statistics(workspace.lake, stored, {"columns": {"it's": "int64"}})
    version = workspace.lake.version("rule_index")
    tables = iter([read_before, workspace.lake.writable("rule_index")])
    with monkeypatch.context() as patch:
        patch.setattr(workspace.lake, "writable", lambda name: next(tables))
        update_statistics(workspace.lake, stored, {"columns": {"it's": "other"}})
    assert next(tables, None) is None
    assert newest_index(workspace.lake, "s").statistics == {**stored.statistics, "columns": {"it's": "int64"}}
    assert workspace.lake.version("rule_index") == version


def test_a_rule_of_another_scope_changes_no_index(workspace, add_rules) -> None:
    add_rules(workspace, ("a", "s", "x > 1"))
    compile_scopes(workspace)
    version = workspace.lake.version("rule_index")
    add_rules(workspace, ("b", "elsewhere", "x > 1"))
    assert compile_scopes(workspace)[0].state == "unchanged"
    assert workspace.lake.version("rule_index") == version


@pytest.mark.slow
def test_a_new_column_changes_nothing_unless_a_rule_waits_for_it(workspace, add_rules) -> None:
    source = workspace.configuration.streams["s"].source
    add_rules(workspace, ("a", "s", "x > 1"))
    compile_scopes(workspace)
    pl.DataFrame({"x": [1], "y": [1]}).write_delta(source, mode="append", delta_write_options={"schema_mode": "merge"})
    assert not compile_is_due(workspace, "s")
    add_rules(workspace, ("b", "s", "z > 1"))
    compile_scopes(workspace)
    pl.DataFrame({"x": [1], "z": [1]}).write_delta(source, mode="append", delta_write_options={"schema_mode": "merge"})
    assert compile_is_due(workspace, "s")
    result = compile_scopes(workspace)[0]
    assert (result.state, result.rejects) == ("compiled", 0)


@pytest.mark.slow
def test_an_edit_and_its_undoing_give_the_newest_index_each_time(workspace, add_rules) -> None:
    add_rules(workspace, ("a", "s", "x > 1"))
    first = compile_scopes(workspace)[0]
    rules = workspace.lake.delta("rules")
    rules.update(new_values={"expression": "x > 5"})
    second = compile_scopes(workspace)[0]
    workspace.lake.delta("rules").update(new_values={"expression": "x > 1"})
    third = compile_scopes(workspace)[0]
    assert [r.state for r in (first, second, third)] == ["compiled"] * 3
    assert third.fingerprint == first.fingerprint != second.fingerprint
    stored = newest_index(workspace.lake, "s")
    assert (stored.fingerprint, stored.rules_version) == (first.fingerprint, 3)


def test_hold_keeps_the_last_good_index(new_workspace, workspace, add_rules) -> None:
    add_rules(workspace, ("a", "s", "x > 1"))
    good = compile_scopes(workspace)[0]
    holding = new_workspace(STREAM, {"on_reject": "hold"}, spark=False)
    add_rules(holding, ("b", "s", "x > 2"), ("bad", "s", "y > 1"))
    held = compile_scopes(holding)[0]
    assert (held.state, held.fingerprint, held.rejects) == ("held", good.fingerprint, 1)
    assert table(holding, "rule_rejects")["rule_id"].to_list() == ["bad"]


def test_too_many_rejects_fail_the_scope(new_workspace, workspace, add_rules) -> None:
    strict = new_workspace(STREAM, {"max_reject_share": 0.4}, spark=False)
    add_rules(strict, ("a", "s", "x > 1"), ("bad", "s", "y > 1"))
    result = compile_scopes(strict)[0]
    assert result.state == "failed"
    assert "1 of the 2 rules of s" in result.error
    assert newest_index(strict.lake, "s") is None
    assert table(strict, "rule_rejects")["rule_id"].to_list() == ["bad"]


def test_too_many_rejects_of_a_scope_that_was_compiled_fail_it_and_no_other(
    new_workspace, workspace, add_rules
) -> None:
    strict = new_workspace({**STREAM, "t": {"source": "lake/source"}}, {"max_reject_share": 0.4}, spark=False)
    add_rules(strict, ("a", "s", "x > 1"), ("b", "t", "x > 1"), ("far", "elsewhere", "x > 1"))
    assert [result.state for result in compile_scopes(strict)] == ["compiled", "compiled"]
    add_rules(strict, (None, "s", "x > 1"))
    assert (compile_is_due(strict, "s"), compile_is_due(strict, "t")) == (True, False)
    assert [result.state for result in compile_scopes(strict)] == ["failed", "unchanged"]
    strict.lake.delta("rules").delete("rule_id IS NULL")
    assert not compile_is_due(strict, "s")
    assert [result.state for result in compile_scopes(strict)] == ["unchanged", "unchanged"]


def test_a_missing_source_fails_its_scope_only(new_workspace, workspace) -> None:
    streams = {**STREAM, "gone": {"source": "lake/gone"}}
    results = compile_scopes(new_workspace(streams, spark=False))
    assert [(result.scope, result.state) for result in results] == [("s", "compiled"), ("gone", "failed")]
    assert "no Delta table at" in results[1].error


def test_one_scope_leaves_the_rejects_of_others(new_workspace, workspace, add_rules) -> None:
    both = new_workspace({**STREAM, "t": {"source": "lake/source"}}, spark=False)
    add_rules(both, ("a", "s", "y > 1"), ("b", "t", "y > 1"))
    compile_scopes(both)
    both.lake.delta("rules").delete("rule_id = 'a'")
    compile_scopes(both, ["s"])
    assert table(both, "rule_rejects")["rule_id"].to_list() == ["b"]


@pytest.mark.parametrize("how", ["bytes", "file"])
def test_a_damaged_index_is_found_and_compiled_anew(workspace, add_rules, how: str) -> None:
    add_rules(workspace, ("a", "s", "x > 1"))
    compile_scopes(workspace)
    stored = newest_index(workspace.lake, "s")
    if how == "bytes":
        rows = workspace.lake.arrow("rule_index").to_pylist()
        rows[0]["data"] = bytes([rows[0]["data"][0] ^ 1]) + rows[0]["data"][1:]
        schema = workspace.lake.arrow("rule_index").schema
        import pyarrow as pa

        write_deltalake(workspace.lake.uri("rule_index"), pa.Table.from_pylist(rows, schema), mode="overwrite")
    else:
        from pathlib import Path

        for path in Path(workspace.lake.uri("rule_index")).rglob("*.parquet"):
            path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(IndexDamagedError, match="deltatag compile s --force"):
        read_index(workspace.lake, stored)
    failed = compile_scopes(workspace)[0]
    assert failed.state == "failed"
    assert "damaged" in failed.error
    again = compile_scopes(workspace, ["s"], force=True)[0]
    assert again.state == "compiled"
    assert ri.loads(read_index(workspace.lake, newest_index(workspace.lake, "s"))).fingerprint == stored.fingerprint


@pytest.mark.slow
def test_a_large_index_is_stored_in_chunks(workspace, tmp_path) -> None:
    from pipelines.lake.index_store import store_index

    path = tmp_path / "index"
    data = bytes(range(256)) * (CHUNK_BYTES // 256 * 2 + 5)
    path.write_bytes(data)
    stored = store_index(workspace.lake, "s", 1, "f" * 64, "asc", path, {})
    assert stored.chunks == 3
    assert max(len(c) for c in workspace.lake.arrow("rule_index", ["data"])["data"].to_pylist()) == CHUNK_BYTES
    assert read_index(workspace.lake, newest_index(workspace.lake, "s")) == data


def test_a_rules_table_without_its_columns(workspace) -> None:
    write_deltalake(
        workspace.lake.uri("rules"), pl.DataFrame({"rule_id": ["a"]}), mode="overwrite", schema_mode="overwrite"
    )
    with pytest.raises(TableError, match="no column scope"):
        compile_scopes(workspace)


def test_a_source_with_a_column_of_ours_is_refused(new_workspace) -> None:
    workspace = new_workspace({"s": {"source": "lake/source"}}, spark=False)
    pl.DataFrame({"Rule_IDs": [1]}).write_delta(workspace.configuration.streams["s"].source)
    assert "Rule_IDs" in compile_scopes(workspace)[0].error


def test_bigint_ids(new_workspace, add_rules) -> None:
    workspace = new_workspace({"s": {"source": "lake/source"}}, id_type="bigint", spark=False)
    pl.DataFrame({"x": [1]}).write_delta(workspace.configuration.streams["s"].source)
    add_rules(workspace, (10, "s", "x = 1"), (9, "s", "x = 1"), (8, "s", "y = 1"))
    compile_scopes(workspace)
    compiled = ri.loads(read_index(workspace.lake, newest_index(workspace.lake, "s")))
    assert compiled.match(pl.DataFrame({"x": [1]})).to_pylist() == [[9, 10]]
    assert table(workspace, "rule_rejects")["rule_id"].to_list() == ["8"]
