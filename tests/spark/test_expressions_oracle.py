"""The formula of a rule says on every row what Spark's WHERE says, and counts the rows on which Spark raises."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.cases import soak_rest

from . import expressions_oracle as oracle
from .expressions_generator import Generator
from .expressions_rows import rows

CASES = [
    line
    for line in (Path(__file__).parent / "expressions.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
RANDOM_RULES = int(os.environ.get("DELTATAG_RANDOM_RULES", "80"))


def faults(outcomes: list[oracle.Outcome]) -> list[str]:
    """What is wrong, one line for each rule."""
    found = []
    for outcome in outcomes:
        if outcome.error is not None:
            if outcome.spark_error is None:
                found.append(f"refused ({outcome.error.error}: {outcome.error.message}): {outcome.text}")
            continue
        if outcome.spark_error is not None:
            continue  # the derived columns are analysed by Spark before they are used
        found += [
            f"row {row}, Spark {outcome.spark[row]}, ours {outcome.ours[row]}: {outcome.text}"
            for row in outcome.differences()[:1]
        ]
        for row, answer in enumerate(outcome.spark):
            if answer == oracle.RAISED and not outcome.raised[row]:
                found.append(f"row {row} raises uncounted: {outcome.text}")
                break
    return found


def test_every_construct_of_the_language(spark: SparkSession) -> None:
    """A table of rules, each evaluated by Spark and by its formula."""
    assert faults(oracle.compare(spark, rows(), CASES)) == []


def test_random_rules(spark: SparkSession) -> None:
    """Random rules over every type; DELTATAG_RANDOM_RULES says how many."""
    generator = Generator(20260101)
    found = []
    for start in range(0, RANDOM_RULES, 400):
        texts = [generator.rule() for _ in range(min(400, RANDOM_RULES - start))]
        found += faults(oracle.compare(spark, rows(40, seed=start), texts))
    assert found == []


@pytest.mark.parametrize("zone", soak_rest(2, ["Europe/Berlin", "Europe/Amsterdam", "America/New_York", "+05:30"]))
def test_time_zones(spark: SparkSession, zone: str) -> None:
    """Timestamps without a zone are read in the session's."""
    moments = [
        "'2024-03-31 02:30:00'",
        "DATE'2024-01-01'",
        "TIMESTAMP'2024-10-27 02:30:00'",
        "'2024'",
        "'1938-07-01 01:30:00'",
    ]
    texts = [
        f"{left} {operator} {right}"
        for operator in ("<", "=", ">=")
        for left in ("ts", "n", "dt")
        for right in (*moments, "n", "ts")
    ]
    assert faults(oracle.compare(spark, rows(40), texts, zone)) == []


def test_a_literal_that_is_evaluated_once_is_none_to_spark(spark: SparkSession) -> None:
    """BETWEEN and NULLIF compare their first operand several times.

    As a literal 5 would be a DECIMAL of one digit. Here it is one of ten, so that digits of `d` are rounded away. No
    comparison with it is decided before the row is seen.
    """
    near = Decimal("5." + "0" * 36 + "1")
    table = pa.table(
        {
            "d": pa.array([near, Decimal(5), None], pa.decimal128(38, 37)),
            "l": pa.array([1, None, 7], pa.int64()),
        }
    )
    beyond = "9223372036854775808"
    texts = [
        *("5 = d", "5 BETWEEN d AND d", "d BETWEEN 5 AND 5", "NOT 5 BETWEEN d AND d", "nullif(5, d) IS NULL"),
        *("nullif(d, 5) IS NULL", "CASE 5 WHEN d THEN TRUE ELSE FALSE END", "5 IN (d)", "5 <=> d", "d <> 5"),
        *(f"{beyond} BETWEEN 1 AND l", f"NOT {beyond} BETWEEN 1 AND l", f"l BETWEEN 1 AND {beyond}", f"{beyond} > l"),
        *(f"NOT {beyond} BETWEEN l AND 9223372036854775809", f"nullif({beyond}, l) IS NULL", f"l NOT IN ({beyond})"),
    ]
    assert faults(oracle.compare(spark, table, texts)) == []
