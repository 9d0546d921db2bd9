"""Tagging through Spark: the answers against Spark's own WHERE, and each row once whatever happens."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import UTC, datetime
from functools import reduce
from typing import Any
from urllib.parse import urlparse

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, functions

from pipelines.compile import compile_scopes
from pipelines.due import tag_is_due
from pipelines.errors import (
    CheckError,
    IndexOutdatedError,
    NoIndexError,
    QuarantineShareError,
    SourceChangedError,
    SourceError,
    TableError,
)
from pipelines.lake.runs import batches
from pipelines.settings.model import ENGINES
from pipelines.status import status
from pipelines.tag import tag_stream
from pipelines.writing.files import layout_of
from rules_index.workers.delta_files import Layout
from tests.tables import columns_of, spark_columns

STREAM = {"source": "lake/source", "key": ["id"], "event_time": "t"}
RULES = [
    ("big", "s", "x > 90"),
    ("named", "s", "name = 'n3' AND amount < 20.5"),
    ("null", "s", "name IS NULL OR x IN (1, 2, 3)"),
    ("nested", "s", "place.city LIKE 'b%'"),
    ("whole", "s", "place IS NOT NULL AND tags IS NOT NULL AND x > 50"),
    ("none", "s", "x < 0"),
    ("all", "s", "TRUE"),
]


def _ways(*now: str, soak: str) -> pytest.MarkDecorator:
    values = [*now, *(pytest.param(way, marks=pytest.mark.soak) for way in soak.split())]
    return pytest.mark.parametrize("way", values, indirect=True)


BOTH = _ways("workers", "spark", soak="")
"""Once with tables whose files the workers write, once with a column that leaves the writing to Spark."""
WORKERS = _ways("workers", soak="spark")
"""What differs little by who writes."""
LOCALLY = _ways("local", soak="workers")
"""What lies before and behind the way that rows take through an index, here through this process."""
_with_variant = False


@pytest.fixture(autouse=True)
def way(request, monkeypatch) -> str:
    """Who tags and writes: "workers", "spark", which alone can write a VARIANT, or "local", this process."""
    chosen = getattr(request, "param", "workers")
    monkeypatch.setitem(globals(), "_with_variant", chosen == "spark")
    return chosen


def source_rows(spark, start: int, stop: int):
    """Rows with the columns that RULES read, and others of types that only pass through."""
    rows = spark.range(start, stop).select(
        functions.expr("IF(id % 20 = 7, NULL, id)").alias("id"),
        functions.expr("id % 100").alias("x"),
        functions.expr("IF(id % 11 = 0, NULL, concat('n', id % 5))").alias("name"),
        functions.expr("CAST(id / 7 AS DECIMAL(12, 3))").alias("amount"),
        functions.expr("named_struct('city', IF(id % 3 = 0, 'bonn', 'rome'), 'code', id)").alias("place"),
        functions.expr("timestamp'2024-01-01 00:00:00' + make_interval(0, 0, 0, 0, 0, id)").alias("t"),
        functions.expr("map('k', array(id, NULL))").alias("tags"),
        functions.expr("parse_json(concat('{\"id\":', id, '}'))").alias("doc"),
        functions.expr("CAST(concat('b', id) AS BINARY)").alias("raw"),
    )
    return rows if _with_variant else rows.withColumn("doc", functions.expr("to_json(doc)"))


def append(spark, workspace, start: int, stop: int) -> None:
    append_to(spark, workspace.configuration.streams["s"].source, start, stop)


def append_to(spark, path: str, start: int, stop: int) -> None:
    source_rows(spark, start, stop).coalesce(2).write.format("delta").mode("append").save(path)


@pytest.fixture(scope="module")
def two_versions(spark, tmp_path_factory):
    """The folder of a source of 200 rows in two versions, written once for each way and copied from then on."""

    made: dict[bool, str] = {}

    def folder() -> str:
        if _with_variant not in made:
            made[_with_variant] = str(tmp_path_factory.mktemp("sources") / "source")
            append_to(spark, made[_with_variant], 0, 120)
            append_to(spark, made[_with_variant], 120, 200)
        return made[_with_variant]

    return folder


@pytest.fixture
def prepared(new_workspace, add_rules, two_versions, way):
    """A workspace with a source of 200 rows in two versions and compiled rules."""

    def prepare(rules=RULES, id_type: str = "string", **settings: Any):
        runner = "local" if way == "local" else "auto"
        workspace = new_workspace({"s": {**STREAM, **settings}}, id_type=id_type, runner=runner)
        shutil.copytree(two_versions(), workspace.configuration.streams["s"].source)
        add_rules(workspace, *rules)
        failed = [r.error for r in compile_scopes(workspace) if r.error]
        assert not failed
        return workspace

    return prepare


def read(workspace, name: str):
    return workspace.spark.read.format("delta").load(workspace.lake.uri(name))


def columns(workspace, name: str, *names: str) -> list[tuple]:
    """Rows as tuples, read by delta-rs where it knows the table's types."""
    return spark_columns(read(workspace, name), *names) if _with_variant else columns_of(workspace, name, *names)


