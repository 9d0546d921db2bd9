"""AND and OR within a larger expression, where Spark's optimiser knows the result without an operand that raises."""

from __future__ import annotations

import pyarrow as pa
import pytest

import rules_index as ri

SCHEMA = pa.schema({"i": pa.int32(), "s": pa.string()})
ROW = {"i": 0, "s": "x"}
RAISING = ("1 / i > 0", "s = 1", "CAST(s AS DATE) > DATE'2024-01-01'")
DECIDED = (
    "(({r}) OR TRUE) IS TRUE",
    "(({r}) OR i > 0 OR 1 = 1) IS TRUE",
    "(({r}) AND FALSE) IS FALSE",
    "(({r}) AND NOT TRUE) <=> FALSE",
    "(({r}) AND NOT (TRUE OR i > 0)) <=> FALSE",
    "coalesce(({r}) OR 'a' = 'a', FALSE)",
    "CASE WHEN ({r}) AND NULL AND FALSE THEN 1 ELSE 2 END = 2",
    "IF(TRUE AND (({r}) OR TRUE), 1, 2) = 1",
    "IF(5 BETWEEN i + 1 AND 3, 1, 2) = 2",
    "IF({r}, 1, 2) <> 3",
    "3.5 > IF({r}, 1, 2) AND IF({r}, 1, 2) BETWEEN 1 AND 2",
    "NOT (CASE WHEN {r} THEN 'a' WHEN i > 7 THEN 'b' ELSE 'c' END = 'z')",
    "coalesce(IF({r}, 1, 2) <= 2, FALSE)",
)
LEFT_TO_SPARK = (
    "(({r}) OR 1 IN (1, 2)) IS TRUE",
    "(({r}) OR (i > 0 OR i <= 0)) IS TRUE",
    "((i > 0 OR ({r})) AND i > 0) IS FALSE",
    "((({r}) AND i > 5) OR i > 5) IS FALSE",
    "(i > 5 AND (i <= 5 OR ({r}))) IS FALSE",
    "IF(({r}) AND i NOT IN (1, NULL), 1, 2) = 2",
    "IF(NOT (({r}) OR i IN (1, NULL)), 1, 2) = 2",
    "IF(({r}) AND (i > 0 AND NOT i IN (1, NULL)), 1, 2) = 2",
    "IF(({r}) AND i <> NULL, 1, 2) = 2",
    "IF(s LIKE ANY ('a%', NULL) AND ({r}), 1, 2) = 2",
    "coalesce(({r}) = NULL, TRUE)",
    "IF(({r}) NOT IN (TRUE, NULL), 1, 2) = 2",
)


@pytest.mark.parametrize("raising", RAISING)
@pytest.mark.parametrize("text", DECIDED)
def test_a_constant_that_decides_the_result(text: str, raising: str) -> None:
    compiled = ri.compile_rules([("r", text.format(r=raising))], SCHEMA)
    assert compiled.derived == ()
    assert compiled.match_one(ROW) == ["r"]
    assert compiled.match(pa.Table.from_pylist([ROW], schema=SCHEMA)).to_pylist() == [["r"]]
    assert compiled.errors == {}


@pytest.mark.parametrize("raising", RAISING)
@pytest.mark.parametrize("text", LEFT_TO_SPARK)
def test_only_spark_knows_what_it_does_not_evaluate(text: str, raising: str) -> None:
    assert ri.compile_rules([("r", text.format(r=raising))], SCHEMA).derived


@pytest.mark.parametrize("text", ["(({r}) OR i > 0) IS NOT TRUE", "IF(i > 0 OR ({r}), 1, 2) = 2", "IF({r}, 1, 2) = 2"])
@pytest.mark.parametrize("raising", RAISING)
def test_an_operand_that_decides_nothing_raises(text: str, raising: str) -> None:
    compiled = ri.compile_rules([("r", text.format(r=raising))], SCHEMA)
    assert compiled.derived == ()
    assert compiled.match(pa.Table.from_pylist([ROW], schema=SCHEMA)).to_pylist() == [[]]
    assert compiled.errors == {"r": 1}
