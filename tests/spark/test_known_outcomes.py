"""What Spark does not evaluate since it knows the outcome: tests for NULL of what never is, and other shapes."""

from __future__ import annotations

from itertools import product

import pyarrow as pa
import pyarrow.parquet as pq

from tests.cases import SOAK, some_of
from tests.spark.tagged_rules import reference_session
from tests.spark_oracle import Oracle, Tally, compare

RAISING = ["CAST(s AS INT)", "1 / i", "l + 9223372036854775807", "element_at(array(i), 2)", "i"]
VALUES = [
    "{v}",
    "coalesce({v}, 0)",
    "named_struct('a', {v})",
    "array({v}, 1)",
    "CASE WHEN i > 0 THEN 1 ELSE coalesce({v}, 2) END",
    "concat('a', CAST(coalesce({v}, 1) AS STRING))",
    "nvl(nullif({v}, 1), 2)",
]
CONDITIONS = [
    "{v} > 1",
    "coalesce({v}, 0) > 1",
    "(1, {v}) = (2, 3)",
    "named_struct('a', {v}) <> named_struct('a', 1)",
    "coalesce({v}, 0) IN (1, 2)",
    "coalesce({v}, 0) BETWEEN 0 AND 2",
    "CASE WHEN {v} > 1 THEN TRUE ELSE FALSE END",
    "coalesce({v} > 1, FALSE)",
    "CAST(coalesce({v}, 0) AS STRING) LIKE '1%'",
]
TESTS = [
    "({x}) IS NULL",
    "({x}) IS NOT NULL",
    "isnull({x})",
    "NOT isnotnull({x})",
    "({x}) <=> NULL",
    "nvl2({x}, b, NOT b)",
    "CASE WHEN ({x}) IS NULL THEN b ELSE NOT b END",
    "if(isnotnull({x}) OR b, i > 0, i < 0)",
]
TRUTHS = ["({x}) IS UNKNOWN", "({x}) IS NOT UNKNOWN", "({x}) IS TRUE", "({x}) IS NOT FALSE"]

