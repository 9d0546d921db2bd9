"""Streams joined without a JVM: figures, times, what stands in the plan, and what is left to Spark."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.compile import compile_scopes
from pipelines.errors import (
    IndexOutdatedError,
    JoinChangedError,
    SourceChangedError,
    SourceError,
    SparkRuledOutError,
    TableError,
)
from pipelines.join import JoinResult, join_streams, join_together
from pipelines.joining.definition import definition_changes, definition_of
from pipelines.lake.folder_log import FolderLog
from pipelines.lake.index_store import newest_index, update_statistics
from pipelines.lake.runs import batches
from pipelines.settings.configuration import parse_configuration
from pipelines.workspace import Workspace
from quality.sources import as_joined
from quality.sources import suites as source_suites
from tests.unit.pipelines.random_local_joins import Killed

STREAMS = {name: {"source": f"lake/{name}", "event_time": "t"} for name in ("a", "b")}
JOIN = {"j": {"streams": ["a", "b"], "on": ["k"], "window": {"a": "0 s", "b": "10 s"}}}
FIRST = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def append(
    workspace: Workspace, name: str, *rows: tuple[Any, int | None, int], kind: pa.DataType | None = None
) -> None:
    """Rows of a key, a second and a value."""
    times = [None if row[1] is None else FIRST + timedelta(seconds=row[1]) for row in rows]
    columns = {
        "k": pa.array([row[0] for row in rows], kind or pa.int64()),
        "t": pa.array(times, pa.timestamp("us", "UTC")),
        "v": pa.array([row[2] for row in rows], pa.int64()),
    }
    write_deltalake(workspace.configuration.streams[name].source, pa.table(columns), mode="append")


@pytest.fixture
def prepared(new_workspace, add_rules):
    """Two streams, the join `j` of them and its rules."""

    def prepare(*rules: tuple[str, str], id_type: str = "string", kinds: Any = (None, None), **join: Any) -> Workspace:
        workspace = new_workspace(STREAMS, id_type=id_type, spark=False, joins={"j": {**JOIN["j"], **join}})
        append(workspace, "a", (1, 10, 100), (2, 10, 200), (None, 10, 300), (1, None, 400), kind=kinds[0])
        append(workspace, "b", (1, 5, 1), (1, 0, 2), (1, 11, 3), (2, -1, 4), (None, 9, 5), kind=kinds[1])
        add_rules(workspace, *((rule, "j", text) for rule, text in rules or (("all", "TRUE"),)))
        assert not [each.error for each in compile_scopes(workspace, ["j"]) if each.error]
        return workspace

    return prepare


def pairs(workspace: Workspace) -> list[tuple[Any, ...]]:
    rows = workspace.lake.arrow("j_tagged").to_pylist()
    return sorted((row["a"]["v"], row["b"]["v"], *row["rule_ids"]) for row in rows)


def local_only(workspace: Workspace) -> Workspace:
    """The same lake, with no way to Spark."""
    configuration = workspace.configuration
    joins = {name: {**JOIN["j"]} for name in configuration.joins}
    document = {"lake": {"root": "lake", "runner": "local"}, "streams": STREAMS, "joins": joins}
    return Workspace(parse_configuration(document, configuration.path))


def plan_and_die(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed before its first write to a table."""

    def die(*_arguments: Any) -> bool:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(FolderLog, "append", die)
        join_streams(workspace, "j")


def test_figures_and_ids_that_are_numbers(prepared) -> None:
    workspace = prepared((12, "a.v = 100"), (3, "b.v = 1"), id_type="bigint")
    result = join_streams(workspace, "j")
    assert (result.batches, result.rows, result.joined, result.matches) == (1, 9, 2, 3)
    assert pairs(workspace) == [(100, 1, 3, 12), (100, 2, 12)]
    assert result.source_versions == {"a": 0, "b": 0}
    assert join_streams(workspace, "j").batches == 0


