"""The local evaluator against Spark: every operation on the extremes of every type, errors row by row."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipelines.spark.catalyst import derived_column
from rules_index.language.evaluation.decimals import to_decimal
from rules_index.language.evaluation.evaluate import evaluate
from rules_index.language.evaluation.evaluated import Evaluated
from rules_index.language.typed import Constant, Expression, Leaf, Operation
from tests.cases import soak_but
from tests.java import INTERPRETED
from tests.spark.tagged_rules import reference_session

pytestmark = pytest.mark.spark

INTEGERS = {"tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}
FLOATS = {"float": pa.float32(), "double": pa.float64()}
DECIMALS = {
    f"decimal({p},{s})": pa.decimal128(p, s)
    for p, s in ((1, 0), (5, 2), (10, 10), (18, 6), (20, 0), (38, 0), (38, 18), (38, 38))
}
NUMBERS = INTEGERS | FLOATS | DECIMALS
BOOL = pa.bool_()


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> SparkSession:
    """A session that interprets: code for so many expressions would be compiled longer than it runs."""
    session = reference_session(spark, "UTC")
    for name, value in INTERPRETED.items():
        session.conf.set(name, value)
    return session


def values_of(data_type: pa.DataType) -> list[Any]:
    """NULL, zero, small numbers and the extremes of a type, and what lies beside the limits of other types."""
    if pa.types.is_integer(data_type):
        bounds = np.iinfo(data_type.to_pandas_dtype())
        near = [0, 1, -1, 2, 3, -7, 10, 100, 127, 128, -128, -129, 2**15, 2**24 + 1, 2**31 - 1, 2**31, 2**53 + 1]
        ends = [bounds.min, bounds.min + 1, bounds.max, bounds.max - 1]
        return [None, *(v for v in dict.fromkeys(near + ends) if bounds.min <= v <= bounds.max)]
    if pa.types.is_floating(data_type):
        odd = [0.0, -0.0, 1.5, 2.5, -0.5, 0.1, 127.9, -128.9, 128.0, 32767.5, 2.0**31, -(2.0**31) - 1, 2.0**63]
        big = [-(2.0**63), 1e10, 123456789.125, 1e38, 5e-324, 1e-7, 0.005, 1.005, 3.4028234e38]
        return [None, *np.array(odd + big, data_type.to_pandas_dtype()).tolist(), math.nan, math.inf, -math.inf]
    most = 10**data_type.precision - 1
    unscaled = [0, 1, -1, 5, 15, -25, 49, 50, 127, 128, 2**31, 2**63, 10**18 + 5, most, -most, most // 2, most // 3]
    return [None, *(to_decimal(u, data_type.scale) for u in dict.fromkeys(unscaled) if abs(u) <= most)]


def compare(spark: Any, columns: dict[str, pa.Array], cases: list[tuple[str, Expression]]) -> None:
    """Asserts that each text gives in Spark what its tree gives here, on every row."""
    table = pa.table(columns)
    frame = spark.createDataFrame(table).coalesce(1)
    inputs = {name: Evaluated(values) for name, values in columns.items()}
    for start in range(0, len(cases), 40):
        part = cases[start : start + 40]
        named = [derived_column(spark, text, tree.type).alias(f"c{i}") for i, (text, tree) in enumerate(part)]
        wanted = frame.select(*named).toArrow()
        for index, (text, tree) in enumerate(part):
            got = evaluate(tree, inputs, table.num_rows)
            raised = np.zeros(table.num_rows, bool) if got.raised is None else got.raised
            expected = [outcome(cell, tree.type) for cell in wanted.column(index).to_pylist()]
            actual = ["raised" if r else show(v) for r, v in zip(raised, got.values.to_pylist(), strict=True)]
            rows = [(dict(row), e, a) for row, e, a in zip(table.to_pylist(), expected, actual, strict=True) if e != a]
            assert got.values.type == tree.type
            assert not rows, f"{text}: (row, Spark, here) {rows[:3]} and {len(rows)} in all"


def outcome(cell: Any, data_type: pa.DataType) -> str:
    if pa.types.is_boolean(data_type):
        return ("False", "True", "None", "raised")[cell]
    return "raised" if cell is None else show(cell["value"])


def show(value: Any) -> str:
    return repr(value + 0.0) if isinstance(value, float) else str(value)


def pairs(data_type: pa.DataType, limit: int = 14) -> dict[str, pa.Array]:
    values = values_of(data_type)
    values = values[:6] + values[-limit + 6 :] if len(values) > limit else values
    left, right = zip(*itertools.product(values, values), strict=True)
    return {"a": pa.array(left, data_type), "b": pa.array(right, data_type)}


def operation(name: str, *operands: Expression, data_type: pa.DataType = BOOL, parameters: Any = ()) -> Operation:
    return Operation(name, operands, data_type, parameters)


PAIRS = [
    pair if (i + 3 * j) % 8 in (0, 3) else pytest.param(*pair, marks=pytest.mark.soak)
    for i, one in enumerate(DECIMALS)
    for j, pair in enumerate((one, other) for other in DECIMALS)
]
"""Types of two decimals: `make test` has each of them twice as the first one, and as the second one."""
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "<=>")


@pytest.mark.parametrize("name", [*INTEGERS, *FLOATS])
def test_arithmetic_and_comparisons_of_integers_and_floats(spark: Any, name: str) -> None:
    data_type = NUMBERS[name]
    a, b = Leaf("a", data_type), Leaf("b", data_type)
    cases: list[tuple[str, Expression]] = [(f"a {op} b", operation(op, a, b)) for op in COMPARISONS]
    for op, text in (("add", "a + b"), ("subtract", "a - b"), ("multiply", "a * b")):
        cases.append((text, operation(op, a, b, data_type=data_type)))
    cases += [("-a", operation("negate", a, data_type=data_type)), ("abs(a)", operation("abs", a, data_type=data_type))]
    compare(spark, pairs(data_type, 30), cases)


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_arithmetic_of_decimals_in_the_type_that_spark_gives(spark: Any, left: str, right: str) -> None:
    columns = {"a": values_of(DECIMALS[left]), "b": values_of(DECIMALS[right])}
    first, second = zip(*itertools.product(*columns.values()), strict=True)
    arrays = {"a": pa.array(first, DECIMALS[left]), "b": pa.array(second, DECIMALS[right])}
    a, b = Leaf("a", DECIMALS[left]), Leaf("b", DECIMALS[right])
    frame = spark.createDataFrame(pa.table(arrays).slice(0, 1))
    cases: list[tuple[str, Expression]] = []
    for op, text in (("add", "a + b"), ("subtract", "a - b")):
        result = frame.selectExpr(f"{text} AS r").schema["r"].dataType
        data_type = pa.decimal128(result.precision, result.scale)
        cases.append((text, operation(op, a, b, data_type=data_type)))
    cases += [("-a", operation("negate", a, data_type=a.type)), ("abs(a)", operation("abs", a, data_type=a.type))]
    if left == right:
        cases += [(f"a {op} b", operation(op, a, b)) for op in COMPARISONS]
    compare(spark, arrays, cases)


@pytest.mark.parametrize("source", soak_but([*NUMBERS, "boolean"][::2], [*NUMBERS, "boolean"]))
def test_casts_between_numbers(spark: Any, source: str) -> None:
    data_type = NUMBERS.get(source, BOOL)
    values = [None, True, False] if source == "boolean" else values_of(data_type)
    a = Leaf("a", data_type)
    targets = NUMBERS | {"boolean": BOOL}
    cases = [
        (f"cast(a as {name})", operation("cast", a, data_type=target))
        for name, target in targets.items()
        if target != data_type
    ]
    compare(spark, {"a": pa.array(values, data_type)}, cases)


def test_three_valued_logic_and_what_spark_never_evaluates(spark: Any) -> None:
    states = [0, 1, None, "raised"]
    p, q, r = zip(*itertools.product(states, repeat=3), strict=True)
    columns = {
        name: pa.array([2**31 - 1 if state == "raised" else state for state in column], pa.int32())
        for name, column in (("p", p), ("q", q), ("r", r))
    }
    trees: dict[str, Expression] = {}
    for name in "pqr":  # TRUE, FALSE, NULL, or an overflow
        sum_ = operation("add", Leaf(name, pa.int32()), Constant(1, pa.int32()), data_type=pa.int32())
        trees[f"({name} + 1 = 2)"] = operation("=", sum_, Constant(2, pa.int32()))
    (tp, p_), (tq, q_), (tr, r_) = trees.items()
    numbers = {name: trees[f"({name} + 1 = 2)"].operands[0] for name in "pqr"}  # type: ignore[union-attr]
    x, y, z = numbers["p"], numbers["q"], numbers["r"]
    cases: list[tuple[str, Expression]] = [
        (f"{tp} and {tq} and {tr}", operation("and", p_, q_, r_)),
        (f"{tp} or {tq} or {tr}", operation("or", p_, q_, r_)),
        (f"not {tp}", operation("not", p_)),
        (f"{tp} or not ({tq} and {tr})", operation("or", p_, operation("not", operation("and", q_, r_)))),
        (f"{tp} is null", operation("is_null", p_)),
        (f"case when {tp} then {tq} else {tr} end", operation("case", p_, q_, r_)),
        (
            f"case when {tp} then {tq} when {tr} then false else null end",
            operation("case", p_, q_, r_, Constant(False, BOOL), Constant(None, BOOL)),
        ),
        ("coalesce(p + 1, q + 1, r + 1)", operation("coalesce", x, y, z, data_type=pa.int32())),
        ("p + 1 in (q + 1, r + 1)", operation("in", x, y, z)),
        ("p + 1 not in (q + 1, 2)", operation("not", operation("in", x, y, Constant(2, pa.int32())))),
        ("p + 1 < q + 1", operation("<", x, y)),
        ("p + 1 <=> q + 1", operation("<=>", x, y)),
        ("(p + 1) * (q + 1)", operation("multiply", x, y, data_type=pa.int32())),
    ]
    compare(spark, columns, cases)


def test_strings_dates_and_times(spark: Any) -> None:
    texts = [None, "", "a", "A", "ab", "b", "é", "z", "\U0001f600", "\uffff", "a\n"]
    left, right = zip(*itertools.product(texts, texts), strict=True)
    columns = {"s": pa.array(left), "t": pa.array(right)}
    s, t = Leaf("s", pa.string()), Leaf("t", pa.string())
    cases: list[tuple[str, Expression]] = [(f"s {op} t", operation(op, s, t)) for op in COMPARISONS]
    cases.append(("s like '_%b'", operation("like", s, parameters=("_%b", "\\", False))))
    cases.append(("s ilike 'A%'", operation("like", s, parameters=("A%", "\\", True))))
    cases.append(("s rlike 'a$'", operation("rlike", s, parameters=("a$",))))
    cases.append(("s in ('a', t)", operation("in", s, Constant("a", pa.string()), t)))
    compare(spark, columns, cases)
    days = [None, 0, -1, 18_262, -719_162, 2_932_896]
    columns = {"d": pa.array(days, pa.int32()).cast(pa.date32())}
    d = Leaf("d", pa.date32())
    cases = [(f"d {op} date'2020-01-01'", operation(op, d, Constant(18_262, pa.date32()))) for op in COMPARISONS]
    compare(spark, columns, cases)
