"""Joining streams through Spark: whatever arrives when, the table is Spark's own join filtered by the rules."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.compile import compile_scopes
from pipelines.due import join_is_due
from pipelines.errors import JoinChangedError, NoIndexError, SourceChangedError, SourceError, SparkRuledOutError
from pipelines.join import join_streams, join_together
from pipelines.joining import joiner as joiner_module
from pipelines.joining import partitioning, shuffle, shuffled_rows
from pipelines.lake.runs import batches
from pipelines.recovery import micro_batch
from pipelines.settings.configuration import parse_configuration
from pipelines.status import status
from pipelines.workspace import Workspace
from tests.spark.random_scenarios import Scenario, counted
from tests.tables import columns_of

SCENARIOS = range(*map(int, os.environ.get("DELTATAG_JOIN_SCENARIOS", "3:4").split(":")))
COLUMNS = {"k": pa.int64(), "t": pa.timestamp("us", "UTC"), "v": pa.int64()}
STREAMS = {name: {"source": f"lake/{name}", "event_time": "t"} for name in ("a", "b")}
JOIN = {"j": {"streams": ["a", "b"], "on": ["k"], "window": {"a": "0 s", "b": "10 s"}}}


METHODS = pytest.mark.parametrize("method", ["batch", pytest.param("pdfa", marks=pytest.mark.soak)])
"""The method is the workers', and joins without a JVM try both."""
EITHER = pytest.mark.parametrize("runner", ["local", pytest.param("auto", marks=pytest.mark.soak)], indirect=True)
"""What is planned is the same for both runners: here through this process, and in `make soak` through Spark too."""


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
    rows = columns_of(workspace, "j_tagged", "a.v", "b.v", "rule_ids")
    return sorted((row[0], row[1], *row[2]) for row in rows)


@pytest.fixture
def prepared(make, add_rules):
    """A workspace with two streams, the join `j` of them and its rules."""

    def prepare(*rules: tuple[str, str], id_type: str = "string", **join):
        workspace = make(STREAMS, joins={"j": {**JOIN["j"], **join}}, id_type=id_type)
        append(workspace, "a", (1, 10, 100), (2, 10, 200), (None, 10, 300), (1, None, 400))
        append(workspace, "b", (1, 5, 1), (1, 0, 2), (1, 11, 3), (2, -1, 4), (None, 9, 5))
        add_rules(workspace, *((rule, "j", text) for rule, text in rules or (("all", "TRUE"),)))
        assert not [r.error for r in compile_scopes(workspace) if r.error]
        return workspace

    return prepare


@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize(
    ("seed", "methods"),
    [
        pytest.param(seed, methods, marks=[] if seed % 2 == turn else pytest.mark.soak)
        for seed in SCENARIOS
        for turn, methods in enumerate((("batch", "pdfa"), ("pdfa", "batch")))
    ],
)
def test_whatever_arrives_when_the_table_is_the_join(
    new_workspace, monkeypatch, seed: int, methods: tuple[str, str]
) -> None:
    scenario = Scenario(seed)
    joins = scenario.joins(methods)
    workspace = scenario.lake(new_workspace, joins)
    if seed % 2:
        # slices and several partitions, as if the rows were many
        monkeypatch.setattr(partitioning, "MIN_PARTITION_ROWS", 4)
    for batch in scenario.arrivals():
        scenario.append(workspace, batch)
        step = scenario.draw.choice(("", "", "planned", "written", "skipped"))
        if step == "skipped":
            continue
        if step:
            _run_and_die(workspace, list(joins), monkeypatch, step)
        else:
            # all of them together, or one that the others then lag behind
            _join_all(workspace, scenario.draw.choice((list(joins), ["j0"])))
    _join_all(workspace, list(joins))
    lake = workspace.lake.uri("x").removesuffix("/x")
    for number, name in enumerate(joins):
        assert not join_is_due(workspace, name)
        expected = counted(workspace.spark.sql(scenario.sql(lake, number, f"{name} ")))
        assert counted(read(workspace, f"{name}_tagged").select(*scenario.names, "rule_ids")) == expected


def _join_all(workspace, names: list[str]) -> None:
    _, failures = join_together(workspace, names)
    assert failures == {}


def _run_and_die(workspace, joins: list[str], monkeypatch, step: str) -> None:
    """A run whose process ends once it has planned, or once it has written."""
    with monkeypatch.context() as patch:

        def die(*_args, **_named):
            raise DiedError

        patch.setattr(joiner_module.Joiner, "execute", die) if step == "planned" else patch.setattr(
            micro_batch, "record_done", die
        )
        try:
            join_together(workspace, joins)
        except DiedError:
            return


@METHODS
def test_the_window_reaches_from_the_latest_row(prepared, method: str) -> None:
    workspace = prepared(("all", "TRUE"), ("few", "a.v + b.v < 102"), method=method)
    result = join_streams(workspace, "j")
    assert (result.batches, result.rows, result.joined, result.matches) == (1, 9, 2, 3)
    assert pairs(workspace) == [(100, 1, "all", "few"), (100, 2, "all")]
    assert result.source_versions == {"a": 0, "b": 0}
    assert join_streams(workspace, "j").batches == 0
    (batch,) = batches(workspace.lake, "j")
    assert (batch.rows, batch.matches, batch.state) == (9, 3, "done")


