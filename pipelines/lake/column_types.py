"""Columns of Delta tables: their Arrow types for the rules, and the differences between two tables' columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

OPAQUE = pa.run_end_encoded(pa.int32(), pa.null())
"""Stands for every type whose values only Spark can compare: VARIANT, CHAR, collated strings, ...

No column of a Delta table has this Arrow type, and the matching library leaves types that it does not know to Spark.
"""

ARROW_ID_TYPES: Mapping[str, pa.DataType] = {"string": pa.string(), "bigint": pa.int64()}
"""The Arrow types of rule ids, by the names of `table_definitions.ID_TYPES`."""

_PRIMITIVES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)\Z")
CHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
"""The metadata key by which a column is marked that is, or holds, a CHAR or VARCHAR; its value is the column's type."""
_CHAR = re.compile(r"\bchar\(")
STORED_NAME = "delta.columnMapping.physicalName"
"""The metadata key for a column's physical name under column mapping: in files, statistics and partitions."""
_COLLATIONS = "__COLLATIONS"
_KEPT_METADATA = ("comment", CHAR_TYPE, _COLLATIONS)
_ODD_NAME = re.compile(r"[ ,;{}()\n\t=]")


def arrow_schema_of(fields: Iterable[Mapping[str, Any]]) -> pa.Schema:
    """Arrow types of columns, given as the `fields` of a Delta table's `schemaString`; every timestamp is in UTC."""
    return pa.schema([_field(field) for field in fields])


def _field(field: Mapping[str, Any]) -> pa.Field:
    metadata = field.get("metadata") or {}
    kind = _type(field["type"])
    if _CHAR.search(str(metadata.get(CHAR_TYPE, "")).lower()) or metadata.get(_COLLATIONS):
        kind = OPAQUE
    return pa.field(field["name"], kind, field.get("nullable", True))