def test_rules_with_validity_bounds_follow_the_latest_time(new_workspace, add_rules) -> None:
    workspace = new_workspace(STREAMS, spark=False, joins={"j": {**JOIN["j"], "window": "10 s"}})
    append(workspace, "a", (1, 10, 100), (1, 20, 200))
    append(workspace, "b", (1, 15, 1))
    bound = FIRST + timedelta(seconds=15)
    add_rules(
        workspace,
        {"rule_id": "until", "scope": "j", "expression": "TRUE", "valid_to": bound},
        {"rule_id": "from", "scope": "j", "expression": "_event_time > a.t", "valid_from": bound},
    )
    compile_scopes(workspace, ["j"])
    join_streams(workspace, "j")
    assert pairs(workspace) == [(100, 1, "from")]


@pytest.mark.slow
def test_no_row_is_late_that_a_source_held_when_the_join_began(new_workspace, add_rules) -> None:
    """However many micro-batches take them; and afterwards the latest time is that of all of them."""
    small = {name: {**stream, "max_bytes_per_batch": "1"} for name, stream in STREAMS.items()}
    joins = {"j": {**JOIN["j"], "lateness": "20 s"}}
    workspace = new_workspace(small, spark=False, joins=joins)
    seconds = (1000, 2000, 10)
    for second in seconds:
        append(workspace, "a", (1, second, second))
        append(workspace, "b", (1, second - 1, second))
    add_rules(workspace, ("all", "j", "TRUE"))
    compile_scopes(workspace, ["j"])
    held = [(second, second, "all") for second in sorted(seconds)]
    for restart in (False, True):
        assert join_streams(workspace, "j", restart=restart).batches >= 3
        assert (pairs(workspace), workspace.lake.arrow("quarantine_j").num_rows) == (held, 0)
    append(workspace, "a", (1, 1979, 1), (1, 1980, 2))
    join_streams(workspace, "j")
    assert [row["a"]["v"] for row in workspace.lake.arrow("quarantine_j").to_pylist()] == [1]
    told: list[str] = []
    workspace.progress = told.append
    shutil.rmtree(workspace.lake.uri("quarantine_j"))
    append(workspace, "a", (1, 2000, 3))
    join_streams(workspace, "j")
    (lost,) = (each for each in told if "quarantine" in each)
    assert "quarantine_j is gone, and with it the 1 rows" in lost and lost.endswith("deltatag join j --restart")


@pytest.mark.slow
def test_a_side_whose_start_is_in_the_future_takes_no_row_before_it(new_workspace, add_rules) -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    waiting = {**STREAMS, "b": {**STREAMS["b"], "start": later.isoformat(), "checks": {"never": "FALSE"}}}
    workspace = new_workspace(waiting, spark=False, joins=JOIN)
    append(workspace, "a", (1, 10, 100))
    append(workspace, "b", (1, 5, 1))
    add_rules(workspace, ("all", "j", "TRUE"))
    compile_scopes(workspace, ["j"])
    assert join_streams(workspace, "j").rows == 1
    append(workspace, "b", (1, 6, 2))
    stream, join = workspace.configuration.stream("b"), workspace.configuration.join("j")
    assert source_suites(workspace, as_joined(stream), join).measures["new_rows"] == 0
    assert join_streams(workspace, "j").batches == 0
    append(workspace, "b", (1, 7, 3))
    begun = {**STREAMS, "b": {**STREAMS["b"], "start": 2}}
    workspace = new_workspace(begun, spark=False, joins=JOIN)
    join_streams(workspace, "j")
    assert pairs(workspace) == [(100, 3, "all")]


@pytest.mark.slow
def test_the_latest_time_is_kept_while_there_is_no_lateness(new_workspace, add_rules) -> None:
    def joined(second: int, value: int, **settings: Any) -> JoinResult:
        """One more row, joined with these settings."""
        workspace = new_workspace(STREAMS, spark=False, joins={"j": {**JOIN["j"], **settings}})
        append(workspace, "a", (1, second, value))
        return join_streams(workspace, "j")

    workspace = new_workspace(STREAMS, spark=False, joins={"j": {**JOIN["j"], "lateness": "20 s"}})
    append(workspace, "a", (1, 1000, 1))
    append(workspace, "b", (1, 10, 1))
    add_rules(workspace, ("all", "j", "TRUE"))
    compile_scopes(workspace, ["j"])
    join_streams(workspace, "j")
    assert joined(10, 2).joined == 1
    assert joined(10, 3, lateness="20 s").quarantined == 1