@pytest.mark.parametrize("runner", ["local", "auto"], indirect=True)
def test_a_time_that_is_very_far_stops_no_join(prepared) -> None:
    workspace = prepared(lateness="1 day")
    far = pa.array([-(2**63), 2**63 - 1, 9 * 10**18]).cast(COLUMNS["t"])
    for name in STREAMS:
        table = pa.table({"k": pa.array([1] * 3, COLUMNS["k"]), "t": far, "v": pa.array([7] * 3, COLUMNS["v"])})
        write_deltalake(workspace.configuration.streams[name].source, table, mode="append")
    join_streams(workspace, "j")
    append(workspace, "b", (1, 6, 9))
    join_streams(workspace, "j")
    assert [pair[:2] for pair in pairs(workspace)] == [(100, 1), (100, 2), (100, 9)]


@EITHER
def test_ids_may_be_numbers(make, add_rules) -> None:
    workspace = make(STREAMS, joins=JOIN, id_type="bigint")
    append(workspace, "a", (1, 10, 100))
    append(workspace, "b", (1, 5, 1))
    add_rules(workspace, (12, "j", "a.v = 100"), (3, "j", "b.v = 1"))
    compile_scopes(workspace)
    join_streams(workspace, "j")
    assert pairs(workspace) == [(100, 1, 3, 12)]


@EITHER
def test_new_rules_apply_to_rows_joined_after_them(prepared, make, add_rules) -> None:
    workspace = prepared()
    join_streams(workspace, "j")
    # the method may change too: both give the same joined rows
    workspace = make(STREAMS, joins={"j": {**JOIN["j"], "method": "pdfa"}})
    add_rules(workspace, ("late", "j", "b.v > 5"))
    compile_scopes(workspace, ["j"])
    append(workspace, "b", (1, 8, 9), (1, 3, 4))
    join_streams(workspace, "j")
    assert pairs(workspace) == [(100, 1, "all"), (100, 2, "all"), (100, 4, "all"), (100, 9, "all", "late")]


@EITHER
@METHODS
def test_rules_with_validity_bounds_follow_the_latest_time(make, add_rules, method: str) -> None:
    workspace = make(STREAMS, joins={"j": {**JOIN["j"], "window": "10 s", "method": method}})
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


@EITHER
@METHODS
def test_rows_that_come_too_late_are_in_quarantine(prepared, method: str) -> None:
    workspace = prepared(lateness="20 s", method=method)
    join_streams(workspace, "j")
    append(workspace, "b", (1, -9, 6), (1, -10, 7), (1, 9, 8))
    append(workspace, "a", (1, -11, 500))
    result = join_streams(workspace, "j")
    assert (result.rows, result.quarantined) == (4, 2)
    late = columns_of(workspace, "quarantine_j", "a.v", "b.v", "batch")
    assert sorted(late, key=str) == [(500, None, 1), (None, 7, 1)]
    assert pairs(workspace) == [(100, 1, "all"), (100, 2, "all"), (100, 8, "all")]


@METHODS
def test_rules_may_name_the_latest_time(prepared, method: str) -> None:
    workspace = prepared(
        ("after", "_event_time > timestamp_seconds(1700000010)"),
        ("second", "second(_event_time) = 30"),
        ("not a", "_event_time > a.t"),
        window="10 s",
        method=method,
    )
    join_streams(workspace, "j")
    # the 10th second behind 1.7 billion is second 30 of its minute
    assert pairs(workspace) == [(100, 1, "second"), (100, 2, "second"), (100, 3, "after", "not a")]


@EITHER
def test_lateness_bounds_how_far_back_files_are_read(prepared) -> None:
    workspace = prepared(lateness="20 s", window={"a": "0 s", "b": "1000 s"})
    append(workspace, "b", (1, -500, 50), (1, 3000, 60))
    join_streams(workspace, "j")
    # the late row would reach the second file of b, the other one reaches none of the first
    append(workspace, "a", (1, 100, 500), (1, 3001, 600))
    result = join_streams(workspace, "j")
    assert (result.quarantined, result.joined) == (1, 1)
    plan = batches(workspace.lake, "j")[-1].plan["sides"]
    assert plan["b"]["earlier_files"] == 1


OTHERWISE = [
    ({"window": "20 s"}, "window of b was 10 s, is"),
    ({"on": ["v"]}, "on of b was k, is v"),
    ({"streams": ["a", "b", "c"]}, "streams was"),
]


