"""Joining streams through Spark: whatever arrives when, the table is Spark's own join filtered by the rules."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines import join as join_module
from pipelines import shuffle
from pipelines.compile import compile_scopes
from pipelines.errors import SourceChangedError, SourceError
from pipelines.join import join_is_due, join_streams
from pipelines.runs import batches
from tests.spark.random_scenarios import Scenario, counted

SCENARIOS = range(*map(int, os.environ.get("DELTATAG_JOIN_SCENARIOS", "2:5").split(":")))
COLUMNS = {"k": pa.int64(), "t": pa.timestamp("us", "UTC"), "v": pa.int64()}
STREAMS = {name: {"source": f"lake/{name}", "event_time": "t"} for name in ("a", "b")}
JOIN = {"j": {"streams": ["a", "b"], "on": ["k"], "window": {"a": "0 s", "b": "10 s"}}}


class DiedError(BaseException):
    """Stands for the end of the process: no `except Exception` may catch it."""


def append(workspace, name: str, *rows: tuple[int | None, int | None, int]) -> None:
    """Rows of a key, a second and a value."""
    times = [None if row[1] is None else datetime.fromtimestamp(1_700_000_000 + row[1], UTC) for row in rows]
    columns = [[row[0] for row in rows], times, [row[2] for row in rows]]
    table = pa.table({c: pa.array(v, kind) for (c, kind), v in zip(COLUMNS.items(), columns, strict=True)})
    write_deltalake(workspace.configuration.streams[name].source, table, mode="append")


def read(workspace, name: str):
    return workspace.spark.read.format("delta").load(workspace.lake.uri(name))


def pairs(workspace) -> list[tuple]:
    rows = read(workspace, "j_tagged").select("a.v", "b.v", "rule_ids").collect()
    return sorted((row[0], row[1], *row[2]) for row in rows)


@pytest.fixture
def prepared(new_workspace, add_rules):
    """A workspace with two streams, the join `j` of them and its rules."""

    def prepare(*rules: tuple[str, str], id_type: str = "string", **join):
        workspace = new_workspace(STREAMS, joins={"j": {**JOIN["j"], **join}}, id_type=id_type)
        append(workspace, "a", (1, 10, 100), (2, 10, 200), (None, 10, 300), (1, None, 400))
        append(workspace, "b", (1, 5, 1), (1, 0, 2), (1, 11, 3), (2, -1, 4), (None, 9, 5))
        add_rules(workspace, *((rule, "j", text) for rule, text in rules or (("all", "TRUE"),)))
        assert not [r.error for r in compile_scopes(workspace) if r.error]
        return workspace

    return prepare


@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("seed", SCENARIOS)
def test_whatever_arrives_when_the_table_is_the_join(new_workspace, add_rules, monkeypatch, seed: int) -> None:
    scenario = Scenario(seed)
    workspace = new_workspace(scenario.streams(), joins={"j": scenario.join()}, rules={"time_zone": "America/New_York"})
    for name in scenario.names:
        write_deltalake(workspace.configuration.streams[name].source, scenario.table(name, 0))
    add_rules(workspace, *((rule, "j", text) for rule, text in scenario.rules.items()))
    (result,) = compile_scopes(workspace, ["j"])
    assert (result.error, result.rejects) == (None, 0)
    if seed % 2:
        # slices and several partitions, as if the rows were many
        monkeypatch.setattr(shuffle, "FEW_ROWS", 4)
    for batch in scenario.arrivals():
        for name, table in batch.items():
            write_deltalake(workspace.configuration.streams[name].source, table, mode="append")
        if scenario.draw.random() < 0.2:
            name = scenario.draw.choice(scenario.names)
            DeltaTable(workspace.configuration.streams[name].source).optimize.compact()
        step = scenario.draw.choice(("", "", "planned", "written", "skipped"))
        if step == "skipped":
            continue
        if step:
            _run_and_die(workspace, monkeypatch, step)
        else:
            join_streams(workspace, "j")
    join_streams(workspace, "j")
    assert not join_is_due(workspace, "j")
    lake = workspace.lake.uri("x").removesuffix("/x")
    expected = counted(workspace.spark.sql(scenario.sql(lake)))
    assert counted(read(workspace, "j_tagged").select(*scenario.names, "rule_ids")) == expected


def _run_and_die(workspace, monkeypatch, step: str) -> None:
    """A run whose process ends once it has planned, or once it has written."""
    with monkeypatch.context() as patch:

        def die(*_args, **_named):
            raise DiedError

        patch.setattr(join_module._Joiner, "_execute", die) if step == "planned" else patch.setattr(
            join_module, "record_done", die
        )
        try:
            join_streams(workspace, "j")
        except DiedError:
            return


def test_the_window_reaches_from_the_latest_row(prepared) -> None:
    workspace = prepared(("all", "TRUE"), ("few", "a.v + b.v < 102"))
    result = join_streams(workspace, "j")
    assert (result.batches, result.rows, result.joined, result.matches) == (1, 9, 2, 3)
    assert pairs(workspace) == [(100, 1, "all", "few"), (100, 2, "all")]
    assert result.source_versions == {"a": 0, "b": 0}
    assert join_streams(workspace, "j").batches == 0
    (batch,) = batches(workspace.lake, "j")
    assert (batch.rows, batch.matches, batch.state) == (9, 3, "done")


def test_ids_may_be_numbers(new_workspace, add_rules) -> None:
    workspace = new_workspace(STREAMS, joins=JOIN, id_type="bigint")
    append(workspace, "a", (1, 10, 100))
    append(workspace, "b", (1, 5, 1))
    add_rules(workspace, (12, "j", "a.v = 100"), (3, "j", "b.v = 1"))
    compile_scopes(workspace)
    join_streams(workspace, "j")
    assert pairs(workspace) == [(100, 1, 3, 12)]


def test_new_rules_apply_to_rows_joined_after_them(prepared, add_rules) -> None:
    workspace = prepared()
    join_streams(workspace, "j")
    add_rules(workspace, ("late", "j", "b.v > 5"))
    compile_scopes(workspace, ["j"])
    append(workspace, "b", (1, 8, 9), (1, 3, 4))
    join_streams(workspace, "j")
    assert pairs(workspace) == [(100, 1, "all"), (100, 2, "all"), (100, 4, "all"), (100, 9, "all", "late")]


def test_rules_with_validity_bounds_follow_the_latest_time(new_workspace, add_rules) -> None:
    workspace = new_workspace(STREAMS, joins={"j": {**JOIN["j"], "window": "10 s"}})
    append(workspace, "a", (1, 10, 100), (1, 20, 200))
    append(workspace, "b", (1, 15, 1))
    bound = datetime.fromtimestamp(1_700_000_015, UTC)
    add_rules(
        workspace,
        {"rule_id": "until", "scope": "j", "expression": "TRUE", "valid_to": bound},
        {"rule_id": "from", "scope": "j", "expression": "TRUE", "valid_from": bound},
    )
    compile_scopes(workspace)
    join_streams(workspace, "j")
    assert pairs(workspace) == [(100, 1, "from"), (200, 1, "from")]


def test_rows_that_come_too_late_are_in_quarantine(prepared) -> None:
    workspace = prepared(lateness="20 s")
    join_streams(workspace, "j")
    append(workspace, "b", (1, -9, 6), (1, -10, 7), (1, 9, 8))
    append(workspace, "a", (1, -11, 500))
    result = join_streams(workspace, "j")
    assert (result.rows, result.quarantined) == (4, 2)
    late = read(workspace, "quarantine_j").select("a.v", "b.v", "batch").collect()
    assert sorted(map(tuple, late), key=str) == [(500, None, 1), (None, 7, 1)]
    assert pairs(workspace) == [(100, 1, "all"), (100, 2, "all"), (100, 8, "all")]


def test_two_runs_at_once_write_each_joined_row_once(prepared, new_workspace) -> None:
    from concurrent.futures import ThreadPoolExecutor

    workspace = prepared()
    both = [new_workspace(STREAMS, joins=JOIN) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda one: join_streams(one, "j"), both))
    assert pairs(workspace) == [(100, 1, "all"), (100, 2, "all")]
    assert [(result.joined, result.matches) for result in results if result.batches] in ([(2, 2)], [(2, 2)] * 2)
    assert len(batches(workspace.lake, "j")) == 1


def test_files_that_cannot_join_are_not_read(prepared) -> None:
    workspace = prepared()
    for second in range(1000, 5000, 1000):
        append(workspace, "b", (1, second, second))
    join_streams(workspace, "j")
    append(workspace, "a", (1, 3004, 600), (1, 3005, 700))
    join_streams(workspace, "j")
    assert (600, 3000, "all") in pairs(workspace) and (700, 3000, "all") in pairs(workspace)
    plan = batches(workspace.lake, "j")[-1].plan["sides"]
    assert plan["b"]["earlier_files"] == 1 and plan["b"]["read_share"] < 0.3
    assert plan["a"]["earlier_files"] == 0


def test_changed_sources_stop_the_join_and_restart_begins_anew(prepared) -> None:
    workspace = prepared()
    join_streams(workspace, "j")
    workspace.spark.sql(f"DELETE FROM delta.`{workspace.configuration.streams['b'].source}` WHERE v = 1")
    with pytest.raises(SourceChangedError, match="join j --restart"):
        join_streams(workspace, "j")
    result = join_streams(workspace, "j", restart=True)
    assert (result.joined, pairs(workspace)) == (1, [(100, 2, "all")])


def test_rewritten_files_that_are_gone_need_row_tracking(prepared, spark) -> None:
    workspace = prepared()
    source = workspace.configuration.streams["b"].source
    append(workspace, "b", (1, 6, 10))
    join_streams(workspace, "j")
    DeltaTable(source).optimize.compact()
    DeltaTable(source).vacuum(0, dry_run=False, enforce_retention_duration=False)
    append(workspace, "a", (1, 11, 800))
    with pytest.raises(SourceError, match="row tracking"):
        join_streams(workspace, "j")
    assert pairs(workspace) == [(100, 1, "all"), (100, 2, "all"), (100, 10, "all")]


def test_row_tracking_tells_rows_apart_in_rewritten_files(new_workspace, add_rules, spark) -> None:
    workspace = new_workspace(STREAMS, joins=JOIN)
    source = workspace.configuration.streams["b"].source
    columns = "k BIGINT, t TIMESTAMP, v BIGINT"
    spark.sql(f"CREATE TABLE delta.`{source}` ({columns}) USING DELTA TBLPROPERTIES (delta.enableRowTracking = true)")
    insert = f"INSERT INTO delta.`{source}` VALUES (1, timestamp_seconds(1700000000 + {{}}), {{}})"
    spark.sql(insert.format(5, 1))
    append(workspace, "a", (1, 10, 100))
    add_rules(workspace, ("all", "j", "TRUE"))
    compile_scopes(workspace)
    join_streams(workspace, "j")
    spark.sql(insert.format(6, 2))
    join_streams(workspace, "j")
    spark.sql(f"OPTIMIZE delta.`{source}`")
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.sql(f"VACUUM delta.`{source}` RETAIN 0 HOURS")
    spark.sql(insert.format(7, 3))
    spark.sql(f"OPTIMIZE delta.`{source}`")
    append(workspace, "a", (1, 11, 200))
    join_streams(workspace, "j")
    assert pairs(workspace) == [(a, b, "all") for a in (100, 200) for b in (1, 2, 3)]


def test_columns_that_a_source_gains_are_joined_too(prepared, spark) -> None:
    workspace = prepared()
    join_streams(workspace, "j")
    rows = spark.sql("SELECT 1L AS k, timestamp_seconds(1700000007) AS t, 11L AS v, map('x', array(1.5)) AS extra")
    source = workspace.configuration.streams["b"].source
    rows.write.format("delta").mode("append").option("mergeSchema", "true").save(source)
    join_streams(workspace, "j")
    found = read(workspace, "j_tagged").filter("b.v = 11").select("a.v", "b.extra").collect()
    assert [(row[0], list(row[1])) for row in found] == [(100, ["x"])]
