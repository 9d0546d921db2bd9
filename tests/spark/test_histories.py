"""Sources with a history of more than appends, and settings that change while micro-batches are unfinished."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines import tag
from pipelines.compile import compile_scopes
from pipelines.errors import JoinChangedError, RestartedError, SourceChangedError, SourceError
from pipelines.join import join_streams
from pipelines.joining import joiner
from pipelines.lake.runs import batches
from pipelines.tag import tag_stream
from pipelines.writing import spark_output
from tests.cases import soak_rest
from tests.tables import columns_of, rows_of

STREAM = {"source": "lake/source", "max_bytes_per_batch": 1}
STREAMS = {name: {"source": f"lake/{name}", "event_time": "t"} for name in ("a", "b")}
JOINS = {"j": {"streams": ["a", "b"], "on": ["k"], "window": "1 minute"}}
NEW_YEAR = datetime(2026, 1, 1, 0, 30, tzinfo=UTC)
TRACKED = "SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
MAPPED = "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"


class DiedError(BaseException):
    """Stands for the end of the process: no `except Exception` may catch it."""


def die(*_args, **_named):
    raise DiedError


def append(workspace, stream: str, **columns) -> None:
    write_deltalake(workspace.configuration.streams[stream].source, pa.table(columns), mode="append")


def numbers(workspace, *values: int) -> None:
    """One commit of rows for the stream s."""
    append(workspace, "s", x=pa.array(values, pa.int64()))


def row(workspace, stream: str, second: int) -> None:
    """A row of the key 1 for a side of the join; the second is its name, too."""
    instant = datetime.fromtimestamp(1_700_000_000 + second, UTC)
    append(workspace, stream, k=pa.array([1]), t=pa.array([instant], pa.timestamp("us", "UTC")), v=pa.array([second]))


def alter(workspace, stream: str, change: str) -> None:
    workspace.spark.sql(f"ALTER TABLE delta.`{workspace.configuration.streams[stream].source}` {change}")


def tagged(workspace) -> list[int]:
    return sorted(row["x"] for row in rows_of(workspace, "s_tagged"))


def joined(workspace) -> list[tuple[int, int]]:
    return sorted(columns_of(workspace, "j_tagged", "a.v", "b.v"))


EITHER = pytest.mark.parametrize("runner", ["local", pytest.param("auto", marks=pytest.mark.soak)], indirect=True)
"""What is planned is the same for both runners: here through this process, and in `make soak` through Spark too."""


@pytest.fixture
def workspace(make, add_rules):
    """A stream whose micro-batches have a file each, with a rule."""
    found = make({"s": STREAM})
    numbers(found, 0, 1, 2)
    add_rules(found, ("all", "s", "TRUE"))
    compile_scopes(found)
    return found


@pytest.fixture
def sides(make, add_rules):
    """Two streams and their join, with a row each and a rule."""

    def begin(**streams):
        found = make({name: {**STREAMS[name], **streams.get(name, {})} for name in STREAMS}, joins=JOINS)
        row(found, "a", 1)
        row(found, "b", 2)
        add_rules(found, ("all", "j", "TRUE"))
        assert not [each.error for each in compile_scopes(found) if each.error]
        return found

    return begin


def test_row_tracking_switched_on_within_the_first_load_loses_no_file(workspace, monkeypatch) -> None:
    numbers(workspace, 3, 4)
    numbers(workspace, 5)
    execute = tag._Tagger._execute

    def once(self, source, taken, batch, resumed):
        done = execute(self, source, taken, batch, resumed)
        monkeypatch.setattr(tag._Tagger, "_execute", die)
        return done

    monkeypatch.setattr(tag._Tagger, "_execute", once)
    with pytest.raises(DiedError):
        tag_stream(workspace, "s")
    monkeypatch.undo()
    alter(workspace, "s", TRACKED)
    tag_stream(workspace, "s")
    assert tagged(workspace) == list(range(6))


@pytest.mark.parametrize("optimized", soak_rest(1, [True, False]))
def test_row_tracking_switched_on_later_hides_no_earlier_row_from_a_join(sides, optimized: bool) -> None:
    workspace = sides()
    row(workspace, "a", 3)
    join_streams(workspace, "j")
    alter(workspace, "a", TRACKED)
    if optimized:
        workspace.spark.sql(f"OPTIMIZE delta.`{workspace.configuration.streams['a'].source}`")
    row(workspace, "b", 4)
    join_streams(workspace, "j")
    assert joined(workspace) == [(a, b) for a in (1, 3) for b in (2, 4)]


@EITHER
def test_restored_rows_are_not_taken_for_new_ones(workspace) -> None:
    source = DeltaTable(workspace.configuration.streams["s"].source)
    tag_stream(workspace, "s")
    source.delete()
    source.restore(0)
    numbers(workspace, 7)
    with pytest.raises(SourceChangedError, match="--skip-changes"):
        tag_stream(workspace, "s")
    tag_stream(workspace, "s", skip_changes=True)
    assert tagged(workspace) == [0, 1, 2, 7]


@pytest.mark.parametrize(
    ("runner", "character"),
    [
        *(("local", each) for each in ("\u2028", "\u2029", "\x85", "\n", "\r")),
        ("auto", "\u2028"),
        *(pytest.param("auto", each, marks=pytest.mark.soak) for each in ("\u2029", "\x85", "\n", "\r")),
    ],
    indirect=["runner"],
)
def test_no_character_of_a_text_ends_a_line_of_the_log(make, add_rules, character: str) -> None:
    workspace = make({"s": STREAM})
    append(workspace, "s", x=pa.array([1]), name=[f"a{character}b"])
    add_rules(workspace, ("all", "s", "TRUE"))
    compile_scopes(workspace)
    tag_stream(workspace, "s")
    append(workspace, "s", x=pa.array([2]), name=[f"c{character}d"])
    tag_stream(workspace, "s")
    assert tagged(workspace) == [1, 2]


@EITHER
def test_a_file_that_is_gone_is_the_failure_of_its_stream(make, add_rules) -> None:
    workspace = make({"s": {**STREAM, "key": ["x"]}})
    numbers(workspace, 0)
    add_rules(workspace, ("all", "s", "TRUE"))
    compile_scopes(workspace)
    for file in Path(workspace.configuration.streams["s"].source).glob("*.parquet"):
        file.unlink()
    with pytest.raises(SourceError, match="1 of the 1 files that s has to read next"):
        tag_stream(workspace, "s")


def test_a_join_reads_statistics_by_the_names_in_the_files(sides) -> None:
    """Where column mapping gives a name to another column, it stays the first one's in files and statistics."""
    workspace = sides()
    spark, source = workspace.spark, workspace.configuration.streams["a"].source
    alter(workspace, "a", MAPPED)
    alter(workspace, "a", "RENAME COLUMN t TO first")
    alter(workspace, "a", "ADD COLUMN t TIMESTAMP")
    compile_scopes(workspace)
    spark.sql(
        f"INSERT INTO delta.`{source}` (k, first, v, t) VALUES (1, '2001-01-01', 5, timestamp_seconds(1700000005))"
    )
    join_streams(workspace, "j")
    row(workspace, "b", 6)
    join_streams(workspace, "j")
    assert joined(workspace) == [(5, 2), (5, 6)]


