"""Rows that are tagged, after an edit of the rules: re-tagged they are as if all had been tagged anew."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta

import pytest
from pyspark.sql import functions

from pipelines.compile import compile_scopes
from pipelines.due import due_scopes
from pipelines.errors import ConfigurationError, RestartedError, SourceChangedError
from pipelines.join import join_streams
from pipelines.lake.runs import batches
from pipelines.retag import reproduce_tags, retag
from pipelines.retagging.retagger import Retagger
from pipelines.retagging.rows import TaggedRows
from pipelines.run import OpenGates, run_due
from pipelines.spark.delta_internals import TableLog
from pipelines.tag import tag_stream
from quality.gates import QualityGates

STREAM = {"source": "lake/source", "key": ["id"], "event_time": "t"}
START = datetime(2024, 3, 9)


def append(workspace, start: int, stop: int, files: int = 2, stream: str = "s") -> None:
    """Rows with NULLs in every column: a number, a text, a double with NaN, a moment."""
    texts = {
        "id": "IF(id % 31 = 7, NULL, id DIV 2)",
        "n": "IF(id % 7 = 3, NULL, CAST(id % 20 AS INT))",
        "w": "element_at(array('x', 'xy', NULL, 'z', ''), CAST(1 + id % 5 AS INT))",
        "d": "CASE id % 6 WHEN 0 THEN double('NaN') WHEN 1 THEN NULL ELSE id / 10.0D END",
        "t": "IF(id % 11 = 2, NULL, timestamp_seconds(1709942400 + id * 600))",
        "odd name": "CAST(id % 3 AS INT)",
        "seq": "id",
    }
    rows = workspace.spark.range(start, stop, 1, files).selectExpr(
        *(f"{text} AS `{name}`" for name, text in texts.items())
    )
    writer = rows.write.format("delta").mode("append").option("delta.columnMapping.mode", "name")
    writer.save(workspace.configuration.streams[stream].source)


def read(workspace, name: str):
    return workspace.spark.read.format("delta").load(workspace.lake.uri(name))


def tagged(workspace, name: str = "s") -> Counter:
    return Counter(
        repr((row["seq"], row["id"], row["d"], row["rule_ids"])) for row in read(workspace, f"{name}_tagged").collect()
    )


def matched(workspace, name: str = "s") -> Counter:
    rows = read(workspace, f"{name}_matches").drop("rules_version", "source_version")
    return Counter(repr(row.asDict()) for row in rows.collect())


def write_rules(workspace, rules) -> None:
    """Make the table hold just these rules: id -> text, or text and bounds."""
    import pyarrow as pa
    from deltalake import write_deltalake

    from pipelines.lake.lake import arrow_schema
    from pipelines.lake.tables import RULES

    rows = []
    for rule, definition in rules.items():
        text, since, until = definition if isinstance(definition, tuple) else (definition, None, None)
        rows.append({"rule_id": rule, "scope": "s", "expression": text, "valid_from": since, "valid_to": until})
    table = pa.Table.from_pylist(rows, schema=arrow_schema(RULES, workspace.lake.rule_id_type()))
    write_deltalake(workspace.lake.uri("rules"), table, mode="overwrite")
    assert not [result.error for result in compile_scopes(workspace) if result.error]


def random_rule(draw: random.Random):
    texts = [
        f"n > {draw.randint(0, 20)}",
        f"n BETWEEN {draw.randint(0, 9)} AND {draw.randint(9, 20)} AND w = '{draw.choice(('x', 'xy', 'z'))}'",
        "n IS NULL",
        f"NOT (n = {draw.randint(0, 20)} OR w = 'x')",
        f"d >= {draw.randint(0, 40)}",
        "d = double('NaN')",
        f"hour(t) < {draw.randint(0, 24)}",
        f"100 / n > {draw.randint(0, 30)}",
        f"seq BETWEEN {draw.randint(0, 300)} AND {draw.randint(0, 300)}",
        f"`odd name` = {draw.randint(0, 3)} AND soundex(w) = soundex('x')",
        "TRUE",
        "FALSE",
    ]
    since = START + timedelta(hours=draw.randint(0, 40)) if draw.random() < 0.25 else None
    until = START + timedelta(hours=draw.randint(0, 60)) if draw.random() < 0.25 else None
    return (draw.choice(texts), since, until)


def edited(draw: random.Random, rules):
    """Another set of rules: some removed, some changed, some added."""
    kept = {
        rule: random_rule(draw) if draw.random() < 0.2 else text for rule, text in rules.items() if draw.random() > 0.2
    }
    for _ in range(draw.randint(0, 2)):
        kept[f"r{draw.randint(0, 40)}"] = random_rule(draw)
    return kept or {"r0": random_rule(draw)}


def assert_like_anew(workspace, name: str = "s") -> None:
    """The tables as they are, and as they are when all is tagged anew."""
    found = tagged(workspace), matched(workspace)
    tag_stream(workspace, name, restart=True)
    assert found == (tagged(workspace), matched(workspace))


CASES = {
    "plain": {},
    "matched": {"output": "matched"},
    "partitioned": {"partition_by": ["n"]},
    "clustered": {"cluster_by": ["seq"]},
    "by Spark": {},
}


@pytest.mark.parametrize(
    "case",
    [case if case in ("partitioned", "by Spark") else pytest.param(case, marks=pytest.mark.soak) for case in CASES],
)
def test_random_edits(new_workspace, monkeypatch, case: str) -> None:
    draw = random.Random(case)
    workspace = new_workspace({"s": {**STREAM, **CASES[case]}})
    if case == "by Spark":
        from pipelines.retagging import rows

        monkeypatch.setattr(rows, "codec", lambda _spark: None)
    rules = {f"r{number}": random_rule(draw) for number in range(8)}
    for turn in range(3):
        append(workspace, turn * 100, turn * 100 + 100)
        write_rules(workspace, rules)
        tag_stream(workspace, "s")
        rules = edited(draw, rules)
        write_rules(workspace, rules)
        if turn != 1:  # rows that stand by two indexes
            result = retag(workspace, "s")
            assert result.rules_version == workspace.lake.version("rules")
    again = retag(workspace, "s")
    assert (again.files_read, again.files_written, again.rows_changed) == (0, 0, 0)
    assert {batch.state for batch in batches(workspace.lake)} == {"done"}
    assert_like_anew(workspace)


class DiedError(BaseException):
    """Stands for the end of the process: no `except Exception` may catch it."""


BEFORE = {"gone": "n > 3", "changed": "n < 9", "same": "w = 'x'"}
AFTER = {"same": "w = 'x'", "changed": "n < 4 AND hour(t) < 9", "new": "n BETWEEN 5 AND 7"}
LATER = {"same": "w = 'x'", "new": "n BETWEEN 6 AND 9", "newer": "soundex(w) = soundex('z')"}


def prepared(new_workspace, stream=None, **more):
    """Rows that are tagged by BEFORE, and an index of AFTER."""
    workspace = new_workspace({"s": {**STREAM, **(stream or {}), **more}})
    append(workspace, 0, 120)
    write_rules(workspace, BEFORE)
    tag_stream(workspace, "s")
    write_rules(workspace, AFTER)
    return workspace


STEPS = ("found", "planned", "files", "s_tagged", "s_matches")
TURNS = [*enumerate(STEPS * 2)]
"""Each step, once with an edit before the next run, and once with rows, or with neither."""


def die_after(monkeypatch, step: str) -> None:
    """Have the next re-tag end at once behind one of its writes, or before them."""
    if step == "planned":

        def plan(self, *arguments):
            record(self, *arguments)
            raise DiedError

        record = Retagger._record
        monkeypatch.setattr(Retagger, "_record", plan)
    elif step == "found":
        monkeypatch.setattr(Retagger, "_record", lambda *_: (_ for _ in ()).throw(DiedError))
    else:
        write = TableLog.rewrite

        def then_die(self, *arguments):
            if step == "files":
                raise DiedError
            done = write(self, *arguments)
            if self.uri.endswith(step):
                raise DiedError
            return done

        monkeypatch.setattr(TableLog, "rewrite", then_die)


@pytest.mark.parametrize(
    ("output", "turns"),
    [
        ("matched", TURNS[:5]),
        *(pytest.param(output, TURNS, marks=pytest.mark.soak, id=output) for output in ("all", "matched")),
    ],
)
def test_a_death_after_each_write(new_workspace, monkeypatch, output: str, turns: list[tuple[int, str]]) -> None:
    workspace = prepared(new_workspace, output=output)
    for turn, step in turns:
        die_after(monkeypatch, step)
        with pytest.raises(DiedError):
            retag(workspace, "s")
        monkeypatch.undo()
        if turn % 2:  # the rules are edited before the next run, or rows come
            write_rules(workspace, LATER if turn % 4 == 1 else BEFORE)
        elif turn % 3:
            append(workspace, 120 + turn * 10, 130 + turn * 10)
            tag_stream(workspace, "s")
        retag(workspace, "s")
        found = tagged(workspace), matched(workspace)
        rows = read(workspace, "s_tagged")
        pairs = rows.select("id", "t", functions.explode("rule_ids").alias("rule_id"))
        assert Counter(repr(row.asDict()) for row in pairs.select("rule_id", "id", "t").collect()) == found[1]
        assert {batch.state for batch in batches(workspace.lake)} == {"done"}
        write_rules(workspace, AFTER if turn % 2 else LATER)
    retag(workspace, "s")
    assert_like_anew(workspace)


def test_whoever_was_stopped_writes_nothing_when_it_goes_on(new_workspace, monkeypatch) -> None:
    """A run is stopped behind its plan; another one takes over; then the first one goes on."""
    workspace = prepared(new_workspace)
    write = TaggedRows.write

    def late(self, *arguments):
        monkeypatch.undo()
        write_rules(workspace, LATER)
        assert retag(workspace, "s").rows_changed
        return write(self, *arguments)

    monkeypatch.setattr(TaggedRows, "write", late)
    with pytest.raises(RestartedError):
        retag(workspace, "s")
    assert retag(workspace, "s").rows_changed == 0
    assert_like_anew(workspace)


@pytest.mark.parametrize(
    ("when", "meanwhile"),
    [
        *(("s_matches", "tag"), ("s_tagged", "optimize"), ("s_tagged", "restart")),
        *(
            pytest.param(*each, marks=pytest.mark.soak)
            for each in (("s_tagged", "tag"), ("s_matches", "optimize"), ("s_matches", "restart"))
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


def test_a_range_of_event_times(new_workspace) -> None:
    workspace = prepared(new_workspace)
    before = {row["seq"]: row["rule_ids"] for row in read(workspace, "s_tagged").collect()}
    since, until = "2024-03-09T01:00", "2024-03-09T09:00+01:00"
    retag(workspace, "s", since, until)
    rows = read(workspace, "s_tagged").collect()
    low, high = datetime(2024, 3, 9, 1), datetime(2024, 3, 9, 8)
    versions = {True: set(), False: set()}
    for row in rows:
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
    assert {row["seq"]: row["rule_ids"] for row in read(workspace, "s_tagged").collect()} == before
    assert_like_anew(workspace)
    for stream in ({"event_time": None}, {"output": "matched"}):
        settings = {key: value for key, value in {**STREAM, **stream}.items() if value is not None}
        with pytest.raises(ConfigurationError):
            retag(new_workspace({"s": settings}), "s", since, None)


def test_a_run_applies_what_the_policy_says(new_workspace) -> None:
    workspace = prepared(new_workspace)
    assert run_due(workspace, OpenGates()).retagged == []
    before = {row["seq"]: row["rule_ids"] for row in read(workspace, "s_tagged").collect()}
    new = {row["seq"] for row in read(workspace, "s_tagged").filter("n BETWEEN 5 AND 7").collect()}
    added = new_workspace({"s": {**STREAM, "retag": "new_rules"}})
    assert due_scopes(added) == ["s"]
    report = run_due(added, OpenGates())
    assert ([each.rows_changed for each in report.retagged], report.failures) == ([len(new)], {})
    for row in read(workspace, "s_tagged").collect():
        assert row["rule_ids"] == sorted([*before[row["seq"]], *(["new"] if row["seq"] in new else [])])
    assert due_scopes(added) == [] and run_due(added, OpenGates()).retagged == []
    always = new_workspace({"s": {**STREAM, "retag": "always"}})
    append(always, 120, 160)
    report = run_due(always, QualityGates())
    assert (len(report.retagged), report.failures) == (1, {})
    assert run_due(always, OpenGates()).retagged == []
    assert_like_anew(workspace)


def test_an_index_that_is_gone_has_all_rules_tried(new_workspace) -> None:
    workspace = prepared(new_workspace)
    compile_scopes(workspace, force=True)
    assert retag(workspace, "s").rows_changed > 0
    assert retag(workspace, "s").files_read == 0
    assert_like_anew(workspace)


def test_only_files_that_can_hold_a_change_are_read(new_workspace) -> None:
    workspace = new_workspace({"s": {**STREAM, "cluster_by": ["seq"]}})
    for start in range(0, 400, 100):
        append(workspace, start, start + 100, files=1)
        write_rules(workspace, BEFORE)
        tag_stream(workspace, "s")
    write_rules(workspace, {**BEFORE, "narrow": "seq BETWEEN 210 AND 220"})
    result = retag(workspace, "s")
    assert (result.files_read, result.files_written) == (1, 1)
    assert result.rows_changed == read(workspace, "s_tagged").filter("seq BETWEEN 210 AND 220").count()
    write_rules(workspace, {**BEFORE, "narrow": "seq BETWEEN 310 AND 315"})
    assert retag(workspace, "s").files_read == 2
    write_rules(workspace, BEFORE)
    assert retag(workspace, "s").files_read == 1
    assert_like_anew(workspace)


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
    assert tag_stream(workspace, "reader").rows == read(workspace, "s_tagged").filter("seq >= 120").count()
    matched_only = new_workspace(
        {"s": {**STREAM, "output": "matched"}, "reader": {**streams["reader"], "output": "matched"}}
    )
    # each row keeps a rule: none leaves the table
    write_rules(workspace, BEFORE)
    assert retag(matched_only, "s").rows_changed
    assert tag_stream(matched_only, "reader").rows == 0
    write_rules(workspace, AFTER)
    assert retag(matched_only, "s").rows_changed
    with pytest.raises(SourceChangedError, match="retag"):
        tag_stream(matched_only, "reader")


def test_a_column_that_came_after_the_rows(new_workspace) -> None:
    workspace = new_workspace({"s": {"source": "lake/source"}}, id_type="bigint")
    frame = workspace.spark.range(0, 20).selectExpr("id AS seq", "id % 5 AS n")
    frame.write.format("delta").save(workspace.configuration.streams["s"].source)
    write_rules(workspace, {1: "n > 2", 2: "n < 2"})
    tag_stream(workspace, "s")
    later = workspace.spark.range(20, 30).selectExpr("id AS seq", "id % 5 AS n", "id AS extra")
    later.write.format("delta").mode("append").option("mergeSchema", "true").save(
        workspace.configuration.streams["s"].source
    )
    write_rules(workspace, {1: "n > 2", 3: "extra IS NULL AND seq < 10"})
    retag(workspace, "s")
    found = {row["seq"]: row["rule_ids"] for row in read(workspace, "s_tagged").collect()}
    assert found == {seq: [1] * (seq % 5 > 2) + [3] * (seq < 10) for seq in range(20)}


@pytest.mark.parametrize("output", ["all", pytest.param("matched", marks=pytest.mark.soak)])
def test_tags_of_an_older_version_in_a_table_of_their_own(new_workspace, output: str) -> None:
    workspace = prepared(new_workspace, output=output)
    before = workspace.lake.version("rules") - 1
    rows = {row["seq"]: row["rule_ids"] for row in read(workspace, "s_tagged").collect()}
    retag(workspace, "s")
    now = tagged(workspace)
    for _ in range(2):
        result = reproduce_tags(workspace, "s", before, "as_it_was")
    assert (result.rules_version, result.rows_changed) == (before, len(rows))
    assert {row["seq"]: row["rule_ids"] for row in read(workspace, "as_it_was").collect()} == rows
    assert {row["rules_version"] for row in read(workspace, "as_it_was").collect()} == {before}
    assert tagged(workspace) == now
    for name in ("rules", "s_tagged", "no name", "S_MATCHES"):
        with pytest.raises(ConfigurationError):
            reproduce_tags(workspace, "s", before, name)


def test_joined_rows(new_workspace, add_rules) -> None:
    streams = {name: {"source": f"lake/{name}", "event_time": "t"} for name in ("a", "b")}
    workspace = new_workspace(streams, joins={"j": {"streams": ["a", "b"], "on": ["k"], "window": "1 hour"}})
    for name in streams:
        rows = workspace.spark.range(40).selectExpr(
            "id % 5 AS k", "timestamp_seconds(1709942400 + id * 60) AS t", "id AS v"
        )
        rows.write.format("delta").save(workspace.configuration.streams[name].source)
    add_rules(workspace, ("low", "j", "a.v < 10 AND b.v < 10"), ("high", "j", "a.v > 35 AND b.v > 30"))
    compile_scopes(workspace)
    join_streams(workspace, "j")

    def joined() -> Counter:
        return Counter(
            repr((row["a"]["v"], row["b"]["v"], row["rule_ids"])) for row in read(workspace, "j_tagged").collect()
        )

    def edit(statement: str) -> None:
        workspace.spark.sql(f"{statement.format(workspace.lake.sql_name('rules'))}").collect()
        compile_scopes(workspace)

    edit("DELETE FROM {} WHERE rule_id = 'low'")
    assert retag(workspace, "j").rows_changed > 0
    assert {batch.batch for batch in batches(workspace.lake, "j")} == {0}
    removed = joined()
    edit("UPDATE {} SET expression = 'a.v > 30 AND b.v > 35' WHERE rule_id = 'high'")
    assert retag(workspace, "j").notices
    changed = joined()
    join_streams(workspace, "j", restart=True)
    assert joined() == changed != removed
    assert retag(workspace, "j").rows_changed == 0
    with pytest.raises(ConfigurationError):
        retag(workspace, "j", "2024-01-01")
