"""Rows that are tagged, after an edit of the rules: re-tagged by Spark they are as if all had been tagged anew."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from deltalake import ColumnProperties, WriterProperties, write_deltalake

from pipelines.compile import compile_scopes
from pipelines.due import due_scopes
from pipelines.errors import ConfigurationError, SourceChangedError, TableError
from pipelines.lake.runs import batches
from pipelines.retag import reproduce_tags, retag
from pipelines.retagging.spark_rows import TaggedRows
from pipelines.run import OpenGates, run_due
from pipelines.spark.delta_internals import TableLog
from pipelines.tag import tag_stream
from quality.gates import QualityGates
from tests.cases import SOAK, soak_but
from tests.spark.retagged import (
    AFTER,
    LATER,
    MAPPED,
    append,
    assert_like_anew,
    prepared,
    random_rule,
    rows,
    state,
    tags,
)
from tests.unit.pipelines import retagged_rows
from tests.unit.pipelines.retagged_rows import (
    BEFORE,
    STEPS,
    STREAM,
    DiedError,
    die_after,
    edited,
    overtake,
    write_rules,
)

TURNS = [*enumerate(STEPS * 2)]
"""Each step, once with an edit before the next run, and once with rows, or with neither."""


CASES = {
    "plain": {},
    "matched": {"output": "matched"},
    "partitioned": {"partition_by": ["n"]},
    "clustered": {"cluster_by": ["seq"]},
    "by Spark": {},
}


# re-tags without a JVM have the layouts: tests/unit/pipelines/test_local_retag.py::test_random_edits
@pytest.mark.parametrize("case", soak_but(("by Spark",), CASES))
def test_random_edits(new_workspace, monkeypatch, case: str) -> None:
    draw = random.Random(case)
    workspace = new_workspace({"s": {**MAPPED, **CASES[case]}})
    if case == "by Spark":
        from pipelines.retagging import spark_rows

        monkeypatch.setattr(spark_rows, "codec", lambda _spark: None)
    rules = {f"r{number}": random_rule(draw) for number in range(8)}
    for turn in range(0 if SOAK else 1, 3):
        append(workspace, turn * 100, turn * 100 + 100)
        write_rules(workspace, rules)
        tag_stream(workspace, "s")
        rules = edited(draw, rules, random_rule)
        write_rules(workspace, rules)
        if turn != 1:  # rows that stand by two indexes
            result = retag(workspace, "s")
            assert result.rules_version == workspace.lake.version("rules")
    again = retag(workspace, "s")
    assert (again.files_read, again.files_written, again.rows_changed) == (0, 0, 0)
    assert {batch.state for batch in batches(workspace.lake)} == {"done"}
    assert_like_anew(workspace)


@pytest.mark.parametrize(
    ("stream", "output", "turns"),
    [
        # tests/unit/pipelines/test_local_retag.py::test_deaths_after_each_write has each step
        pytest.param(STREAM, "matched", TURNS[:5], id="each step", marks=pytest.mark.soak),
        pytest.param(MAPPED, "matched", TURNS[3:4], id="written by Spark"),
        *(
            pytest.param(stream, output, TURNS, marks=pytest.mark.soak)
            for stream in (STREAM, MAPPED)
            for output in ("all", "matched")
        ),
    ],
)
def test_a_death_after_each_write(
    new_workspace, monkeypatch, stream: Any, output: str, turns: list[tuple[int, str]]
) -> None:
    workspace = prepared(new_workspace, stream, output=output)
    for turn, step in turns:
        die_after(monkeypatch, step, TableLog)
        with pytest.raises(DiedError):
            retag(workspace, "s")
        monkeypatch.undo()
        if turn % 2:  # the rules are edited before the next run, or rows come
            write_rules(workspace, LATER if turn % 4 == 1 else BEFORE)
        elif turn % 3:
            append(workspace, 120 + turn * 10, 130 + turn * 10)
            tag_stream(workspace, "s")
        retag(workspace, "s")
        state(workspace)
        assert {batch.state for batch in batches(workspace.lake)} == {"done"}
        write_rules(workspace, AFTER if turn % 2 else LATER)
    retag(workspace, "s")
    assert_like_anew(workspace)


# tests/unit/pipelines/test_local_retag.py has it without a JVM
@pytest.mark.soak
def test_whoever_was_stopped_writes_nothing_when_it_goes_on(new_workspace) -> None:
    workspace = prepared(new_workspace)
    overtake(workspace, TaggedRows, LATER)
    assert_like_anew(workspace)


@pytest.mark.parametrize(
    ("when", "meanwhile"),
    [
        ("s_matches", "tag"),
        # tests/unit/pipelines/test_local_retag.py has all of them, with files merged by delta-rs
        *(
            pytest.param(*each, marks=pytest.mark.soak)
            for each in (
                *(("s_tagged", "optimize"), ("s_tagged", "restart"), ("s_tagged", "tag")),
                *(("s_matches", "optimize"), ("s_matches", "restart")),
            )
        ),
    ],
)
def test_others_write_meanwhile(new_workspace, monkeypatch, meanwhile: str, when: str) -> None:
    workspace = prepared(new_workspace)
    rewrite = TableLog.rewrite

    def others(self, *arguments):
        if self.uri.endswith(when):
            monkeypatch.undo()
            if meanwhile == "tag":
                append(workspace, 120, 200)
                tag_stream(workspace, "s")
            elif meanwhile == "restart":
                tag_stream(workspace, "s", restart=True)
            else:
                for name in ("s_tagged", "s_matches"):
                    workspace.spark.sql(f"OPTIMIZE delta.`{workspace.lake.uri(name)}`").collect()
        return rewrite(self, *arguments)

    monkeypatch.setattr(TableLog, "rewrite", others)
    retag(workspace, "s")
    assert retag(workspace, "s").rows_changed == 0
    assert_like_anew(workspace)


# tests/dagster/test_retagging.py has ranges of days, and tests/unit/pipelines/test_retagging.py what they leave
@pytest.mark.soak
def test_a_range_of_event_times(new_workspace) -> None:
    workspace = prepared(new_workspace)
    before = tags(workspace)
    since, until = "2024-03-09T01:00", "2024-03-09T09:00+01:00"
    retag(workspace, "s", since, until)
    low, high = datetime(2024, 3, 9, 1, tzinfo=UTC), datetime(2024, 3, 9, 8, tzinfo=UTC)
    versions = {True: set(), False: set()}
    for row in rows(workspace, "s_tagged"):
        inside = row["t"] is not None and low <= row["t"] < high
        versions[inside].add(row["rules_version"])
        n, hour = row["n"], row["t"].hour if row["t"] is not None else None
        held = {
            "same": row["w"] == "x",
            "changed": n is not None and n < 4 and hour is not None and hour < 9,
            "new": n is not None and 5 <= n <= 7,
        }
        assert row["rule_ids"] == (sorted(rule for rule in held if held[rule]) if inside else before[row["seq"]])
    # a rule that is taken back again has left its traces in the range alone
    assert versions[True] == {workspace.lake.version("rules")}
    write_rules(workspace, BEFORE)
    retag(workspace, "s")
    assert tags(workspace) == before
    assert_like_anew(workspace)
    for stream in ({"event_time": None}, {"output": "matched"}):
        settings = {key: value for key, value in {**STREAM, **stream}.items() if value is not None}
        with pytest.raises(ConfigurationError):
            retag(new_workspace({"s": settings}), "s", since, None)


# tests/unit/pipelines/test_local_retag.py has it without a JVM
@pytest.mark.soak
def test_a_run_applies_what_the_policy_says(new_workspace) -> None:
    workspace = prepared(new_workspace)
    assert run_due(workspace, OpenGates()).retagged == []
    before = tags(workspace)
    new = {row["seq"] for row in rows(workspace, "s_tagged") if row["n"] is not None and 5 <= row["n"] <= 7}
    added = new_workspace({"s": {**STREAM, "retag": "new_rules"}})
    assert due_scopes(added) == ["s"]
    report = run_due(added, OpenGates())
    assert ([each.rows_changed for each in report.retagged], report.failures) == ([len(new)], {})
    for row in rows(workspace, "s_tagged"):
        assert row["rule_ids"] == sorted([*before[row["seq"]], *(["new"] if row["seq"] in new else [])])
    assert due_scopes(added) == [] and run_due(added, OpenGates()).retagged == []
    always = new_workspace({"s": {**STREAM, "retag": "always"}})
    append(always, 120, 160)
    report = run_due(always, QualityGates())
    assert (len(report.retagged), report.failures) == (1, {})
    assert run_due(always, OpenGates()).retagged == []
    assert_like_anew(workspace)


# tests/unit/pipelines/test_retagging.py::test_everything_where_a_base_is_not_known has the plan
@pytest.mark.soak
def test_an_index_that_is_gone_has_all_rules_tried(new_workspace) -> None:
    workspace = prepared(new_workspace)
    compile_scopes(workspace, force=True)
    assert retag(workspace, "s").rows_changed > 0
    assert retag(workspace, "s").files_read == 0
    assert_like_anew(workspace)


# tests/unit/pipelines/test_local_retag.py has it without a JVM
@pytest.mark.soak
def test_only_files_that_can_hold_a_change_are_read(new_workspace) -> None:
    workspace = new_workspace({"s": {**STREAM, "cluster_by": ["seq"]}})
    for start in range(0, 400, 100):
        append(workspace, start, start + 100, files=1)
        write_rules(workspace, BEFORE)
        tag_stream(workspace, "s")
    write_rules(workspace, {**BEFORE, "narrow": "seq BETWEEN 210 AND 220"})
    result = retag(workspace, "s")
    assert (result.files_read, result.files_written) == (1, 1)
    assert result.rows_changed == sum(210 <= seq <= 220 for seq in tags(workspace))
    write_rules(workspace, {**BEFORE, "narrow": "seq BETWEEN 310 AND 315"})
    assert retag(workspace, "s").files_read == 2
    write_rules(workspace, BEFORE)
    assert retag(workspace, "s").files_read == 1
    assert_like_anew(workspace)


# tests/unit/pipelines/test_local_retag.py::test_a_reader_of_the_tagged_rows_goes_on has it without a JVM
@pytest.mark.soak
def test_a_stream_that_reads_the_tagged_rows(new_workspace) -> None:
    streams = {"s": STREAM, "reader": {"source_stream": "s", "key": ["id"]}}
    workspace = new_workspace(streams)
    append(workspace, 0, 120)
    write_rules(workspace, BEFORE)
    tag_stream(workspace, "s")
    tag_stream(workspace, "reader")
    write_rules(workspace, AFTER)
    assert retag(workspace, "s").rows_changed
    append(workspace, 120, 160)
    tag_stream(workspace, "s")
    assert tag_stream(workspace, "reader").rows == sum(seq >= 120 for seq in tags(workspace))
    matched_only = new_workspace(
        {name: {**stream, "output": "matched"} for name, stream in streams.items()}, root="other"
    )
    write_rules(matched_only, BEFORE)
    tag_stream(matched_only, "s")
    tag_stream(matched_only, "reader")
    # no row leaves the table, and none comes to it
    write_rules(matched_only, {**BEFORE, "the same": next(iter(BEFORE.values()))})
    assert retag(matched_only, "s").rows_changed
    assert tag_stream(matched_only, "reader").rows == 0
    write_rules(matched_only, AFTER)
    assert retag(matched_only, "s").rows_changed
    with pytest.raises(SourceChangedError, match="retag"):
        tag_stream(matched_only, "reader")


@pytest.mark.parametrize("output", ["all", pytest.param("matched", marks=pytest.mark.soak)])
def test_tags_of_an_older_version_in_a_table_of_their_own(new_workspace, output: str) -> None:
    workspace = prepared(new_workspace, output=output)
    before = workspace.lake.version("rules") - 1
    old = tags(workspace)
    retag(workspace, "s")
    now = tags(workspace)
    for _ in range(2):
        result = reproduce_tags(workspace, "s", before, "as_it_was")
    assert (result.rules_version, result.rows_changed) == (before, len(old))
    found = rows(workspace, "as_it_was")
    assert {row["seq"]: row["rule_ids"] for row in found} == old
    assert {row["rules_version"] for row in found} == {before}
    assert tags(workspace) == now
    for name in ("rules", "s_tagged", "no name", "S_MATCHES"):
        with pytest.raises(ConfigurationError):
            reproduce_tags(workspace, "s", before, name)


def test_an_encoding_that_spark_does_not_read(new_workspace) -> None:
    """This process has tagged the rows; those that match only now by a rule that needs Spark are looked for by it."""
    stream = {**STREAM, "output": "matched"}
    workspace = new_workspace({"s": stream}, runner="local")
    properties = WriterProperties(column_properties={"d": ColumnProperties(encoding="BYTE_STREAM_SPLIT")})
    source = workspace.configuration.streams["s"].source
    write_deltalake(source, retagged_rows.rows(0, 50), mode="append", writer_properties=properties)
    write_rules(workspace, {"r": "d > 4.0"})
    tag_stream(workspace, "s")
    write_rules(workspace, {"r": "d > 4.0", "new": "d > 1.0"})
    assert retag(workspace, "s").rows_changed
    assert_like_anew(workspace)
    workspace = new_workspace({"s": stream})
    write_rules(workspace, {"r": "d > 4.0", "new": "soundex(w) = soundex('x') AND d > 0.0"})
    with pytest.raises(TableError, match=r"BYTE_STREAM_SPLIT.*deltatag tag s --restart"):
        retag(workspace, "s")


@pytest.mark.parametrize("tagged", [True, False])
def test_rows_that_match_by_a_column_that_came_after_them(new_workspace, tagged: bool) -> None:
    workspace = new_workspace({"s": {**STREAM, "output": "matched"}}, runner="local")
    source = workspace.configuration.streams["s"].source
    write_deltalake(source, retagged_rows.rows(0, 20), mode="append")
    write_rules(workspace, {"r": "n > 10"})
    tag_stream(workspace, "s")
    later = retagged_rows.rows(20, 30)
    later = later.append_column("Later", pa.array(["x"] * later.num_rows))
    write_deltalake(source, later, mode="append", schema_mode="merge")
    if tagged:
        tag_stream(workspace, "s")
    write_rules(workspace, {"r": "n > 10", "new": "later IS NULL AND n < 3"})
    assert retag(workspace, "s").rows_changed
    tag_stream(workspace, "s")
    found = tags(workspace)
    tag_stream(workspace, "s", restart=True)
    assert found == tags(workspace) and any("new" in ids for ids in found.values())