@EITHER
def test_a_join_with_a_start_goes_on_behind_a_change_that_it_passed_over(sides) -> None:
    workspace = sides(a={"start": 0})
    join_streams(workspace, "j")
    DeltaTable(workspace.configuration.streams["a"].source).delete("v = 99")
    row(workspace, "a", 3)
    DeltaTable(workspace.configuration.streams["a"].source).delete("v = 3")
    with pytest.raises(SourceChangedError):
        join_streams(workspace, "j")
    join_streams(workspace, "j", skip_changes=True)
    row(workspace, "b", 4)
    join_streams(workspace, "j")
    assert {(1, 2), (1, 4)} <= set(joined(workspace))


@EITHER
def test_a_start_that_the_log_no_longer_holds_is_told(make, add_rules) -> None:
    workspace = make({"s": {**STREAM, "start": 0}})
    for number in range(3):
        numbers(workspace, number)
    table = DeltaTable(workspace.configuration.streams["s"].source)
    table.create_checkpoint()
    for version in range(2):
        (Path(table.table_uri.removeprefix("file://")) / "_delta_log" / f"{version:020d}.json").unlink()
    add_rules(workspace, ("all", "s", "TRUE"))
    compile_scopes(workspace)
    with pytest.raises(SourceError, match="later start"):
        tag_stream(workspace, "s")


