"""Reads Spark SQL's names of types as Arrow types."""

from __future__ import annotations

import pyarrow as pa

from rules_index.errors import RuleError
from rules_index.language.cursor import Cursor
from rules_index.language.nodes import MAX_VALUE_DEPTH, too_deep
from rules_index.language.tokens import NUMBER, STRING

TIMESTAMP = pa.timestamp("us", tz="UTC")
"""TIMESTAMP: an instant, whatever the session's zone."""
TIMESTAMP_NTZ = pa.timestamp("us")
"""TIMESTAMP_NTZ: a local date and time."""
DAY_INTERVAL = pa.duration("us")
"""Day-time intervals of any fields."""
MONTH_INTERVAL = pa.month_day_nano_interval()
"""Year-month intervals of any fields."""
TIME = pa.time64("us")
"""TIME of day."""

_NAMES = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "BYTE": pa.int8(),
    "SMALLINT": pa.int16(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIMESTAMP_LTZ": TIMESTAMP,
    "TIMESTAMP_NTZ": TIMESTAMP_NTZ,
    "BINARY": pa.binary(),
    "VOID": pa.null(),
}
_DECIMAL = frozenset(("DECIMAL", "DEC", "NUMERIC"))
_LONGEST_SIZE = 9
"""The most digits of a length, precision or scale."""
_YEAR_FIELDS = frozenset(("YEAR", "MONTH"))
_DAY_FIELDS = frozenset(("DAY", "HOUR", "MINUTE", "SECOND"))


def read_type(cursor: Cursor) -> pa.DataType | None:
    """Reads the type at the cursor and returns it; None for a type that Arrow does not have."""
    tokens = cursor.tokens
    kinds, first = tokens.kinds, cursor.at
    kind = kinds[first]
    cursor.at += 1
    known = _NAMES.get(kind)
    if known is not None and kinds[cursor.at] != "(":
        return known
    if kind in _DECIMAL:
        return _decimal(cursor, first)
    if kind == "TIMESTAMP":
        return _timestamp(cursor)
    if kind == "STRING":
        if kinds[cursor.at] == "COLLATE":
            cursor.at += 2
            return None
        return pa.string()
    if kind in ("CHAR", "VARCHAR", "CHARACTER"):
        cursor.expect("(", f"{kind} needs its length in brackets here.")
        _integer(cursor)
        cursor.expect(")", "A closing bracket is missing here.")
        return pa.string()
    if kind == "TIME":
        if kinds[cursor.at] == "(":
            cursor.at += 1
            _integer(cursor)
            cursor.expect(")", "A closing bracket is missing here.")
        return TIME
    if kind == "VARIANT":
        return None
    if kind == "INTERVAL":
        return _interval(cursor)
    if kind in ("ARRAY", "MAP", "STRUCT"):
        cursor.level += 1
        if cursor.level > MAX_VALUE_DEPTH:
            raise too_deep(tokens, first)
        nested = _nested(cursor, kind)
        cursor.level -= 1
        return nested
    spelling = tokens.spelling(first)
    raise RuleError("SYNTAX", f"{spelling or 'Nothing'} is not a type of Spark SQL.", tokens.starts[first])


def _integer(cursor: Cursor) -> int:
    spelling = cursor.tokens.spelling(cursor.at)
    if cursor.tokens.kinds[cursor.at] != NUMBER or not spelling.isdigit() or len(spelling) > _LONGEST_SIZE:
        raise cursor.unexpected("A whole number of at most 9 digits belongs here.")
    cursor.at += 1
    return int(cursor.tokens.spelling(cursor.at - 1))


def _decimal(cursor: Cursor, first: int) -> pa.DataType | None:
    """Reads the precision and scale behind DECIMAL; None for DECIMAL(0, 0), which Arrow does not have."""
    precision, scale = 10, 0
    if cursor.tokens.kinds[cursor.at] == "(":
        cursor.at += 1
        precision = _integer(cursor)
        if cursor.tokens.kinds[cursor.at] == ",":
            cursor.at += 1
            scale = _integer(cursor)
        cursor.expect(")", "A closing bracket is missing here.")
    if precision == scale == 0:
        return None
    if not 1 <= precision <= 38 or scale > precision:
        raise RuleError(
            "SYNTAX",
            f"DECIMAL({precision}, {scale}) is not a type: the precision is 1 to 38, the scale at most the precision.",
            cursor.tokens.starts[first],
        )
    return pa.decimal128(precision, scale)


def _timestamp(cursor: Cursor) -> pa.DataType:
    words = cursor.tokens.kinds[cursor.at : cursor.at + 3]
    if words[:1] in (["WITH"], ["WITHOUT"]) and words[1:] == ["TIME", "ZONE"]:
        cursor.at += 3
        return TIMESTAMP_NTZ if words[0] == "WITHOUT" else TIMESTAMP
    return TIMESTAMP


def _interval(cursor: Cursor) -> pa.DataType | None:
    """Reads the fields behind INTERVAL; None for other intervals than day-time and year-month ones."""
    kinds = cursor.tokens.kinds
    field = kinds[cursor.at]
    for fields, data_type in ((_YEAR_FIELDS, MONTH_INTERVAL), (_DAY_FIELDS, DAY_INTERVAL)):
        if field in fields:
            cursor.at += 1
            if kinds[cursor.at] == "TO" and kinds[cursor.at + 1] in fields:
                cursor.at += 2
            return data_type
    return None


def _nested(cursor: Cursor, kind: str) -> pa.DataType | None:
    """Reads the rest of ARRAY<t>, MAP<k, v> or STRUCT<name: t, ...>; None if the type of a part is None."""
    if kind == "STRUCT" and cursor.tokens.kinds[cursor.at] == "<>":
        cursor.at += 1
        return pa.struct([])
    cursor.expect("<", f"{kind} needs its types in angle brackets here.")
    if kind == "ARRAY":
        item = read_type(cursor)
        _close(cursor)
        return None if item is None else pa.list_(item)
    if kind == "MAP":
        key = read_type(cursor)
        cursor.expect(",", "MAP needs the type of its values here.")
        value = read_type(cursor)
        _close(cursor)
        return None if key is None or value is None else pa.map_(key, value)
    fields: list[tuple[str, pa.DataType | None]] = []
    while True:
        fields.append(_field(cursor))
        if cursor.tokens.kinds[cursor.at] != ",":
            break
        cursor.at += 1
    _close(cursor)
    known = [(name, data_type) for name, data_type in fields if data_type is not None]
    return pa.struct(known) if len(known) == len(fields) else None


def _field(cursor: Cursor) -> tuple[str, pa.DataType | None]:
    tokens = cursor.tokens
    if not tokens.is_name(cursor.at):
        raise cursor.unexpected("The name of a field belongs here.")
    name = tokens.name(cursor.at)
    cursor.at += 1
    cursor.at += tokens.kinds[cursor.at] == ":"
    data_type = read_type(cursor)
    if tokens.kinds[cursor.at] == "NOT" and tokens.kinds[cursor.at + 1] == "NULL":
        cursor.at += 2
    if tokens.kinds[cursor.at] == "COMMENT" and tokens.kinds[cursor.at + 1] == STRING:
        cursor.at += 2
    return name, data_type


def _close(cursor: Cursor) -> None:
    """Reads one closing angle bracket. Of `>>` and `>>>`, with which nested types end, it removes one bracket."""
    tokens, at = cursor.tokens, cursor.at
    if tokens.kinds[at] in (">>", ">>>"):
        tokens.kinds[at] = tokens.kinds[at][1:]
        return
    cursor.expect(">", "A closing angle bracket is missing here.")
