"""Random expressions over rows of every type: an index's answers against Spark's own, on every row.

DELTATAG_EXPRESSIONS sets how many are compared: 20,000 take about a quarter of an hour.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.random_expressions import Grammar
from tests.random_rows import rows
from tests.spark_oracle import Oracle, Tally, compare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED = 2026
COUNT = int(os.environ.get("DELTATAG_EXPRESSIONS", "120"))
RULES = 150
"""Expressions in one rule set."""

pytestmark = pytest.mark.timeout(60 + COUNT)


def rule_sets(grammar: Grammar, count: int) -> Iterator[list[str]]:
    for start in range(0, count, RULES):
        yield [grammar.rule() for _ in range(min(RULES, count - start))]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return rows(120, SEED)


@pytest.fixture(scope="module")
def file(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("random") / "rows.parquet"
    pq.write_table(table, path)
    return str(path)


def assert_no_difference(
    oracle: Oracle, table: pa.Table, grammar: Grammar, count: int, engine: str, files: Oracle | None = None
) -> None:
    """files: asked again about what differs. Over rows in memory Spark evaluates some expressions before it simplifies
    them; over files, as in production, it simplifies first, which changes what `(upper(s)) ILIKE '_'` means."""
    tally = Tally()
    for texts in rule_sets(grammar, count):
        known = len(tally.differences)
        compare(oracle, table, texts, tally, engine)
        if files is not None and len(tally.differences) > known:
            again = Tally()
            compare(files, table, [each.text for each in tally.differences[known:]], again, engine)
            tally.differences[known:] = again.differences
    print(tally)
    if tally.differences:
        pytest.fail("\n".join(map(str, tally.differences)), pytrace=False)
    assert tally.compared > 0.9 * count and tally.too_costly <= 0.001 * count + 1
    assert tally.with_errors > 0.05 * count


def test_an_index_agrees_with_spark(spark: SparkSession, file: str, table: pa.Table) -> None:
    """Spark holds the rows in memory and interprets the expressions, so many can be compared."""
    oracle = Oracle(spark, spark.createDataFrame(table, schema=spark.read.parquet(file).schema))
    files = Oracle(spark, spark.read.parquet(file))
    assert_no_difference(oracle, table, Grammar(SEED), COUNT, "auto", files)


def test_an_index_agrees_with_spark_over_files(spark: SparkSession, file: str, table: pa.Table) -> None:
    """Spark reads the rows from a file and compiles the expressions, as it does in production; engine `scan`."""
    grammar = Grammar(SEED + 1, variety=0.4)
    assert_no_difference(Oracle(spark, spark.read.parquet(file)), table, grammar, max(60, COUNT // 10), "scan")