def source_of(workspace):
    return workspace.spark.read.format("delta").load(workspace.configuration.streams["s"].source)


def expected_of(workspace, rules, where: str) -> tuple[Counter, Counter]:
    """The rows' times, and what Spark says of those that `where` keeps, in one job: (row's t, rule) for every match."""
    kept = [
        functions.expr(f"IF(({where}) AND ({text}), true, false)").alias(f"_{n}")
        for n, (_, _, text) in enumerate(rules)
    ]
    found = spark_columns(source_of(workspace).select("t", *kept), "t", *(f"_{n}" for n in range(len(rules))))
    pairs = [(t, rule[0]) for t, *truths in found for rule, truth in zip(rules, truths, strict=True) if truth]
    return Counter(t for t, *_ in found), Counter(pairs)


def expected_ids(workspace, rules=RULES, where: str = "id IS NOT NULL") -> Counter:
    return expected_of(workspace, rules, where)[1]


def kept_ids(workspace, rules=RULES) -> Counter:
    """The same by Spark's own WHERE, a query for each rule."""
    source = source_of(workspace).filter("id IS NOT NULL")
    kept = [
        source.filter(expression).select("t", functions.lit(rule_id).alias("r")) for rule_id, _, expression in rules
    ]
    return Counter(spark_columns(reduce(DataFrame.unionAll, kept), "t", "r"))


def tagged_ids(workspace) -> Counter:
    rows = columns(workspace, "s_tagged", "t", "rule_ids")
    assert all(ids == sorted(ids) for _, ids in rows)
    return Counter((t, rule_id) for t, ids in rows for rule_id in ids)


def assert_exact(workspace, rules=RULES) -> None:
    """Every source row is tagged or in quarantine, once; tags, matches and what Spark says of the rows agree."""
    times, expected = expected_of(workspace, rules, "id IS NOT NULL")
    tagged = columns(workspace, "s_tagged", "t", "rule_ids")
    refused = columns(workspace, "quarantine_s", "t")
    assert Counter(t for t, *_ in [*tagged, *refused]) == times
    assert tagged_ids(workspace) == expected
    assert Counter(columns(workspace, "s_matches", "t", "rule_id")) == expected


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


def test_other_columns_pass_unchanged_and_ours_come_last(prepared) -> None:
    workspace = prepared()
    tag_stream(workspace, "s")
    source = source_of(workspace)
    tagged = read(workspace, "s_tagged")
    added = ["rule_ids", "rules_version", "index_fingerprint", "source_version", "tagged_at"]
    assert tagged.columns == [*source.columns, *added]
    assert [f.dataType for f in tagged.schema][:-5] == [f.dataType for f in source.schema]
    text = functions.expr("to_json(doc)" if _with_variant else "doc")
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
def test_only_what_is_new_is_tagged_and_with_the_newest_rules(prepared, add_rules, spark) -> None:
    workspace = prepared()
    tag_stream(workspace, "s")
    assert not tag_is_due(workspace, "s")
    assert tag_stream(workspace, "s").batches == 0
    append(spark, workspace, 200, 260)
    add_rules(workspace, ("late", "s", "x >= 0"))
    compile_scopes(workspace)
    assert tag_is_due(workspace, "s")
    result = tag_stream(workspace, "s")
    assert (result.rows, result.rules_version) == (60, 2)
    tagged = columns(workspace, "s_tagged", "id", "rule_ids", "rules_version")
    assert min(id for id, ids, _ in tagged if "late" in ids) == 200
    assert {(id >= 200, version) for id, _, version in tagged} == {(False, 1), (True, 2)}


