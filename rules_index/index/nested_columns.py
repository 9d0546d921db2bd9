"""Converts arrays, maps and structs of a batch, which Arrow represents in several ways, to the one that evaluation
reads."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.domains.region_codes import plain
from rules_index.language.coercion import normalise
from rules_index.names import field_key, spelled


def is_nested_as(actual: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column of type `actual` can be read as the nested type `wanted`. Any two structs match: rules only ask
    whether a struct is NULL, since its fields are leaves of their own."""
    if pa.types.is_struct(wanted):
        return bool(pa.types.is_struct(actual.value_type if pa.types.is_dictionary(actual) else actual))
    return not pa.types.is_null(actual) and _has_values_of(actual, wanted)


def _has_values_of(actual: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether two types are the same to Spark, at all depths. Names of items and nullability do not matter. A struct
    may have further fields, and may lack some, as in rows that are older than these; they are NULL."""
    t = pa.types
    if t.is_dictionary(actual):
        return _has_values_of(actual.value_type, wanted)
    if t.is_null(actual):
        return True
    if t.is_struct(wanted):
        if not t.is_struct(actual):
            return False
        found = [(spelled(actual.names, field.name, field_key), field.type) for field in wanted]
        return all(name is None or _has_values_of(actual.field(name).type, kind) for name, kind in found)
    if t.is_map(wanted):
        return bool(t.is_map(actual)) and all(
            _has_values_of(*each) for each in ((actual.key_type, wanted.key_type), (actual.item_type, wanted.item_type))
        )
    if t.is_list(wanted):
        return _is_any_list(actual) and _has_values_of(actual.value_type, wanted.value_type)
    return bool(actual == wanted or normalise(actual) == wanted)


def plain_nested(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The column as `wanted`, without dictionaries and views; `is_nested_as` must be true. Raises `pa.ArrowException`
    for values that do not fit."""
    if pa.types.is_struct(wanted):
        return _decoded_structs(column)
    return _plain(column, wanted)


def _plain(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The column as `wanted`, built level by level because Arrow 26 loses items when it casts list views."""
    t = pa.types
    if column.type == wanted or not t.is_nested(wanted) or t.is_null(column.type):
        return plain(column, wanted)
    if t.is_dictionary(column.type):
        return _plain(pc.take(column.dictionary, column.indices), wanted)
    nulls = column.is_null()
    if t.is_struct(wanted):
        parts = [_plain(_field_or_null(column, field), field.type) for field in wanted]
        # lists within it are large ones now
        fields = [pa.field(field.name, part.type) for field, part in zip(wanted, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=nulls)
    if t.is_map(wanted):
        begin, end = column.offsets[0].as_py(), column.offsets[-1].as_py()
        keys = _plain(column.keys.slice(begin, end - begin), wanted.key_type)
        items = _plain(column.items.slice(begin, end - begin), wanted.item_type)
        return pa.MapArray.from_arrays(pc.subtract(column.offsets, begin), keys, items, mask=nulls)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int64())
    return pa.LargeListArray.from_arrays(offsets, _plain(pc.list_flatten(column), wanted.value_type), mask=nulls)


def field_of(column: pa.Array, name: str) -> pa.Array:
    """A field of a column of structs, in any spelling that Spark takes for the same; NULL where the struct is. Raises
    `KeyError` if there is none."""
    column = _decoded_structs(column)
    number = number_of(column.type, name, field_key) if pa.types.is_struct(column.type) else None
    if number is None:
        raise KeyError(name)
    if not column.null_count:
        return column.field(number)  # `struct_field` reads all fields
    # by its number, because Arrow reads a name that begins with a point as a path
    return pc.struct_field(column, [number])


def number_of(columns: pa.Schema | pa.StructType, name: str, key: Callable[[str], Hashable]) -> int | None:
    """The number of the column or field that `spelled` finds; None if there is none, or more than one.

    Arrow finds an exact name at once. Listing the names of a wide table for each of its columns takes minutes.
    """
    exact = columns.get_all_field_indices(name)
    if len(exact) != 1:
        spelling = spelled(columns.names, name, key)
        exact = [] if spelling is None else columns.get_all_field_indices(spelling)
    return int(exact[0]) if exact else None


def _decoded_structs(column: pa.Array) -> pa.Array:
    return pc.take(column.dictionary, column.indices) if pa.types.is_dictionary(column.type) else column


def _field_or_null(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return field_of(column, field.name)
    except KeyError:
        return pa.nulls(len(column), field.type)


def in_one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array. If its dictionaries cannot be joined, it is decoded first."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if not _has_encoded_halves(column.type):
        try:
            combined = column.combine_chunks()
            return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)
        except pa.ArrowInvalid:  # together the dictionaries have more values than their indices can count
            pass
    wanted = _decoded(column.type)
    return pa.concat_arrays([pa.nulls(0, wanted), *(_plain(chunk, wanted) for chunk in column.chunks)])


def _has_encoded_halves(data_type: pa.DataType) -> bool:
    """Whether a type holds dictionaries of half floats, which Arrow 26 joins as if their bits were the numbers."""
    if pa.types.is_dictionary(data_type):
        value_type = data_type.value_type
        return bool(pa.types.is_float16(value_type)) or _has_encoded_halves(value_type)
    return any(_has_encoded_halves(data_type.field(i).type) for i in range(data_type.num_fields))


def _decoded(data_type: pa.DataType) -> pa.DataType:
    """The type without dictionaries, and with large lists for all lists, at all depths, as `_plain` makes it."""
    t = pa.types
    if t.is_dictionary(data_type):
        return _decoded(data_type.value_type)
    if t.is_struct(data_type):
        return pa.struct([field.with_type(_decoded(field.type)) for field in data_type])
    if t.is_map(data_type):
        return pa.map_(_decoded(data_type.key_type), _decoded(data_type.item_type))
    return pa.large_list(_decoded(data_type.value_type)) if _is_any_list(data_type) else data_type


def _is_any_list(data_type: pa.DataType) -> bool:
    t = pa.types
    return any(
        is_list(data_type)
        for is_list in (t.is_list, t.is_large_list, t.is_list_view, t.is_large_list_view, t.is_fixed_size_list)
    )
