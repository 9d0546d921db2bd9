"""Casts and parts that Spark's optimiser leaves out, and what that means for a rule."""

from __future__ import annotations

import pyarrow as pa
import pytest

import rules_index as ri

SCHEMA = pa.schema({"i": pa.int32(), "l": pa.int64(), "x": pa.float64(), "s": pa.string(), "d": pa.date32()})


def matches(text: str, row: dict[str, object]) -> bool:
    compiled = ri.compile_rules([("r", text)], SCHEMA)
    assert compiled.rejects.num_rows == 0 and compiled.derived == ()
    return compiled.match(pa.Table.from_pylist([row], SCHEMA)).to_pylist() == [["r"]]


@pytest.mark.parametrize(
    "text",
    [
        "float(i) = 16777217",
        "CAST(CAST(l AS FLOAT) AS DOUBLE) = 16777217",
        "CAST(try_cast(i AS FLOAT) AS DOUBLE) = 16777217",
        "float(i) IN (16777217, 5)",
        "float(i) BETWEEN 16777217 AND 16777218",
        "float(i) > x",
        "float(l) = i",
        "float(i) * 2D = 33554434",
        "greatest(float(i), x) = 16777217",
        "if(float(i) = 16777217, 1, 2) + i = 16777218",
    ],
)
def test_an_integer_is_not_rounded_to_a_float_on_its_way_to_a_double(text: str) -> None:
    """In Spark's WHERE, `CAST(CAST(16777217 AS FLOAT) AS DOUBLE)` of a column is 16777217."""
    row = {"i": 16777217, "l": 16777217, "x": 16777216.5}
    assert matches(text, row)


@pytest.mark.parametrize("text", ["float(i) = 16777217F", "float(i) + 0F = 16777216", "CAST(float(i) AS BIGINT) < i"])
def test_a_float_by_itself_is_rounded(text: str) -> None:
    assert matches(text, {"i": 16777217})


@pytest.mark.parametrize(
    "text",
    [
        "NOT (CAST(s AS INT) <=> 1.5)",
        "CAST(s AS INT) = 1.5",
        "CAST(s AS INT) IN (1.5, 2.5)",
        "coalesce(NOT (CAST(s AS INT) <=> 1.5), FALSE)",
        "NOT (CAST(s AS DATE) <=> TIMESTAMP'2024-01-01 12:00:00')",
    ],
)
def test_only_spark_knows_whether_it_evaluates_what_equals_no_value(text: str) -> None:
    """`CAST('x' AS INT) <=> 1.5` is FALSE in Spark's WHERE, and raises nothing."""
    assert ri.compile_rules([("r", text)], SCHEMA).derived


@pytest.mark.parametrize("text", ["i <=> 1.5", "CAST(s AS INT) > 1.5", "CAST(s AS INT) = 2.0"])
def test_other_comparisons_need_no_spark(text: str) -> None:
    assert ri.compile_rules([("r", text)], SCHEMA).derived == ()


@pytest.mark.parametrize(
    "text",
    ["nullif(float(i), 1D) = 16777217", "if(l > 5, 0F, float(i)) + 0D > 5", "if(l > 5, 0F, float(i)) IN (16777217D)"],
)
def test_spark_rounds_the_branches_of_a_case(text: str) -> None:
    """Spark moves the cast to DOUBLE into the branches if it knows all but one of them."""
    assert len(ri.compile_rules([("r", text)], SCHEMA).derived) == 1


def test_a_condition_that_spark_moves_is_left_to_spark_beside_a_list() -> None:
    """A list that is compared with such a CASE is not: Spark, which knows no lists, would refuse it."""
    lists = [ri.value_list("some", pa.array([1, 5], pa.int32()))]
    moved = "if(1 / i > 0, 1, 2) + 0 > 0"
    compiled = ri.compile_rules([("moved", f"{moved} OR l IN LIST('some')")], SCHEMA, lists=lists)
    assert compiled.rejects.num_rows == 0 and [leaf.text for leaf in compiled.derived] == [moved]
    compiled = ri.compile_rules([("listed", "if(1 / i > 0, 1, 2) + 0 IN LIST('some')")], SCHEMA, lists=lists)
    assert compiled.rejects.num_rows == 0 and not compiled.derived
