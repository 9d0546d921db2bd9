"""Evaluates constants in statements, if they need no cast to the column's type."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from pipelines.errors import NeedsSparkError
from pipelines.lake.column_types import spark_name
from rules_index.language.analyser import Analyser
from rules_index.language.parser import parse
from rules_index.language.scope import Scope
from rules_index.language.typed import Constant

_MAP = re.compile(r"map\s*\(\s*(?P<entries>.*)\)\s*", re.IGNORECASE | re.DOTALL)


def value_of(text: str, kind: pa.DataType, zone: str) -> Any:
    """The Python value of a constant that has a column's type.

    zone: of timestamps without one. NeedsSparkError if the text is not a constant of that type; RuleError if it is no
    expression.
    """
    if pa.types.is_map(kind):
        return _map_of(text, kind, zone)
    found = _constant(text, zone)
    if found.value is None:
        return None
    if pa.types.is_integer(kind) and pa.types.is_integer(found.type):
        low, high = -(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1
        if low <= found.value <= high and found.type.bit_width <= kind.bit_width:
            return found.value
    elif found.type == kind and not pa.types.is_decimal(kind):
        return _timestamp(found.value, kind) if pa.types.is_timestamp(kind) else found.value
    raise NeedsSparkError(f"{text} is not a value of the type {spark_name(kind)}")


def _timestamp(microseconds: int, kind: pa.DataType) -> Any:
    try:
        return pa.scalar(microseconds, pa.int64()).cast(kind).as_py()
    except (OverflowError, ValueError) as error:
        raise NeedsSparkError("Python has no years beyond 9999") from error


def _constant(text: str, zone: str) -> Constant:
    if text.strip().upper() == "NULL":
        return Constant(None, pa.null())
    node, tokens = parse(text, zone)
    local = Analyser(tokens, Scope(pa.schema([]), zone)).value(node).local
    if not isinstance(local, Constant) or local.value is None:
        raise NeedsSparkError(f"{text} is not a constant")
    return local


def _map_of(text: str, kind: pa.DataType, zone: str) -> list[tuple[Any, Any]] | None:
    if text.strip().upper() == "NULL":
        return None
    node, tokens = parse(text, zone)
    if node.kind != "call" or not _MAP.fullmatch(text.strip()):
        raise NeedsSparkError(f"{text} is not a map")
    parts = [tokens.text[tokens.starts[each.first] : tokens.ends[each.last]] for each in node.children]
    if not parts or len(parts) % 2:
        raise NeedsSparkError(f"{text} is not a map of constants")
    keys = [value_of(each, kind.key_type, zone) for each in parts[::2]]
    if None in keys or len(set(keys)) < len(keys):
        raise NeedsSparkError(f"{text} has a key twice, or NULL")
    return list(zip(keys, (value_of(each, kind.item_type, zone) for each in parts[1::2]), strict=True))
