"""A part that raises makes its own rule unknown on its row, whatever Spark's optimiser does to the expression.

DELTATAG_ERROR_SHAPES=all tries every shape with every error; without it a part of them, drawn anew for each way.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pipelines.settings.semantic_settings import SEMANTIC_SETTINGS
from pipelines.spark.catalyst import derived_column
from tests.cases import soak_but
from tests.random_expressions import Grammar
from tests.random_rows import rows
from tests.spark_oracle import AT_ONCE, RAISED, Oracle

pytestmark = pytest.mark.timeout(900)

WAYS = {
    "compiled": {},
    "without whole stages": {"spark.sql.codegen.wholeStage": "false"},
    "stages too large to compile": {"spark.sql.codegen.hugeMethodLimit": "100"},
    "interpreted": {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"},
}
ERRORS = """
    1 / i
    i % i2
    i DIV (i - i)
    CAST(s AS INT)
    element_at(ai, 7)
    ai[i]
    CAST(l AS TINYINT)
    l + 9223372036854775807
    year(to_date(s, 'yyyy-MM-dd'))
    make_date(i, 13, 1) - dt
    aggregate(ai, 0, (a, x) -> a + 2147483647 DIV x)
    get_json_object(s, '$') + i
    1 / 0
    CAST('x' AS INT)
    element_at(array(1), 5)
    year(CAST('x' AS DATE))
    2147483647 + 1
    CAST(1 / 0 AS STRING) * i
"""
"""Numbers that cannot be computed on some rows, or on none."""
SHAPES = """
    {v} > 1
    if({v} > 1, TRUE, FALSE)
    if({v} > 1, FALSE, TRUE)
    if({v} > 1, i IS NULL, FALSE)
    if({v} > 1, TRUE, b)
    if({v} > 1, b, NULL)
    if({v} > 1, NULL, TRUE)
    if({v} > 1, b, b2)
    if(b, {v} > 1, FALSE)
    if(b, {v} > 1, {w} > 1)
    if(if({v} > 1, TRUE, FALSE), TRUE, FALSE)
    if({v} > 1, if({w} > 1, TRUE, FALSE), TRUE)
    NOT if({v} > 1, TRUE, FALSE)
    CASE WHEN {v} > 1 THEN TRUE WHEN b THEN FALSE ELSE TRUE END
    CASE WHEN b THEN FALSE WHEN {v} > 1 THEN TRUE ELSE FALSE END
    CASE WHEN {v} > 1 THEN TRUE WHEN {w} > 1 THEN FALSE END
    CASE WHEN {v} > 1 THEN b ELSE TRUE END
    CASE {v} WHEN 1 THEN TRUE WHEN 2 THEN FALSE ELSE TRUE END
    CASE WHEN {v} > 1 THEN 1 WHEN b THEN 2 ELSE 3 END = 2
    CASE WHEN {v} > 1 THEN 1 WHEN b THEN 2 ELSE 3 END + 1 IN (2, 3)
    CASE WHEN {v} > 1 THEN 'x' ELSE 'y' END LIKE 'x%'
    if({v} > 1, 1, 2) + 1 = 2
    abs(if({v} > 1, 1, -1)) = 1
    length(if({v} > 1, 'a', 'bc')) = 1
    if({v} > 1, 1, 2) <=> NULL
    if({v} > 1, NULL, 1) IS NULL
    if({v} > 1, st, NULL).x = 1
    if({v} > 1, array(1), array(2))[0] = 1
    CAST(if({v} > 1, TRUE, FALSE) AS STRING) = 'true'
    CAST({v} > 1 AS INT) = 1
    CAST(CAST({v} AS STRING) AS DATE) IS NULL
    DATE'2024-01-01' + CAST({v} AS INT) > dt
    coalesce({v} > 1, TRUE)
    coalesce({v} > 1, b, FALSE)
    coalesce({v}, {w}, 0) > 0
    nvl({v} > 1, FALSE)
    nvl2({v}, TRUE, FALSE)
    nullif({v} > 1, TRUE)
    nullif({v}, {w}) IS NULL
    {v} IN (1, 2, 3)
    {v} IN (1, {w}, NULL)
    1 IN ({v}, {w})
    {v} BETWEEN 0 AND 5
    {v} NOT BETWEEN {w} AND 5
    {v} > 1 AND b
    b AND {v} > 1
    {v} > 1 OR b
    b OR {v} > 1
    {v} > 1 OR {v} < 0 OR {v} = 0
    ({v} > 1 AND b) OR ({v} > 1 AND b2)
    NOT ({v} > 1)
    ({v} > 1) IS NULL
    ({v} > 1) IS NOT NULL
    ({v} > 1) IS TRUE
    {v} IS NULL
    {v} IS NOT NULL
    ({v} > 1) <=> b
    ({v} > 1) = ({w} > 1)
    {v} = {v}
    {v} = {w}
    {v} <=> NULL
    greatest({v}, 1) > least({w}, 1)
    exists(array(1, 2), x -> {v} > x)
    exists(ai, x -> if({v} > x, TRUE, FALSE))
    forall(ai, x -> CASE WHEN {v} > 1 THEN TRUE WHEN x > 1 THEN FALSE ELSE TRUE END)
    transform(array({v}), x -> x + 1)[0] > 1
    size(filter(ai, x -> {v} > x)) > 0
    named_struct('a', {v}, 'b', 1).b = 1
    array({v}, 1)[1] = 1
    map('a', {v})['b'] IS NULL
    concat(CAST({v} AS STRING), 'a') RLIKE '^a|1'
    isnan(CAST({v} AS DOUBLE))