@pytest.mark.parametrize("max_bytes", ["1", pytest.param("1g", marks=pytest.mark.soak)])
def test_micro_batches_are_bounded(prepared, max_bytes: str) -> None:
    workspace = prepared(max_bytes_per_batch=max_bytes)
    result = tag_stream(workspace, "s")
    files = workspace.spark.read.format("delta").load(workspace.configuration.streams["s"].source).inputFiles()
    assert result.batches == (len(files) if max_bytes == "1" else 1)
    assert_exact(workspace)


@LOCALLY
def test_optimize_between_runs_adds_no_row(prepared, spark) -> None:
    workspace = prepared()
    tag_stream(workspace, "s")
    spark.sql(f"OPTIMIZE delta.`{workspace.configuration.streams['s'].source}`")
    append(spark, workspace, 200, 220)
    assert tag_stream(workspace, "s").rows == 20
    assert_exact(workspace)


@pytest.mark.parametrize(
    ("way", "statement"),
    [
        ("workers", "UPDATE {0} SET x = 1 WHERE id = 5"),
        ("local", "DELETE FROM {0} WHERE id = 5"),
        pytest.param("workers", "DELETE FROM {0} WHERE id = 5", marks=pytest.mark.soak),
        ("local", "DELETE FROM {0} WHERE id > 150"),
        pytest.param("workers", "DELETE FROM {0} WHERE id > 150", marks=pytest.mark.soak),
    ],
    indirect=["way"],
)
def test_a_changed_source_stops_the_stream_and_says_the_way_out(prepared, spark, statement: str) -> None:
    workspace = prepared()
    tag_stream(workspace, "s")
    spark.sql(statement.format(f"delta.`{workspace.configuration.streams['s'].source}`"))
    append(spark, workspace, 300, 320)
    with pytest.raises(SourceChangedError, match="--restart"):
        tag_stream(workspace, "s")
    result = tag_stream(workspace, "s", skip_changes=True)
    assert result.rows == 20
    tag_stream(workspace, "s", restart=True)
    assert_exact(workspace)
    assert not tag_is_due(workspace, "s")


@LOCALLY
def test_a_source_made_again_stops_the_stream(prepared, spark) -> None:
    workspace = prepared()
    tag_stream(workspace, "s")
    shutil.rmtree(workspace.configuration.streams["s"].source)
    append(spark, workspace, 0, 20)
    assert tag_is_due(workspace, "s")
    (standing,) = status(workspace)
    assert "made again" in str(standing.problem) and standing.lag_versions is None
    with pytest.raises(SourceChangedError, match="made again"):
        tag_stream(workspace, "s")
    tag_stream(workspace, "s", restart=True)
    assert_exact(workspace)