def _type(kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        decimal = _DECIMAL.match(kind)
        return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _PRIMITIVES.get(kind, OPAQUE)
    if kind["type"] == "struct":
        return pa.struct([_field(field) for field in kind["fields"]])
    if kind["type"] == "array":
        return pa.list_(_type(kind["elementType"]))
    if kind["type"] == "map":
        return pa.map_(_type(kind["keyType"]), _type(kind["valueType"]))
    return OPAQUE


def spark_name(kind: pa.DataType) -> str:
    """A type as people write it in SQL, with those within it, for messages."""
    from rules_index.language.coercion import name_of, normalise

    t = pa.types
    if t.is_struct(kind):
        return f"STRUCT<{', '.join(f'{each.name}: {spark_name(each.type)}' for each in kind)}>"
    if t.is_map(kind):
        return f"MAP<{spark_name(kind.key_type)}, {spark_name(kind.item_type)}>"
    if t.is_list(kind):
        return f"ARRAY<{spark_name(kind.value_type)}>"
    if kind == OPAQUE:
        return "a type that only Spark knows"
    known = normalise(kind)
    return str(kind) if known is None else name_of(known)


def stored_names(fields: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The physical names of columns in files and statistics, by logical name in lower case. The two differ under column
    mapping."""
    return {field["name"].lower(): field["metadata"].get(STORED_NAME, field["name"]) for field in fields}


def is_opaque(kind: pa.DataType) -> bool:
    """Whether a type is, or holds, one that Arrow does not have."""
    if kind == OPAQUE:
        return True
    return pa.types.is_nested(kind) and any(is_opaque(kind.field(place).type) for place in range(kind.num_fields))


def plain_fields(fields: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Columns in the log's form, made fit for another table: nullable, and with only the metadata that comment and type
    need."""
    return [
        {
            "name": field["name"],
            "type": _nullable_type(field["type"]),
            "nullable": True,
            "metadata": {k: v for k, v in (field.get("metadata") or {}).items() if k in _KEPT_METADATA},
        }
        for field in fields
    ]


def _nullable_type(kind: Any) -> Any:
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        fields = []
        for each in kind["fields"]:
            collations = {k: v for k, v in (each.get("metadata") or {}).items() if k == _COLLATIONS}
            own = {"name": each["name"], "type": _nullable_type(each["type"])}
            fields.append({**own, "nullable": True, "metadata": collations})
        return {"type": "struct", "fields": fields}
    if kind["type"] == "array":
        return {"type": "array", "elementType": _nullable_type(kind["elementType"]), "containsNull": True}
    if kind["type"] == "map":
        inner = {"keyType": _nullable_type(kind["keyType"]), "valueType": _nullable_type(kind["valueType"])}
        return {"type": "map", **inner, "valueContainsNull": True}
    return kind


def same_fields(first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]) -> bool:
    """True if the columns of two tables differ at most in comments and nullability."""

    def uncommented(fields: Sequence[Mapping[str, Any]]) -> list[Any]:
        plain = plain_fields(fields)
        return [(f["name"], f["type"], {k: v for k, v in f["metadata"].items() if k != "comment"}) for f in plain]

    return uncommented(first) == uncommented(second)


def with_later_fields(held: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Columns, with what only `wanted` has appended to them and to the structs in them. A name that differs only in
    case from another one is left out."""
    later, names = {field["name"]: field["type"] for field in wanted}, {field["name"].lower() for field in held}
    widened = [
        {**field, "type": _with_structs(field["type"], later.get(field["name"], ""), with_later_fields)}
        for field in held
    ]
    return [*widened, *(dict(field) for field in wanted if field["name"].lower() not in names)]


def common_fields(held: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Those columns, with those fields of the structs in them, that `wanted` has, too."""
    kinds = {field["name"]: field["type"] for field in wanted}
    return [
        {**field, "type": _with_structs(field["type"], kinds[field["name"]], common_fields)}
        for field in held
        if field["name"] in kinds
    ]


def _with_structs(held: Any, wanted: Any, change: Callable[[Any, Any], list[dict[str, Any]]]) -> Any:
    """A type, with the fields that `change` gives each struct in it, from its own and those of `wanted`."""
    if isinstance(held, str) or isinstance(wanted, str) or held["type"] != wanted["type"]:
        return held
    if held["type"] == "struct":
        return {**held, "fields": change(held["fields"], wanted["fields"])}
    part = {"array": "elementType", "map": "valueType"}.get(held["type"])
    return {**held, part: _with_structs(held[part], wanted[part], change)} if part else held


def odd_names(fields: Sequence[Mapping[str, Any]]) -> bool:
    """True if a column's name has a character that Delta only allows with column mapping."""
    return any(_ODD_NAME.search(field["name"]) or _odd_within(field["type"]) for field in fields)


def _odd_within(kind: Any) -> bool:
    if isinstance(kind, str):
        return False
    if kind["type"] == "struct":
        return odd_names(kind["fields"])
    return any(_odd_within(kind[part]) for part in ("elementType", "keyType", "valueType") if part in kind)


def nullable(schema: pa.Schema) -> pa.Schema:
    """The columns with NULL allowed at every level, as deltatag's tables have them."""
    return pa.schema([_nullable_field(field) for field in schema])


def _nullable_field(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_nullable_field(each) for each in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_nullable_field(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(_nullable_field(kind.key_field).type, _nullable_field(kind.item_field).type)
    return pa.field(field.name, kind)


def changed_types(old: DataType, new: DataType, name: str = "") -> dict[str, str]:
    """A clause for each column, by its path, that a table and its source have with different types, the names' case
    and nullability aside."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(old, StructType) and isinstance(new, StructType):
        before = {field.name.lower(): field for field in old.fields}
        found: dict[str, str] = {}
        for field in new.fields:
            known = before.get(field.name.lower())
            if known is not None:
                path = f"{name}.{field.name}" if name else field.name
                found |= changed_types(known.dataType, field.dataType, path)
        return found
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return changed_types(old.elementType, new.elementType, f"{name}.element")
    if isinstance(old, MapType) and isinstance(new, MapType):
        keys = changed_types(old.keyType, new.keyType, f"{name}.key")
        return keys | changed_types(old.valueType, new.valueType, f"{name}.value")
    if old == new:
        return {}
    return {name: f"{name} is {old.simpleString()} there and {new.simpleString()} in the source"}
