"""Expressions and types as JSON values and back, for the artifact. Values that are read are checked strictly."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from rules_index.domains.value_lists import ValueList
from rules_index.language.coercion import normalise
from rules_index.language.constant_folding import folded_call
from rules_index.language.typed import Constant, Expression, Leaf, Operation, leaves_of
from rules_index.names import path_parts

_DEPTH_LIMIT = 200
_ARROW = "arrow:"
_PLAIN: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date32": pa.date32(),
    "null": pa.null(),
}
_NAMES = {data_type: name for name, data_type in _PLAIN.items()}
_LAMBDAS = ("exists", "forall", "filter")
_PARAMETERS: dict[str, tuple[type, ...]] = {
    "like": (str, str, bool),
    "rlike": (str,),
    "concat_ws": (str,),
    "call": (str, str),
    "in_list": (ValueList,),
    **dict.fromkeys(_LAMBDAS, (Operation,)),
}
_OPERANDS: dict[str, tuple[int, int | None]] = {
    **dict.fromkeys(("add", "subtract", "multiply", "divide", "remainder", "positive_remainder", "quotient"), (2, 2)),
    **dict.fromkeys(("try_add", "try_subtract", "try_multiply", "try_divide", "try_remainder"), (2, 2)),
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "<=>"), (2, 2)),
    **dict.fromkeys(
        ("negate", "abs", "cast", "try_cast", "raise", "not", "is_null", "like", "rlike", "in_list", *_LAMBDAS),
        (1, 1),
    ),
    **dict.fromkeys(("and", "or", "in"), (2, None)),
    "case": (3, None),
    **dict.fromkeys(("coalesce", "greatest", "least", "concat_ws"), (1, None)),
    "call": (1, None),
}


def type_to_json(data_type: pa.DataType) -> str:
    """A type's short name, such as `decimal128(10,2)` or `timestamp[us,tz=UTC]`. Types that rules can only test for
    NULL, such as arrays, are serialised by Arrow."""
    if data_type in _NAMES:
        return _NAMES[data_type]
    if pa.types.is_decimal128(data_type):
        return f"decimal128({data_type.precision},{data_type.scale})"
    if pa.types.is_timestamp(data_type) and data_type.unit == "us":
        return f"timestamp[us,tz={data_type.tz}]" if data_type.tz else "timestamp[us]"
    schema = pa.schema([pa.field("", data_type)]).serialize()
    return _ARROW + base64.b64encode(schema).decode()


def type_from_json(name: Any) -> pa.DataType:
    """The type of a short name. Raises `ValueError` for anything else."""
    if not isinstance(name, str):
        raise ValueError(f"A type's name is text, not {name!r:.60}.")
    if name in _PLAIN:
        return _PLAIN[name]
    if found := re.fullmatch(r"decimal128\((\d{1,2}),(\d{1,2})\)", name):
        precision, scale = int(found[1]), int(found[2])
        if 1 <= precision <= 38 and scale <= precision:
            return pa.decimal128(precision, scale)
    if found := re.fullmatch(r"timestamp\[us(?:,tz=([^\[\],\x00]{1,64}))?\]", name):
        return pa.timestamp("us", found[1])
    if name.startswith(_ARROW):
        schema = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(name[len(_ARROW) :], validate=True)))
        if len(schema) == 1:
            return schema.field(0).type
    raise ValueError(f"{name!r:.60} is not the name of a type.")


def to_json(expression: Expression) -> list[Any]:
    """An expression as nested lists that `json` can write; value lists are written as their names."""
    match expression:
        case Leaf(name, data_type, text):
            return ["leaf", name, type_to_json(data_type), text]
        case Constant(value, data_type):
            return ["constant", _value_to_json(value), type_to_json(data_type)]
        case Operation(name, operands, data_type, parameters):
            written = [each.name if isinstance(each, ValueList) else each for each in parameters]
            if name in _LAMBDAS:
                written = [to_json(each) for each in parameters]
            return ["operation", name, type_to_json(data_type), written, *map(to_json, operands)]


def from_json(value: Any, lists: Mapping[str, ValueList] | None = None) -> Expression:
    """The expression that `to_json` wrote; `lists` has its value lists by name. Raises `ValueError` for malformed
    values."""
    return _read(value, 0, lists or {})


def _value_to_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, int) and not isinstance(value, bool):
        return {"int": str(value)}
    return value


def _read(value: Any, depth: int, lists: Mapping[str, ValueList]) -> Expression:
    """The expression in a JSON value that is `depth` levels deep."""
    if depth > _DEPTH_LIMIT:
        raise ValueError(f"An expression is nested more than {_DEPTH_LIMIT} deep.")
    if not isinstance(value, list) or not value:
        raise ValueError(f"An expression is a list, not {value!r:.60}.")
    match value:
        case ["leaf", str(name), data_type, str() | None as text]:
            return Leaf(name, type_from_json(data_type), text)
        case ["constant", constant, data_type]:
            return _read_constant(constant, type_from_json(data_type))
        case ["operation", str(name), data_type, list(parameters), *operands]:
            children = tuple(_read(operand, depth + 1, lists) for operand in operands)
            if name == "in_list":
                parameters = [lists[each] for each in parameters]
            elif name in _LAMBDAS:
                parameters = [_read(each, depth + 1, lists) for each in parameters]
            return _operation(name, children, type_from_json(data_type), tuple(parameters))
    raise ValueError(f"{value!r:.60} is not an expression.")


def _operation(
    name: str, operands: tuple[Expression, ...], data_type: pa.DataType, parameters: tuple[Any, ...]
) -> Operation:
    """The operation, after checks of its operands and parameters. Raises `ValueError` if they do not fit its name."""
    if name not in _OPERANDS:
        raise ValueError(f"{name!r:.60} is not an operation.")
    least, most = _OPERANDS[name]
    if len(operands) < least or (most is not None and len(operands) > most):
        raise ValueError(f"The operation {name} has {len(operands)} operands.")
    if name == "case" and len(operands) % 2 == 0:
        raise ValueError("The operation case lacks its else.")
    kinds = _PARAMETERS.get(name, ())
    if len(parameters) != len(kinds) or any(type(p) is not k for p, k in zip(parameters, kinds, strict=True)):
        raise ValueError(f"The operation {name} has the parameters {parameters!r:.60}.")
    if name == "in_list" and operands[0].type != parameters[0].type:
        raise ValueError(f"The list {parameters[0].name} is of another type.")
    if name in _LAMBDAS and not _is_condition(parameters[0], operands[0].type):
        raise ValueError(f"The operation {name} has no condition on the items of its operand.")
    if name == "filter" and data_type != operands[0].type:
        raise ValueError("The operation filter has another type than its operand.")
    if name == "call" and folded_call(parameters[0], operands, data_type, parameters[1]) is None:
        raise ValueError(f"The function {parameters[0]!r:.60} is not evaluated here, or not of such values.")
    return Operation(name, operands, data_type, parameters)


def _is_condition(condition: Expression, list_type: pa.DataType) -> bool:
    """Whether an expression is BOOLEAN, and its leaves are items of a list of type `list_type`, or fields of these
    items."""
    leaves = list(leaves_of(condition))
    if len({path_parts(leaf.name)[0] for leaf in leaves}) != 1 or not pa.types.is_list(list_type):
        return False
    if not pa.types.is_boolean(condition.type):
        return False
    return all(leaf.text is None and leaf.type == _type_within(list_type.value_type, leaf) for leaf in leaves)


def _type_within(kind: pa.DataType, leaf: Leaf) -> pa.DataType | None:
    """The type of the field that a leaf's path names, behind its first part, in values of type `kind`; None if they
    have none."""
    for name in path_parts(leaf.name)[1:]:
        place = kind.get_field_index(name) if pa.types.is_struct(kind) else -1
        if place < 0:
            return None
        kind = kind.field(place).type
    return normalise(kind)


def _read_constant(value: Any, data_type: pa.DataType) -> Constant:
    t = pa.types
    match value:
        case None:
            return Constant(None, data_type)
        case bool() if t.is_boolean(data_type):
            return Constant(value, data_type)
        case str() if t.is_string(data_type):
            return Constant(value, data_type)
        case {"hex": str(text)} if t.is_binary(data_type) and len(value) == 1:
            return Constant(bytes.fromhex(text), data_type)
        case {"float": str(text)} if t.is_floating(data_type) and len(value) == 1:
            return Constant(_float(text, data_type), data_type)
        case {"int": str(text)} if len(value) == 1 and re.fullmatch(r"-?\d{1,39}", text):
            if _holds(data_type, int(text)):
                return Constant(int(text), data_type)
    raise ValueError(f"{value!r:.60} is not a constant of type {data_type}.")


def _float(text: str, data_type: pa.DataType) -> float:
    number = float.fromhex(text)
    if pa.types.is_float32(data_type) and math.isfinite(number) and pa.scalar(number, data_type).as_py() != number:
        raise ValueError(f"{text} is not a FLOAT.")
    return number


def _holds(data_type: pa.DataType, number: int) -> bool:
    """Whether an integer is a valid value of a constant of the type."""
    t = pa.types
    if t.is_decimal(data_type):
        return abs(number) < 10**data_type.precision
    if t.is_integer(data_type) or t.is_date32(data_type) or t.is_timestamp(data_type):
        bits = data_type.bit_width
        return -(1 << (bits - 1)) <= number < 1 << (bits - 1)
    return False