@BOTH
def test_a_new_source_column_appears_and_a_changed_type_is_an_error(prepared, spark) -> None:
    workspace = prepared()
    tag_stream(workspace, "s")
    source = workspace.configuration.streams["s"].source
    wider = source_rows(spark, 200, 210).withColumn("extra", functions.lit("new"))
    wider.write.format("delta").mode("append").option("mergeSchema", "true").save(source)
    tag_stream(workspace, "s")
    counts = read(workspace, "s_tagged").groupBy("extra").count().collect()
    assert {tuple(row) for row in counts} == {(None, 190), ("new", 9)}
    spark.sql(f"ALTER TABLE delta.`{source}` SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    spark.sql(f"ALTER TABLE delta.`{source}` ALTER COLUMN amount TYPE DECIMAL(20, 3)")
    source_rows(spark, 210, 220).withColumn("amount", functions.expr("CAST(amount AS DECIMAL(20, 3))")).write.format(
        "delta"
    ).mode("append").save(source)
    with pytest.raises((SourceChangedError, IndexOutdatedError), match="amount"):
        tag_stream(workspace, "s")
    compile_scopes(workspace)
    with pytest.raises(SourceChangedError, match=r"amount was decimal\(12,3\) and is now decimal\(20,3\)"):
        tag_stream(workspace, "s")
    assert tag_stream(workspace, "s", restart=True).rows == 220


@LOCALLY
@pytest.mark.parametrize(("start", "rows"), [("earliest", 200), (1, 80), (5, 0), ("2001-01-01", 200)])
def test_start(prepared, start: Any, rows: int) -> None:
    workspace = prepared(start=start)
    assert tag_stream(workspace, "s").rows == rows


@BOTH
def test_output_matched_writes_only_rows_with_a_rule(prepared) -> None:
    rules = RULES[:3]
    workspace = prepared(rules, output="matched")
    result = tag_stream(workspace, "s")
    expected = expected_ids(workspace, rules)
    assert tagged_ids(workspace) == expected
    assert len(columns(workspace, "s_tagged", "t")) == len({t for t, _ in expected})
    assert (result.rows, result.matches) == (200, sum(expected.values()))


@BOTH
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
        ("workers", [], "bigint"),
        ("spark", NONE, "bigint"),
        ("spark", [], "string"),
        *(
            pytest.param(way, rules, id_type, marks=pytest.mark.soak)
            for way, rules, id_type in (
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


@WORKERS
def test_validity_is_half_open_on_the_event_time(prepared) -> None:
    first, last = datetime(2024, 1, 1, 0, 10, tzinfo=UTC), datetime(2024, 1, 1, 0, 20, tzinfo=UTC)
    rule = {"rule_id": "r", "scope": "s", "expression": "x >= 0", "valid_from": first, "valid_to": last}
    workspace = prepared([rule])
    tag_stream(workspace, "s")
    ids = {id for id, rules in columns(workspace, "s_tagged", "id", "rule_ids") if rules}
    assert ids == set(range(10, 20))


def test_no_key_keeps_no_matches_and_no_quarantine(prepared) -> None:
    workspace = prepared(key=[])
    result = tag_stream(workspace, "s")
    assert (result.rows, result.quarantined) == (200, 0)
    assert result.matches == sum(expected_ids(workspace, where="TRUE").values())
    assert not workspace.lake.exists("s_matches")
    assert not workspace.lake.exists("quarantine_s")


def test_checks_send_rows_to_quarantine_with_the_reason(prepared) -> None:
    checks = {"small": "x < 95", "named": "name <> 'n2'", "sound": "100 / (x - 50) < 1000"}
    workspace = prepared(checks=checks)
    result = tag_stream(workspace, "s")
    source = source_of(workspace)
    good = "id IS NOT NULL AND x < 95 AND name <> 'n2' AND x <> 50"
    found = {id for (id,) in columns(workspace, "s_tagged", "id")}
    assert found == {row["id"] for row in source.filter(good).select("id").collect()}
    assert len(found) == 200 - result.quarantined
    reasons = dict(columns(workspace, "quarantine_s", "id", "reason"))
    assert reasons[50] == "the check sound raised an error"
    assert reasons[97] == "the check small is FALSE; the check named is FALSE"
    assert reasons[11] == "the check named is NULL"


@pytest.mark.parametrize(
    ("condition", "message"),
    [("nope > 1", "nope"), ("x", "check bad"), ("x > rand()", "rand"), ("x > > 1", "check bad")],
)
def test_a_check_that_cannot_be_used(prepared, condition: str, message: str) -> None:
    workspace = prepared(checks={"bad": condition})
    with pytest.raises(CheckError, match=message):
        tag_stream(workspace, "s")
    assert batches(workspace.lake, "s") == []


def test_too_large_a_share_in_quarantine_stops_before_the_first_write(prepared, new_workspace) -> None:
    workspace = prepared(max_quarantine_share=0.01)
    with pytest.raises(QuarantineShareError, match="10 of the next 200 rows"):
        tag_stream(workspace, "s")
    assert batches(workspace.lake, "s") == []
    assert tag_stream(new_workspace({"s": STREAM}), "s").rows == 200


def test_without_an_index(new_workspace, spark) -> None:
    workspace = new_workspace({"s": STREAM})
    with pytest.raises(SourceError, match="no source yet"):
        tag_stream(workspace, "s")
    append(spark, workspace, 0, 10)
    with pytest.raises(NoIndexError, match="deltatag compile s"):
        tag_stream(workspace, "s")


@BOTH
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
def test_rules_that_only_spark_can_evaluate(prepared) -> None:
    rules = [
        ("function", "s", "upper(name) = 'N3'"),
        ("array", "s", "tags['k'][0] > 150"),
        ("json", "s", "get_json_object(concat('{', x, '}'), '$') IS NULL"),
        *([("variant", "s", "variant_get(doc, '$.id', 'bigint') % 7 = 0")] if _with_variant else []),
        ("both", "s", "length(name) = 2 AND x > 30"),
    ]
    workspace = prepared(rules)
    tag_stream(workspace, "s")
    assert_exact(workspace, rules)


def test_a_table_with_a_constraint_is_left_to_spark_which_keeps_it(prepared, spark) -> None:
    workspace = prepared()
    tag_stream(workspace, "s")
    place = f"delta.`{workspace.lake.uri('s_tagged')}`"
    spark.sql(f"ALTER TABLE {place} ADD CONSTRAINT few CHECK (x < 50 OR t < TIMESTAMP '2024-01-01 10:00:00')")
    append(spark, workspace, 800, 810)
    tag_stream(workspace, "s")
    append(spark, workspace, 860, 870)
    with pytest.raises(TableError, match="few"):
        tag_stream(workspace, "s")
    spark.sql(f"ALTER TABLE {place} DROP CONSTRAINT few")
    tag_stream(workspace, "s")
    assert_exact(workspace)


def test_workers_do_not_write_a_table_that_refuses_nulls(new_workspace, spark) -> None:
    lake = new_workspace({}).lake
    wanted = spark.sql("SELECT 1L AS id, 's' AS name").schema.jsonValue()["fields"]
    for name, id_type in (("free", "BIGINT"), ("strict", "BIGINT NOT NULL")):
        spark.sql(f"CREATE TABLE delta.`{lake.uri(name)}` (id {id_type}, name STRING) USING DELTA")
    assert layout_of(lake, "free", wanted) == Layout()
    assert layout_of(lake, "strict", wanted) is None


EXTREMES = """VALUES
    (1, 'NaN'::DOUBLE, TIMESTAMP '0001-01-01 00:00:00', DATE '0001-01-01', '\uffee', 0.1BD, 127Y),
    (2, -0.0D, TIMESTAMP '2024-01-01 00:00:00.001999', DATE '9999-12-31', 'a', 99999999.9BD, -128Y),
    (3, 'Infinity'::DOUBLE, TIMESTAMP '1500-02-01 12:00:00', DATE '1582-10-20', repeat('z', 70), NULL, 0Y),
    (4, NULL, TIMESTAMP '294000-01-01 00:00:00', NULL, concat(repeat('z', 63), '\U0001f600\U0001f600'), -0.1BD, NULL),
    (5, '-Infinity'::DOUBLE, NULL, DATE '-0044-03-15', '', 0.0BD, 1Y)
    AS v(id, f, t, d, s, n, b)"""


def test_statistics_of_written_files_hide_no_row(new_workspace, add_rules, spark) -> None:
    """Each row in a file of its own; each value looked for by every comparison, files passed over or not."""
    workspace = new_workspace({"s": {"source": "lake/source", "key": ["id"], "max_bytes_per_batch": 1}})
    for row in range(1, 6):
        frame = spark.sql(f"SELECT * FROM {EXTREMES} WHERE id = {row}").coalesce(1)
        frame.write.format("delta").mode("append").save(workspace.configuration.streams["s"].source)
    add_rules(workspace, ("one", "s", "f > 5 OR s > 'zz'"))
    compile_scopes(workspace)
    assert tag_stream(workspace, "s").batches == 5
    tagged = read(workspace, "s_tagged")
    same = workspace.spark.read.format("delta").load(workspace.configuration.streams["s"].source)
    assert tagged.select(same.columns).exceptAll(same).count() == 0
    columns = ("f", "t", "d", "s", "n", "b")
    values = "UNION ALL ".join(f"SELECT '{c}' AS c, CAST({c} AS STRING) AS v FROM held " for c in columns)
    same.createOrReplaceTempView("held")
    tagged.createOrReplaceTempView("tagged_rows")
    compared = [
        f"{c} {operator} CAST('{v}' AS {dict(same.dtypes)[c]})"
        for c, v in workspace.spark.sql(values).collect()
        if v is not None and not v.startswith(("+", "-0044"))
        for operator in ("=", "<", ">=", "<=>")
    ]
    counted = ", ".join(f"count_if({condition})" for condition in compared)
    whole = workspace.spark.sql(f"SELECT {counted} FROM held").first()
    parts = " UNION ALL ".join(
        f"SELECT {i} AS i, count(*) AS n FROM tagged_rows WHERE {c}" for i, c in enumerate(compared)
    )
    found = {row["i"]: row["n"] for row in workspace.spark.sql(parts).collect()}
    assert {c: found[i] for i, c in enumerate(compared)} == dict(zip(compared, whole, strict=True))


@pytest.mark.parametrize(
    ("way", "versions"),
    [
        ("workers", 2),
        ("spark", 1),
        *(pytest.param(*each, marks=pytest.mark.soak) for each in (("workers", 1), ("spark", 2))),
    ],
    indirect=["way"],
)
def test_hours_and_literals_are_those_of_the_rules_time_zone(new_workspace, add_rules, spark, versions: int) -> None:
    zone = {"time_zone": "America/New_York"}
    workspace = new_workspace({"s": STREAM}, zone)
    rules = [("night", "s", "hour(t) >= 20"), ("day", "s", "t < TIMESTAMP '2023-12-31 19:01:00'")]
    step = 120 // versions
    for start in range(0, 120, step):
        append(spark, workspace, start, start + step)
    add_rules(workspace, *rules)
    assert not [r.error for r in compile_scopes(workspace) if r.error]
    tag_stream(workspace, "s")
    assert_exact(workspace, rules)
    assert Counter(rule for _, rule in tagged_ids(workspace).elements()) == {"day": 1, "night": 57}


def test_a_partitioned_source_with_deletion_vectors_and_char_columns(new_workspace, add_rules, spark) -> None:
    workspace = new_workspace({"s": {"source": "lake/source"}})
    source = f"delta.`{workspace.configuration.streams['s'].source}`"
    spark.sql(
        f"CREATE TABLE {source} (id BIGINT, p STRING, c CHAR(5), v VARCHAR(9)) USING DELTA PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    spark.sql(f"INSERT INTO {source} SELECT id, IF(id % 2 = 0, 'a b', NULL), 'abc', 'vw' FROM range(0, 50, 1, 1)")
    spark.sql(f"DELETE FROM {source} WHERE id IN (3, 4)")
    add_rules(workspace, ("p", "s", "p = 'a b'"), ("v", "s", "v = 'vw' AND id < 10"), ("c", "s", "c = 'abc'"))
    assert compile_scopes(workspace)[0].rejects == 0
    assert tag_stream(workspace, "s").rows == 48
    tagged = read(workspace, "s_tagged")
    for rule, condition in (("p", "p = 'a b'"), ("v", "v = 'vw' AND id < 10"), ("c", "c = 'abc'")):
        expected = {row["id"] for row in spark.sql(f"SELECT id FROM {source} WHERE {condition}").collect()}
        found = {row["id"] for row in tagged.filter(functions.array_contains("rule_ids", rule)).collect()}
        assert found == expected, rule


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