"""
"""What Spark's rules for conditions, NULLs, constants, comparisons and common parts rewrite; {v} and {w} raise."""


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


ALL = [shape.replace("{v}", v).replace("{w}", w) for shape, v, w in product(lines(SHAPES), lines(ERRORS), ("1 / i2",))]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    found = tmp_path_factory.mktemp("errors") / "rows.parquet"
    pq.write_table(rows(60, 5), found)
    return str(found)


def session_like(spark: SparkSession, settings: dict[str, str]) -> SparkSession:
    session = spark.newSession()
    for name, value in {**SEMANTIC_SETTINGS, "spark.sql.session.timeZone": "UTC", **settings}.items():
        session.conf.set(name, value)
    return session


def chosen(way: str) -> Iterator[list[str]]:
    """Texts of one query each."""
    draw = random.Random(way)
    grammar = Grammar(3)
    wrapped = lines(SHAPES)[1:10]
    mixed = [
        shape.replace("{v} > 1", f"({grammar.rule()})").replace("{w} > 1", f"({grammar.rule()})")
        for shape in (draw.choice(wrapped) for _ in range(20))
    ]
    texts = ALL if os.environ.get("DELTATAG_ERROR_SHAPES") == "all" else draw.sample(ALL, 40)
    texts = [*mixed, *texts]
    for start in range(0, len(texts), AT_ONCE):
        yield texts[start : start + AT_ONCE]


@pytest.mark.parametrize("way", soak_but(("compiled",), WAYS))
def test_no_error_leaves_its_rule(spark: SparkSession, path: str, way: str) -> None:
    session = session_like(spark, WAYS[way])
    reference = session_like(spark, WAYS["interpreted"])
    oracle = Oracle(reference, reference.read.parquet(path))
    frame = session.read.parquet(path)
    faults, raised, compared = [], 0, 0
    for texts in chosen(way):
        wanted = oracle.truths(texts)
        accepted = [(text, truth) for text, truth in zip(texts, wanted, strict=True) if not isinstance(truth, str)]
        columns = [derived_column(session, text, pa.bool_()).alias(f"c{i}") for i, (text, _) in enumerate(accepted)]
        found = frame.select("pk", *columns).toArrow().sort_by("pk")
        for i, (text, truth) in enumerate(accepted):
            codes = found.column(f"c{i}").to_numpy()
            compared, raised = compared + 1, raised + int((truth == RAISED).sum())
            if not np.array_equal(codes, truth):
                row = int(np.flatnonzero(codes != truth)[0])
                faults.append(f"{text}\n    row {row}: {codes[row]}, Spark {truth[row]}")
    assert "\n".join(faults[:20]) == ""
    assert compared > 40
    assert raised > 300


KNOWN = {
    "CASE WHEN 1 / i > 1 THEN TRUE WHEN b THEN FALSE ELSE TRUE END": [3, 0, 1, 1],
    "if(1 / i > 1, i IS NULL, FALSE)": [3, 0, 0, 0],
    "coalesce(if(1 / i > 0.5, TRUE, FALSE), TRUE)": [3, 1, 0, 0],
    "variant_get(parse_json(s), '$.a', 'int') = 1": [3, 1, 3, 2],
}


@pytest.mark.parametrize("way", soak_but(("compiled", "stages too large to compile"), WAYS))
def test_known_answers(spark: SparkSession, tmp_path: Any, way: str) -> None:
    """A query for each text: Spark would take what is common to several of one out of them."""
    session = session_like(spark, WAYS[way])
    columns = {"n": [0, 1, 2, 3], "i": [0, 1, 2, None], "b": [True, True, False, None]}
    columns["s"] = ["{", '{"a": 1}', '{"a": "x"}', None]
    schema = pa.schema([("n", pa.int32()), ("i", pa.int32()), ("b", pa.bool_()), ("s", pa.string())])
    pq.write_table(pa.table(columns, schema=schema), tmp_path / "rows.parquet")
    for text, wanted in KNOWN.items():
        code = derived_column(session, text, pa.bool_()).alias("code")
        found = session.read.parquet(str(tmp_path / "rows.parquet")).select("n", code).collect()
        assert [row["code"] for row in sorted(found)] == wanted, text