@pytest.mark.parametrize(
    ("runner", "changed", "what"),
    [
        *(("local", *each) for each in OTHERWISE),
        *(pytest.param("auto", *each, marks=pytest.mark.soak) for each in OTHERWISE),
    ],
    indirect=["runner"],
)
def test_a_join_that_is_defined_otherwise_begins_anew(prepared, make, changed, what: str) -> None:
    workspace = prepared()
    join_streams(workspace, "j")
    streams = {**STREAMS, "c": {"source": "lake/c", "event_time": "t"}}
    workspace = make(streams, joins={"j": {**JOIN["j"], "window": "10 s", **changed}})
    append(workspace, "c", (1, 10, 1))
    compile_scopes(workspace)
    assert join_is_due(workspace, "j")
    problems = [standing.problem for standing in status(workspace) if standing.scope == "j"]
    assert what in str(problems[0])
    with pytest.raises(JoinChangedError, match=rf"{what}.*deltatag join j --restart"):
        join_streams(workspace, "j")
    assert join_streams(workspace, "j", restart=True).batches == 2
    assert join_streams(workspace, "j").batches == 0


def test_joins_of_the_same_rows_share_them(new_workspace, add_rules, monkeypatch) -> None:
    joins = {
        "near": {"streams": ["a", "b"], "on": ["k"], "window": "2 s"},
        "far": {"streams": ["a", "b"], "on": ["K"], "window": "10 s", "method": "pdfa"},
        "other": {"streams": ["a", "b"], "on": ["v"], "window": "10 s"},
        "bare": {"streams": ["a", "b"], "on": ["k"], "window": "1 s"},
    }
    workspace = new_workspace(STREAMS, joins=joins)
    # several partitions and slices, as if the rows were many
    monkeypatch.setattr(partitioning, "MIN_PARTITION_ROWS", 4)
    append(workspace, "a", *((1, second, second) for second in range(0, 40, 4)))
    append(workspace, "b", *((1, second, second) for second in range(40)))
    add_rules(workspace, ("n", "near", "a.v > 10 AND b.v % 2 = 0"), ("f", "far", "soundex(CAST(b.v AS STRING)) = '39'"))
    add_rules(workspace, ("o", "other", "TRUE"))
    compile_scopes(workspace, ["near", "far", "other"])
    results, failures = join_together(workspace, ["near", "far", "other", "bare"])
    assert [result.join for result in results] == ["near", "far", "other"]
    assert list(failures) == ["bare"] and isinstance(failures["bare"], NoIndexError)
    found = {name: columns_of(workspace, f"{name}_tagged", "a.v", "b.v") for name in joins if name != "bare"}
    near = [(a, b) for a in range(12, 40, 4) for b in range(0, 40, 2) if abs(a - b) <= 2]
    assert sorted(found["near"]) == near
    assert sorted(found["far"]) == [(a, 39) for a in range(32, 40, 4)]
    assert sorted(found["other"]) == [(a, a) for a in range(0, 40, 4)]


def test_rows_that_no_rule_can_want_do_not_travel(prepared, monkeypatch) -> None:
    monkeypatch.setattr(partitioning, "MIN_PARTITION_ROWS", 4)
    travelled = []
    shuffled = shuffle.shuffled

    def watched(rows, *others):
        travelled.append(rows.select("a#v", "b#v").collect())
        return shuffled(rows, *others)

    monkeypatch.setattr(shuffled_rows, "shuffled", watched)
    workspace = prepared(("one", "a.v = 100 AND b.v < 3"), ("two", "b.v + a.v > 999 AND a.v = 1000 AND b.v = 7"))
    append(workspace, "b", *((1, 5, value) for value in range(20, 60)))
    join_streams(workspace, "j")
    assert sorted(map(tuple, travelled[0]), key=str) == [(100, None), (None, 1), (None, 2)]
    assert pairs(workspace) == [(100, 1, "one"), (100, 2, "one")]


def test_two_runs_at_once_write_each_joined_row_once(prepared, new_workspace) -> None:
    from concurrent.futures import ThreadPoolExecutor

    workspace = prepared()
    both = [new_workspace(STREAMS, joins=JOIN) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda one: join_streams(one, "j"), both))
    assert pairs(workspace) == [(100, 1, "all"), (100, 2, "all")]
    assert [(result.joined, result.matches) for result in results if result.batches] in ([(2, 2)], [(2, 2)] * 2)
    assert len(batches(workspace.lake, "j")) == 1


@EITHER
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


@EITHER
def test_changed_sources_stop_the_join_and_restart_begins_anew(prepared) -> None:
    workspace = prepared()
    join_streams(workspace, "j")
    DeltaTable(workspace.configuration.streams["b"].source).delete("v = 1")
    with pytest.raises(SourceChangedError, match="join j --restart"):
        join_streams(workspace, "j")
    result = join_streams(workspace, "j", restart=True)
    assert (result.joined, pairs(workspace)) == (1, [(100, 2, "all")])


@EITHER
def test_rewritten_files_that_are_gone_need_row_tracking(prepared) -> None:
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
    document = {"lake": {"root": "lake", "runner": "local"}, "streams": STREAMS, "joins": JOIN}
    local = Workspace(parse_configuration(document, workspace.configuration.path))
    with pytest.raises(
        SparkRuledOutError, match=r"^j needs Spark because the earlier rows of b are identified by row tracking"
    ):
        join_streams(local, "j")
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