SIMPLER = """
    i + 2147483647 + -2147483647 > 0
    2147483646 + i + 1 > 0
    (i + 1) + (i + 2) + 3 > 6
    i * 2 * 1073741823 > 0
    2 * i * i * 3 > 5
    l + 1 + i + 9223372036854775806 > 0
    l + 1 - 9223372036854775807 < 0
    i + NULL + 1 > 0
    CASE WHEN {v} > 1 THEN 5 ELSE 5 END = 5
    CASE WHEN b THEN 1 WHEN {v} > 1 THEN 2 ELSE 2 END = 2
    CASE {v} WHEN 1 THEN 1 ELSE 1 END = 1
    if({v} > 1, i, i) > 0
    if({v} > 1, TRUE, TRUE)
    if({v} > 1, 1, 2) + 0 > 0
    (if({v} > 1, 1, 2) + 0) * 3 > 0 OR i < 5
    if({v} > 1, 1, 2) + i > 0
    if({v} > 1, 'true', 'yes') OR i > 100
    b AND lower(if({v} > 1, 'TRUE', 'yes'))
    NOT concat(if({v} > 1, 't', 'f'), 'rue') OR b
    i < 5 AND soundex(if({v} > 1, 'a', 'b')) OR b IS NULL
    if({v} > 1, 'ab', 'ac') LIKE 'a%'
    if({v} > 1, 'ab', 'ac') LIKE '%a%'
    if({v} > 1, 'ab', 'ac') RLIKE 'a'
    if({v} > 1, 'ab', 'ac') NOT IN ('x', 'y')
    startswith(if({v} > 1, 'ab', 'ac'), 'a')
    contains(if({v} > 1, 'ab', 'ac'), 'a')
    upper(if({v} > 1, 'ab', 'ac')) > 'A'
    length(if({v} > 1, 'ab', s)) = 2
    CAST(if({v} > 1, 1, 2) AS BIGINT) > 0
    CAST(if({v} > 1, 1, 2) AS BOOLEAN)
    abs(if({v} > 1, 1, -1)) = 1
    coalesce(if({v} > 1, 1, 2), 3) > 0
    if(if({v} > 1, 1, 2) + 0 > 0, i < 5, i > 5)
    CASE WHEN i > 100 THEN 0 WHEN {v} > 1 THEN 1 ELSE 2 END + 0 > 0
    CASE WHEN {v} > 1 THEN 'x' END = 'y' OR i < 5
    NOT (CASE WHEN {v} > 1 THEN 'x' END = 'y') OR i < 5
    CASE WHEN i > 100 THEN 'x' WHEN {v} > 1 THEN 'y' END = 'x' OR i < 5
    if({v} > 1, NULL, 1) > 1 OR i < 5
    2 < if({v} > 1, NULL, 1) OR i < 5
    if(if({v} > 1, NULL, 1) > 1, i < 5, i > 5)
    coalesce({v}, 0) = coalesce({v}, 0)
    coalesce({v}, 0) <= coalesce({v}, 0)
    NOT (coalesce({v}, 0) < coalesce({v}, 0))
    coalesce({v}, 0) BETWEEN coalesce({v}, 0) AND coalesce({v}, 0)
    (coalesce({v}, 0) = 1) = (coalesce({v}, 0) = 1)
    {v} <=> {v}
    {v} = {v}
    coalesce({v}, 0) > 1 OR NOT coalesce({v}, 0) > 1
    coalesce({v}, 0) > 1 AND NOT coalesce({v}, 0) > 1
    NOT (coalesce({v}, 0) > 1 AND coalesce({v}, 0) <= 1)
    coalesce({v}, 0) > 1 OR coalesce({v}, 0) <= 1
    coalesce({v}, 0) = 1 OR b OR coalesce({v}, 0) <> 1
    coalesce({v}, 0) = 1 OR coalesce({v}, 0) = 1 OR coalesce({v}, 0) <> 1
    coalesce({v}, 0) IN (1, 2) OR coalesce({v}, 0) NOT IN (1, 2)
    coalesce({v} > 1, FALSE) OR NOT coalesce({v} > 1, FALSE)
    b AND (coalesce({v} > 1, FALSE) OR NOT coalesce({v} > 1, FALSE))
    (coalesce({v}, 0) > 1 AND b) OR NOT (coalesce({v}, 0) > 1 AND b)
    coalesce({v}, 0) <=> 1 OR NOT coalesce({v}, 0) <=> 1
    {v} > 1 OR NOT {v} > 1
    {v} = NULL
    {v} <> NULL OR b
    NOT ({v} > NULL) AND b
    b OR NULL <= {v}
    ({v} < CAST(NULL AS STRING)) IS NULL
    CAST({v} AS STRING) LIKE NULL OR b
    CAST({v} AS STRING) NOT RLIKE NULL OR b
    {v} BETWEEN NULL AND 2
    {v} NOT BETWEEN 0 AND NULL
    {v} IN (NULL) OR b
    NOT ({v} IN (NULL, CAST(NULL AS INT))) AND b
    ({v} IN (NULL, NULL)) IS NULL
    {v} NOT IN (1, NULL) OR b
    (i, CAST({v} AS INT)) = (7, 1) OR i = 1
    (i, CAST({v} AS INT)) <> (7, 1)
    (CAST({v} AS INT), i) <=> (7, 1)
    (i, CAST({v} AS INT)) IN ((7, 1), (1, 1))
    (i, CAST({v} AS INT)) NOT IN ((7, 1), (9, 1))
    (i, CAST({v} AS INT)) IS DISTINCT FROM (7, 1)
"""
"""What Spark makes simpler before it evaluates anything, so that less raises, or other parts do."""


def test_rows_are_those_that_spark_keeps(spark, tmp_path) -> None:
    table = pa.table(
        {
            "pk": pa.array(range(6), pa.int64()),
            "s": ["1", "x", None, "2", "", "3"],
            "i": pa.array([0, 1, None, 2, -1, 0], pa.int32()),
            "l": pa.array([0, 1, None, -1, 2**62, 5], pa.int64()),
            "b": pa.array([True, False, None, True, True, False]),
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    session = reference_session(spark, "UTC")
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    tested = [
        *product(VALUES, TESTS),
        *product(CONDITIONS, [*TESTS, *TRUTHS]),
    ]
    texts = [test.format(x=value.format(v=raising)) for raising in RAISING for value, test in tested]
    texts = some_of(texts, 3)
    texts += [text.strip().format(v=raising) for raising in RAISING for text in SIMPLER.strip().splitlines()]
    tally = Tally()
    compare(Oracle(session, session.read.parquet(str(tmp_path / "rows.parquet"))), table, texts, tally)
    assert not tally.differences, "\n".join(map(str, tally.differences[:10])) + f"\n{tally}"
    assert tally.compared > (700 if SOAK else 250) and tally.with_errors > (100 if SOAK else 35)
