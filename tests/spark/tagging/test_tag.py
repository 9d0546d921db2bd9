"""Tagging through Spark: the answers against Spark's own WHERE, and each row once whatever happens."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from urllib.parse import urlparse

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions

from pipelines.compile import compile_scopes
from pipelines.lake.runs import batches
from pipelines.settings.model import ENGINES
from pipelines.tag import tag_stream
from tests.spark.tagging.rows import (
    BOTH,
    LOCALLY,
    RULES,
    STREAM,
    WORKERS,
    assert_exact,
    columns,
    expected_ids,
    kept_ids,
    read,
    source_of,
    source_rows,
    tagged_ids,
)
from tests.tables import columns_of


@BOTH
def test_tags_matches_and_quarantine_agree_with_spark(prepared, way: str) -> None:
    workspace = prepared()
    result = tag_stream(workspace, "s")
    assert_exact(workspace)
    assert kept_ids(workspace) == expected_ids(workspace)
    makers = {"workers": "parquet-cpp-arrow", "spark": "parquet-mr"}
    for name in ("s_tagged", "s_matches"):
        files = read(workspace, name).inputFiles()
        made = {pq.read_metadata(urlparse(file).path).created_by.split()[0] for file in files}
        assert made == {makers[way]}
    assert (result.batches, result.rows, result.quarantined) == (1, 200, 10)
    assert result.matches == sum(expected_ids(workspace).values())
    reasons = {reason for (reason,) in columns(workspace, "quarantine_s", "reason")}
    assert reasons == {"the key id is NULL"}
    (batch,) = batches(workspace.lake, "s")
    assert (batch.state, batch.rows, batch.matches, batch.quarantined) == ("done", 200, result.matches, 10)
    assert (batch.rules_version, batch.source_version, dict(batch.errors)) == (1, 1, {})


@WORKERS
def test_lambdas_within_lambdas(new_workspace, add_rules) -> None:
    """Three levels, beside a part that Spark evaluates as well, and over an array that Spark makes once."""
    workspace = new_workspace({"flights": {"source": "lake/flights"}})
    rows = workspace.spark.range(0, 10, 1, 1).selectExpr("id", "string(id) AS s")
    rows.write.format("delta").save(workspace.configuration.streams["flights"].source)
    within = "exists(sequence(1, 3), x -> exists(sequence(1, 4), y -> exists(array(id), z -> x + y + z = 3)))"
    add_rules(
        workspace,
        ("within", "flights", within),
        ("text", "flights", f"concat(string({within}), s) = 'true0'"),
        ("beside", "flights", "reverse(s) = '7'"),
    )
    compile_scopes(workspace)
    tag_stream(workspace, "flights")
    tagged = dict(columns_of(workspace, "flights_tagged", "id", "rule_ids"))
    assert tagged == {
        id: ["text", "within"] * (id == 0) + ["within"] * (id == 1) + ["beside"] * (id == 7) for id in range(10)
    }


def test_other_columns_pass_unchanged_and_ours_come_last(prepared, way: str) -> None:
    workspace = prepared()
    tag_stream(workspace, "s")
    source = source_of(workspace)
    tagged = read(workspace, "s_tagged")
    added = ["rule_ids", "rules_version", "index_fingerprint", "source_version", "tagged_at"]
    assert tagged.columns == [*source.columns, *added]
    assert [f.dataType for f in tagged.schema][:-5] == [f.dataType for f in source.schema]
    text = functions.expr("to_json(doc)" if way == "spark" else "doc")
    sound = source.filter("id IS NOT NULL").withColumn("doc", text)
    same = tagged.select(*source.columns).withColumn("doc", text)
    as_text = functions.to_json(functions.struct("*"))
    assert Counter(sound.select(as_text).collect()) == Counter(same.select(as_text).collect())
    versions = tagged.groupBy("source_version").agg(functions.max("id"), functions.min("id")).collect()
    assert {tuple(row) for row in versions} == {(0, 119, 0), (1, 199, 120)}
    (stamp,) = tagged.select("rules_version", "index_fingerprint", "tagged_at").distinct().collect()
    (batch,) = batches(workspace.lake, "s")
    assert (stamp[0], stamp[1], stamp[2].astimezone(UTC)) == (1, batch.fingerprint, batch.started_at)


@LOCALLY
def test_output_matched_writes_only_rows_with_a_rule(prepared) -> None:
    rules = RULES[:3]
    workspace = prepared(rules, output="matched")
    result = tag_stream(workspace, "s")
    expected = expected_ids(workspace, rules)
    assert tagged_ids(workspace) == expected
    assert len(columns(workspace, "s_tagged", "t")) == len({t for t, _ in expected})
    assert (result.rows, result.matches) == (200, sum(expected.values()))


@LOCALLY
def test_bigint_ids(prepared) -> None:
    rules = [(number, "s", expression) for number, (_, _, expression) in enumerate(RULES)]
    workspace = prepared(rules, id_type="bigint")
    tag_stream(workspace, "s")
    assert_exact(workspace, rules)
    assert read(workspace, "s_matches").schema["rule_id"].dataType.simpleString() == "bigint"
    assert read(workspace, "s_tagged").schema["rule_ids"].dataType.simpleString() == "array<bigint>"


ALL = [("t", "s", "TRUE"), ("u", "s", "1 = 1")]
NONE = [("f", "s", "FALSE")]


@pytest.mark.parametrize(
    ("way", "rules", "id_type"),
    [
        ("workers", ALL, "string"),
        ("spark", [], "string"),
        *(
            pytest.param(way, rules, id_type, marks=pytest.mark.soak)
            for way, rules, id_type in (
                *(("workers", [], "bigint"), ("spark", NONE, "bigint")),
                *(("workers", [], "string"), ("workers", ALL, "bigint"), ("spark", ALL, "string")),
                *(("workers", NONE, "string"), ("workers", NONE, "bigint"), ("spark", ALL, "bigint")),
                *(("spark", [], "bigint"), ("spark", NONE, "string")),
            )
        ),
    ],
    indirect=["way"],
)
def test_rules_that_read_no_column(prepared, rules, id_type: str) -> None:
    if id_type == "bigint":
        rules = [(number, *rest) for number, (_, *rest) in enumerate(rules)]
    workspace = prepared(rules, id_type=id_type)
    result = tag_stream(workspace, "s")
    assert_exact(workspace, rules)
    assert (result.rows, result.matches) == (200, sum(expected_ids(workspace, rules).values()))


@LOCALLY
def test_validity_is_half_open_on_the_event_time(prepared) -> None:
    first, last = datetime(2024, 1, 1, 0, 10, tzinfo=UTC), datetime(2024, 1, 1, 0, 20, tzinfo=UTC)
    rule = {"rule_id": "r", "scope": "s", "expression": "x >= 0", "valid_from": first, "valid_to": last}
    workspace = prepared([rule])
    tag_stream(workspace, "s")
    ids = {id for id, rules in columns(workspace, "s_tagged", "id", "rule_ids") if rules}
    assert ids == set(range(10, 20))


@LOCALLY
def test_no_key_keeps_no_matches_and_no_quarantine(prepared) -> None:
    workspace = prepared(key=[])
    result = tag_stream(workspace, "s")
    assert (result.rows, result.quarantined) == (200, 0)
    assert result.matches == sum(expected_ids(workspace, where="TRUE").values())
    assert not workspace.lake.exists("s_matches")
    assert not workspace.lake.exists("quarantine_s")


@WORKERS
def test_errors_on_rows_are_counted_for_each_rule(prepared) -> None:
    rules = [
        ("divides", "s", "100 / (x - 50) > 3"),
        ("casts", "s", "CAST(substr(name, 2) AS INT) = 3 AND x > 10"),
        ("guarded", "s", "x <> 50 AND 100 / (x - 50) > 3"),
        ("sound", "s", "x > 3"),
    ]
    workspace = prepared(rules)
    result = tag_stream(workspace, "s")
    assert dict(result.errors) == {"divides": 2, "guarded": 2}
    assert dict(batches(workspace.lake, "s")[0].errors) == {"divides": 2, "guarded": 2}
    sound = [("divides", "s", "try_divide(100, x - 50) > 3"), *rules[1:]]
    assert tagged_ids(workspace) == expected_ids(workspace, sound)


@BOTH
def test_rules_that_only_spark_can_evaluate(prepared, way: str) -> None:
    rules = [
        ("function", "s", "upper(name) = 'N3'"),
        ("array", "s", "tags['k'][0] > 150"),
        ("json", "s", "get_json_object(concat('{', x, '}'), '$') IS NULL"),
        *([("variant", "s", "variant_get(doc, '$.id', 'bigint') % 7 = 0")] if way == "spark" else []),
        ("both", "s", "length(name) = 2 AND x > 30"),
    ]
    workspace = prepared(rules)
    tag_stream(workspace, "s")
    assert_exact(workspace, rules)


@LOCALLY
def test_every_engine_tags_alike(spark, new_workspace, add_rules, way: str) -> None:
    streams = {f"s_{name}": STREAM | {"engine": name} for name in ENGINES}
    workspace = new_workspace(streams, runner="local" if way == "local" else "auto")
    source = workspace.configuration.streams["s_auto"].source
    source_rows(spark, 0, 3_000).write.format("delta").save(source)
    texts = [text for _, _, text in RULES] + [f"x BETWEEN {low} AND {low + 6} AND id > {low}" for low in range(90)]
    add_rules(
        workspace, *((f"{scope}-{number:03}", scope, text) for scope in streams for number, text in enumerate(texts))
    )
    compiled = {each.scope: each.engine for each in compile_scopes(workspace)}
    assert compiled == {f"s_{name}": "hybrid" if name == "auto" else name for name in ENGINES}
    tagged = {}
    for scope in streams:
        assert tag_stream(workspace, scope).rows == 3_000
        rows = workspace.lake.arrow(f"{scope}_tagged", ["id", "x", "t", "rule_ids"]).sort_by("t").to_pylist()
        tagged[scope] = [(row["id"], row["x"], [rule[-3:] for rule in row["rule_ids"]]) for row in rows]
    assert all(rows == tagged["s_scan"] for rows in tagged.values())
    assert sum(len(ids) for _, _, ids in tagged["s_scan"]) > 10_000