@pytest.mark.slow
def test_a_restart_empties_the_table_and_joins_anew(prepared) -> None:
    workspace = prepared()
    join_streams(workspace, "j")
    append(workspace, "b", (1, 6, 9))
    DeltaTable(workspace.configuration.streams["b"].source).delete("v = 1")
    with pytest.raises(SourceChangedError, match="join j --restart"):
        join_streams(workspace, "j")
    assert join_streams(workspace, "j", restart=True).batches == 2
    assert pairs(workspace) == [(100, 2, "all"), (100, 9, "all")]


@pytest.mark.slow
def test_rows_of_which_runs_has_no_record_are_not_joined_once_more(prepared) -> None:
    workspace = prepared()
    join_streams(workspace, "j")
    held, workspace = pairs(workspace), Workspace(workspace.configuration)
    shutil.rmtree(workspace.lake.uri("runs"))
    workspace.lake.create("runs")
    with pytest.raises(TableError, match="j_tagged holds rows, and the table runs has no record"):
        join_streams(workspace, "j")
    assert pairs(workspace) == held
    join_streams(workspace, "j", restart=True)
    assert pairs(workspace) == held


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "message"), [("k", "The join j joins on b.k, but"), ("t", "The stream b has the event_time t, but")]
)
def test_a_restart_names_a_column_that_the_source_has_lost_and_empties_nothing(prepared, column, message) -> None:
    workspace = prepared()
    join_streams(workspace, "j")
    held, source = pairs(workspace), workspace.configuration.streams["b"].source
    rows = pa.table(DeltaTable(source).to_pyarrow_table())
    renamed = rows.rename_columns([f"old_{name}" if name == column else name for name in rows.column_names])
    write_deltalake(source, renamed, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(SourceError, match=f"{message} (the source of b|its source) has no such column"):
        join_streams(workspace, "j", restart=True)
    assert pairs(workspace) == held
    write_deltalake(source, rows, mode="overwrite", schema_mode="overwrite")
    join_streams(workspace, "j", restart=True)
    assert pairs(workspace) == held


@pytest.mark.slow
def test_a_restart_passes_over_a_change_at_the_start(prepared, new_workspace) -> None:
    workspace = prepared()
    DeltaTable(workspace.configuration.streams["b"].source).delete("v = 1")
    append(workspace, "b", (1, 6, 9))
    begun = {**STREAMS, "b": {**STREAMS["b"], "start": 1}}
    workspace = new_workspace(begun, spark=False, joins=JOIN)
    for restart in (False, True):
        with pytest.raises(SourceChangedError, match="a start after the change, without which a restart stops"):
            join_streams(workspace, "j", restart)
        join_streams(workspace, "j", restart, skip_changes=True)
        assert pairs(workspace) == [(100, 9, "all")]
    with pytest.raises(SourceChangedError):
        join_streams(workspace, "j", restart=True)
    join_streams(workspace, "j", skip_changes=True)
    assert pairs(workspace) == [(100, 9, "all")]


@pytest.mark.slow
def test_files_that_are_gone_after_a_start_need_another_start(prepared, new_workspace) -> None:
    begun = {**STREAMS, "b": {**STREAMS["b"], "start": 0}}
    prepared()
    workspace = new_workspace(begun, spark=False, joins=JOIN)
    append(workspace, "b", (1, 6, 9))
    join_streams(workspace, "j")
    held, source = pairs(workspace), DeltaTable(workspace.configuration.streams["b"].source)
    source.optimize.compact()
    source.vacuum(0, enforce_retention_duration=False, dry_run=False)
    append(workspace, "a", (2, 12, 500))
    for restart in (False, True):
        with pytest.raises(SourceError, match="--restart, after you have removed the start of b"):
            join_streams(workspace, "j", restart)
    workspace = new_workspace(STREAMS, spark=False, joins=JOIN)
    join_streams(workspace, "j", restart=True)
    assert pairs(workspace) == held


@pytest.mark.slow
def test_files_that_cannot_join_are_not_read(prepared) -> None:
    workspace = prepared()
    for second in range(1000, 5000, 1000):
        append(workspace, "b", (1, second, second))
    # bounds out of the log's commits, and out of what delta-rs tells of a checkpoint
    DeltaTable(workspace.configuration.streams["b"].source).create_checkpoint()
    join_streams(workspace, "j")
    append(workspace, "a", (1, 3004, 600), (1, 3005, 700))
    join_streams(workspace, "j")
    assert (600, 3000, "all") in pairs(workspace) and (700, 3000, "all") in pairs(workspace)
    plan = batches(workspace.lake, "j")[-1].plan["sides"]
    assert plan["b"]["earlier_files"] == 1 and plan["b"]["read_share"] < 0.3
    assert plan["a"]["earlier_files"] == 0
    assert 0 < plan["b"]["earlier_bytes"] < 10_000 and plan["a"]["earlier_bytes"] == 0


@pytest.mark.slow
def test_a_plan_of_which_nothing_is_written_takes_the_newest_rules(prepared, add_rules, monkeypatch) -> None:
    workspace = prepared(("low", "a.v = 100"))
    plan_and_die(workspace, monkeypatch)
    assert [batch.state for batch in batches(workspace.lake, "j")] == ["planned"]
    add_rules(workspace, ("high", "j", "b.v = 2"))
    compile_scopes(workspace, ["j"])
    assert join_streams(workspace, "j").batches == 1
    assert pairs(workspace) == [(100, 1, "low"), (100, 2, "high", "low")]


def test_rows_from_before_a_column_that_rules_name(new_workspace, add_rules, monkeypatch) -> None:
    """A micro-batch that was planned keeps its index. In a new one they have NULL there, as in `tag`."""
    streams = {name: {**stream, "max_bytes_per_batch": "1"} for name, stream in STREAMS.items()}
    workspace = new_workspace(streams, spark=False, joins=JOIN, runner="local")
    append(workspace, "a", (1, 10, 100))
    append(workspace, "b", (1, 5, 1))
    add_rules(workspace, ("all", "j", "TRUE"))
    compile_scopes(workspace, ["j"])
    join_streams(workspace, "j")
    for second in (6, 7):
        append(workspace, "b", (1, second, second))
    plan_and_die(workspace, monkeypatch)
    source = DeltaTable(workspace.configuration.streams["b"].source)
    widened = pa.table(source.to_pyarrow_table()).append_column("new", pa.array([1, 2, 3]))
    write_deltalake(source, widened, mode="append", schema_mode="merge")
    add_rules(workspace, ("new", "j", "b.new IS NULL"))
    compile_scopes(workspace, ["j"])
    join_streams(workspace, "j")
    again = [(100, 1, "all"), (100, 6, "all"), (100, 7, "all")]
    assert pairs(workspace) == sorted([(100, 1, "all"), (100, 6, "all"), (100, 7, "all", "new"), *again])


def test_a_join_that_is_defined_otherwise_begins_anew(prepared, new_workspace) -> None:
    workspace = prepared()
    join_streams(workspace, "j")
    workspace = new_workspace(STREAMS, spark=False, joins={"j": {**JOIN["j"], "window": "20 s"}})
    append(workspace, "b", (1, 9, 6))
    told = r"\(window of a was 0 s, is 20 s; window of b was 10 s, is 20 s\).*--restart"
    with pytest.raises(JoinChangedError, match=told):
        join_streams(workspace, "j")


def test_a_join_whose_stream_was_renamed_asks_for_a_compile(prepared, new_workspace) -> None:
    join_streams(prepared(("some", "a.v < 200")), "j")
    streams = {"renamed": STREAMS["a"], "b": STREAMS["b"]}
    join = {**JOIN["j"], "streams": ["renamed", "b"], "window": "1 s"}
    workspace = new_workspace(streams, spark=False, joins={"j": join})
    with pytest.raises(IndexOutdatedError, match=r"column a\.\w+ was .* it is gone\..* with: deltatag compile j"):
        join_streams(workspace, "j", restart=True)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"streams": ["b", "a"]}, "streams was a, b, is b, a"),
        ({"on": {"a": ["v"], "b": ["k"]}}, "on of a was k, is v"),
        ({"window": {"a": "90 min", "b": "0 s"}}, "window of a was 1 hour, is 90 min; window of b was 1 day, is 0 s"),
    ],
)
def test_a_changed_definition_is_told_as_the_configuration_has_it(new_workspace, change, told: str) -> None:
    def definition(**settings: Any) -> dict[str, Any]:
        window = {"a": "1 hour", "b": "1 day"}
        found = new_workspace(STREAMS, spark=False, joins={"j": {**JOIN["j"], "window": window, **settings}})
        return definition_of(found.configuration.join("j"), found.configuration.streams)

    assert definition_changes(definition(), definition(**change)) == told
    assert definition_changes(definition(), definition()) == ""


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        ((pa.decimal128(5, 2), pa.float64()), "only Spark compares the keys a.k, b.k"),
        ((pa.decimal128(38, 18), pa.decimal128(25, 0)), "only Spark compares the keys"),
    ],
)
def test_keys_that_only_spark_compares_are_told(prepared, kinds, told: str) -> None:
    with pytest.raises(SparkRuledOutError, match=told):
        join_streams(local_only(prepared(kinds=kinds)), "j")