@pytest.mark.parametrize("step", soak_rest(1, ["enter", "files"]))
def test_a_restart_while_another_run_writes_doubles_no_row(workspace, new_workspace, monkeypatch, step: str) -> None:
    numbers(workspace, 3, 4)
    other = new_workspace({"s": STREAM})
    method = {"files": "_write_files", "enter": "_enter"}[step]
    original = getattr(spark_output.Output, method)

    def meanwhile(self, *arguments):
        monkeypatch.undo()
        tag_stream(other, "s", restart=True)
        return original(self, *arguments)

    monkeypatch.setattr(spark_output.Output, method, meanwhile)
    with pytest.raises(RestartedError, match="restarted s"):
        tag_stream(workspace, "s")
    assert tagged(workspace) == list(range(5))
    assert [(batch.batch, batch.rows) for batch in batches(workspace.lake, "s")] == [(0, 0), (1, 0), (2, 3), (3, 2)]
    assert tag_stream(workspace, "s").batches == 0


@EITHER
def test_a_restart_while_another_run_joins_doubles_no_row(sides, monkeypatch) -> None:
    workspace = sides()
    original = joiner.Joiner._write

    def meanwhile(self, *arguments):
        monkeypatch.undo()
        join_streams(workspace, "j", restart=True)
        return original(self, *arguments)

    monkeypatch.setattr(joiner.Joiner, "_write", meanwhile)
    join_streams(workspace, "j")
    row(workspace, "b", 4)
    join_streams(workspace, "j")
    assert Counter(joined(workspace)) == Counter([(1, 2), (1, 4)])


def test_rules_keep_the_time_zone_that_they_were_compiled_with(new_workspace, add_rules) -> None:
    """One zone for what the index decides and for what Spark does, until the rules are compiled anew."""
    workspace = new_workspace({"s": {"source": "lake/source"}})
    append(workspace, "s", t=pa.array([NEW_YEAR], pa.timestamp("us", "UTC")))
    add_rules(
        workspace,
        ("literal", "s", "t >= TIMESTAMP'2026-01-01 00:00:00'"),
        ("function", "s", "date_format(t, 'H') = '0'"),
    )
    compile_scopes(workspace)
    elsewhere = new_workspace({"s": {"source": "lake/source"}}, rules={"time_zone": "America/New_York"})
    tag_stream(elsewhere, "s")
    assert [sorted(row["rule_ids"]) for row in rows_of(workspace, "s_tagged")] == [["function", "literal"]]
    assert elsewhere.spark.conf.get("spark.sql.session.timeZone") == "America/New_York"
    compile_scopes(elsewhere)
    append(workspace, "s", t=pa.array([NEW_YEAR], pa.timestamp("us", "UTC")))
    tag_stream(elsewhere, "s")
    assert sorted(sorted(row["rule_ids"]) for row in rows_of(workspace, "s_tagged")) == [
        [],
        ["function", "literal"],
    ]


@EITHER
def test_a_join_of_dates_refuses_another_time_zone(make, add_rules) -> None:
    day = {"k": pa.array([1]), "t": pa.array([NEW_YEAR.date()], pa.date32())}
    workspace = make(STREAMS, joins=JOINS)
    append(workspace, "a", **day)
    row(workspace, "b", 2)
    add_rules(workspace, ("all", "j", "TRUE"))
    compile_scopes(workspace)
    join_streams(workspace, "j")
    elsewhere = make(STREAMS, joins=JOINS, rules={"time_zone": "America/New_York"})
    join_streams(elsewhere, "j")
    compile_scopes(elsewhere)
    with pytest.raises(JoinChangedError, match="time_zone was UTC, is America/New_York"):
        join_streams(elsewhere, "j")


@pytest.mark.parametrize(
    ("runner", "written"),
    [("local", False), ("auto", True), pytest.param("auto", False, marks=pytest.mark.soak)],
    indirect=["runner"],
)
def test_compiling_by_force_keeps_what_an_unfinished_run_needs(
    workspace, add_rules, monkeypatch, written: bool
) -> None:
    """A micro-batch goes on with its index where a table holds some of it, else with the newest one."""
    if written:
        enter = spark_output.Output._enter
        monkeypatch.setattr(spark_output.Output, "_enter", lambda *given: [enter(*given), die()])
    else:
        monkeypatch.setattr(tag._Tagger, "_execute", die)
    with pytest.raises(DiedError):
        tag_stream(workspace, "s")
    monkeypatch.undo()
    add_rules(workspace, ("more", "s", "x > 0"))
    compile_scopes(workspace, force=True)
    numbers(workspace, 3)
    tag_stream(workspace, "s")
    ids = {row["x"]: sorted(row["rule_ids"]) for row in rows_of(workspace, "s_tagged")}
    both = ["all", "more"]
    assert ids == (
        {0: ["all"], 1: ["all"], 2: ["all"], 3: both} if written else {0: ["all"], 1: both, 2: both, 3: both}
    )
