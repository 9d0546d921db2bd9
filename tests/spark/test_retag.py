"""Rows that are tagged, after an edit of the rules: re-tagged they are as if all had been tagged anew."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta

import pytest
from pyspark.sql import functions

from pipelines.compile import compile_scopes
from pipelines.lake.runs import batches
from pipelines.retag import retag
from pipelines.tag import tag_stream

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
    "partitioned": {"partition_by": ["w"]},
    "clustered": {"cluster_by": ["seq"]},
    "by Spark": {},
}


@pytest.mark.parametrize("case", CASES)
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
    assert functions is not None