def test_rules_that_only_spark_evaluates_stop_no_other_join(prepared, add_rules) -> None:
    workspace = prepared()
    document = {
        "lake": {"root": "lake", "runner": "local"},
        "streams": STREAMS,
        "joins": {"j": JOIN["j"], "i": JOIN["j"]},
    }
    both = Workspace(parse_configuration(document, workspace.configuration.path))
    add_rules(both, ("one", "i", "b.v = 1"))
    assert not compile_scopes(both, ["i"])[0].error
    stored = newest_index(both.lake, "j")
    assert stored is not None
    # as where a rule asks for Spark, which would have to be asked to compile it
    update_statistics(both.lake, stored, {"needs_spark": "only Spark evaluates soundex(a.w), of the rule sounds"})
    results, failures = join_together(both, ["j", "i"])
    assert [result.joined for result in results] == [1]
    assert list(failures) == ["j"]
    assert re.search('j needs Spark because only Spark evaluates soundex.*runner is "local"', str(failures["j"]))


def test_a_new_column_of_a_stream_is_a_further_field_of_the_join(prepared) -> None:
    join_streams(workspace := prepared(), "j")
    more = pa.table({"k": [1], "t": pa.array([FIRST], pa.timestamp("us", "UTC")), "v": [7], "extra": ["e"]})
    write_deltalake(workspace.configuration.streams["b"].source, more, mode="append", schema_mode="merge")
    joined = join_streams(local_only(workspace), "j").joined
    extra = [row["extra"] for row in workspace.lake.arrow("j_tagged")["b"].to_pylist()]
    assert joined == extra.count("e") == len(extra) - extra.count(None) > 0


def test_columns_may_be_named_like_those_that_deltatag_adds_to_streams(new_workspace, add_rules) -> None:
    workspace = local_only(new_workspace(STREAMS, spark=False, joins=JOIN))
    rows = pa.table({"k": [1], "t": pa.array([FIRST], pa.timestamp("us", "UTC")), "source_version": [7]})
    write_deltalake(workspace.configuration.streams["a"].source, rows)
    write_deltalake(workspace.configuration.streams["b"].source, rows.append_column("air_temp", pa.array([1.5])))
    add_rules(workspace, ("all", "j", "TRUE"))
    compile_scopes(workspace, ["j"])
    assert join_streams(workspace, "j").joined == 1
    assert sorted(workspace.lake.arrow("j_tagged")["b"].type.names) == ["air_temp", "k", "source_version", "t"]
