"""Rows of every kind for tests of tagging, and what Spark's own WHERE says of them."""

from __future__ import annotations

from collections import Counter
from functools import reduce

import pytest
from pyspark.sql import DataFrame, functions

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
WITH_VARIANT = False
"""Whether the rows have a column that leaves the writing to Spark; the fixture `way` sets it."""


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
    return rows if WITH_VARIANT else rows.withColumn("doc", functions.expr("to_json(doc)"))


def append(spark, workspace, start: int, stop: int) -> None:
    append_to(spark, workspace.configuration.streams["s"].source, start, stop)


def append_to(spark, path: str, start: int, stop: int) -> None:
    source_rows(spark, start, stop).coalesce(2).write.format("delta").mode("append").save(path)


def read(workspace, name: str):
    return workspace.spark.read.format("delta").load(workspace.lake.uri(name))


def columns(workspace, name: str, *names: str) -> list[tuple]:
    """Rows as tuples, read by delta-rs where it knows the table's types."""
    return spark_columns(read(workspace, name), *names) if WITH_VARIANT else columns_of(workspace, name, *names)


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
