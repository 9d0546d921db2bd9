from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pytest

from rules_index.language import serialise
from rules_index.language.evaluation.evaluate import OPERATIONS
from rules_index.language.serialise import from_json, to_json, type_from_json, type_to_json
from rules_index.language.typed import Constant, Expression, Leaf, Operation

LEAF = Leaf("a.b", pa.int32())
ITEM = ["leaf", "x", "int32", None]
LIST = ["leaf", "l", type_to_json(pa.list_(pa.int32())), None]
EXPRESSIONS: list[Expression] = [
    LEAF,
    Leaf("derived_00", pa.bool_(), "f(x) > 1"),
    Constant(None, pa.string()),
    Constant(True, pa.bool_()),
    Constant(2**63 - 1, pa.int64()),
    Constant(-(10**37), pa.decimal128(38, 2)),
    Constant("é\n", pa.string()),
    Constant(b"\x00\xff", pa.binary()),
    Constant(-math.inf, pa.float64()),
    Constant(0.1, pa.float64()),
    Constant(5, pa.timestamp("us", "UTC")),
    Constant(5, pa.date32()),
    Operation("case", (LEAF, LEAF, LEAF), pa.int32()),
    Operation(
        "exists",
        (Leaf("l", pa.list_(pa.int32())),),
        pa.bool_(),
        (Operation("is_null", (Leaf("x", pa.int32()),), pa.bool_()),),
    ),
    Operation("like", (Leaf("s", pa.string()),), pa.bool_(), ("a%", "\\", False)),
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_what_is_written_comes_back(expression: Expression) -> None:
    assert from_json(json.loads(json.dumps(to_json(expression)))) == expression


def test_nan_comes_back() -> None:
    constant = from_json(to_json(Constant(math.nan, pa.float32())))
    assert isinstance(constant, Constant)
    assert math.isnan(constant.value)


@pytest.mark.parametrize(
    ("data_type", "name"),
    [
        (pa.int32(), "int32"),
        (pa.decimal128(10, 2), "decimal128(10,2)"),
        (pa.timestamp("us"), "timestamp[us]"),
        (pa.timestamp("us", "Europe/Berlin"), "timestamp[us,tz=Europe/Berlin]"),
    ],
)
def test_names_of_types(data_type: pa.DataType, name: str) -> None:
    assert type_to_json(data_type) == name
    assert type_from_json(name) == data_type


@pytest.mark.parametrize(
    "data_type",
    [
        pa.list_(pa.int32()),
        pa.struct([("x", pa.map_(pa.string(), pa.float64()))]),
        pa.duration("us"),
        pa.large_string(),
    ],
)
def test_types_that_rules_can_only_ask_for_null_come_back(data_type: pa.DataType) -> None:
    assert type_from_json(type_to_json(data_type)) == data_type


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        "leaf",
        ["leaf", "a", "int32"],
        ["leaf", 1, "int32", None],
        ["leaf", "a", "int33", None],
        ["leaf", "a", "arrow:", None],
        ["leaf", "a", "arrow:AAAA", None],
        ["leaf", "a", "decimal128(39,0)", None],
        ["leaf", "a", "decimal128(2,3)", None],
        ["constant", {"int": "300"}, "int8"],
        ["constant", {"int": "1e3"}, "int32"],
        ["constant", 1, "int32"],
        ["constant", "x", "int32"],
        ["constant", {"hex": "zz"}, "binary"],
        ["constant", {"float": "0x1.8p+0x"}, "float64"],
        ["constant", {"float": 1.5}, "float64"],
        ["operation", "exec", "bool", [], ["leaf", "a", "bool", None]],
        ["operation", "not", "bool", []],
        ["operation", "not", "bool", ["x"], ["leaf", "a", "bool", None]],
        ["operation", "case", "bool", [], *[["leaf", "a", "bool", None]] * 4],
        ["operation", "like", "bool", ["a", "\\", 1], ["leaf", "a", "string", None]],
        ["operation", "not", "bool", [], "leaf"],
        ["operation", "exists", "bool", [], LIST],
        ["operation", "exists", "bool", [["leaf", "x", "bool", None]], LIST],
        ["operation", "exists", "bool", [["operation", "not", "bool", [], ["leaf", "x", "bool", None]]], LIST],
        ["operation", "exists", "bool", [["operation", "is_null", "bool", [], ITEM]], ITEM],
        ["operation", "forall", "int32", [["operation", "negate", "int32", [], ITEM]], LIST],
        ["operation", "forall", "bool", [["operation", "=", "bool", [], ITEM, ["leaf", "y", "int32", None]]], LIST],
    ],
)
def test_anything_else_is_a_value_error(value: Any) -> None:
    with pytest.raises(ValueError):
        from_json(value)


def test_depth_is_limited() -> None:
    value: list[Any] = ["leaf", "a", "bool", None]
    for _ in range(600):
        value = ["operation", "not", "bool", [], value]
    with pytest.raises(ValueError, match="deep"):
        from_json(value)


def test_every_operation_that_is_evaluated_can_be_stored() -> None:
    assert set(serialise._OPERANDS) == set(OPERATIONS)
