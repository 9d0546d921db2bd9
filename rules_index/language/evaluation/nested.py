"""The functions of arrays and maps that are evaluated here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.language.coercion import BIGINT, INT
from rules_index.language.evaluation import argument_types
from rules_index.language.evaluation.comparison import compare
from rules_index.language.evaluation.scalar import Columns, Mask, Result, ScalarFunction, filled, like, nulls_of


def _size(columns: Columns, _: str) -> Result:
    """The number of items of each array, or of entries of each map."""
    column = columns[0]
    if pa.types.is_map(column.type):
        offsets = np.diff(column.offsets.to_numpy())
        return like(column, offsets, INT), None
    return pc.list_value_length(column), None


def _array_contains(columns: Columns, _: str) -> Result:
    """TRUE where an item is equal, else NULL where an item is NULL, else FALSE."""
    lists, value = columns[0], columns[1]
    items, owner = items_of(lists)
    found, unknown = np.zeros(len(lists), bool), np.zeros(len(lists), bool)
    found[owner[_are_equal(items, owner, value)]] = True
    unknown[owner[nulls_of(items)]] = True
    return pa.array(found, mask=nulls_of(lists) | nulls_of(value) | (unknown & ~found)), None


def _array_position(columns: Columns, _: str) -> Result:
    """The place of the first equal item, counting from 1; 0 if no item is equal."""
    lists, value = columns[0], columns[1]
    items, owner = items_of(lists)
    hits = np.flatnonzero(_are_equal(items, owner, value))
    rows, first = np.unique(owner[hits], return_index=True)
    places = np.zeros(len(lists), np.int64)
    places[rows] = hits[first] - np.searchsorted(owner, rows) + 1
    return like(lists, places, BIGINT, value), None


def _are_equal(items: pa.Array, owner: np.ndarray, value: pa.Array) -> Mask:
    """Which items [items] bool are equal to the value of their row; `owner` has the row of each item."""
    wanted = pa.repeat(value[0], len(items)) if _is_constant(value) else value.take(pa.array(owner))
    return np.asarray(pc.fill_null(compare("=", items, wanted), False).to_numpy(zero_copy_only=False))


def _array_extreme(columns: Columns, _: str, last: bool) -> Result:
    """The greatest item that is not NULL if `last`, else the least one; NaN is the greatest number."""
    lists = columns[0]
    items, owner = items_of(lists)
    known = np.flatnonzero(~nulls_of(items))
    items, owner = items.take(pa.array(known)), owner[known]
    rows = pa.table({"owner": owner, "item": items})
    order = pc.sort_indices(rows, [("owner", "ascending"), ("item", "ascending")]).to_numpy()
    places = np.searchsorted(owner, np.arange(len(lists) + 1))
    empty = places[:-1] == places[1:]
    positions = np.where(empty, 0, places[1:] - 1 if last else places[:-1])
    taken = order[positions] if len(order) else positions
    return items.take(pa.array(taken, pa.int64(), mask=empty)), None


def _distinct(columns: Columns, _: str) -> Result:
    """The different items of each array, in the order in which they occur first; NULL is an item, too."""
    items, owner = items_of(columns[0])
    return _lists_of(columns[0], items, owner, _first_ones(items, owner)), None


def _among(is_kept: bool) -> Callable[[Columns, str], Result]:
    def evaluate(columns: Columns, _: str) -> Result:
        """The different items of each array that are equal to one of the constants in the other columns, or if not
        `is_kept` the rest of them."""
        items, owner = items_of(columns[0])
        found = pc.is_in(items, pa.concat_arrays([column.slice(0, 1) for column in columns[1:]]))
        kept = np.flatnonzero(found.to_numpy(zero_copy_only=False) == is_kept)
        return _lists_of(columns[0], items, owner, kept[_first_ones(items.take(pa.array(kept)), owner[kept])]), None

    return evaluate


def _first_ones(items: pa.Array, owner: np.ndarray) -> np.ndarray:
    """Ascending, the places of the items that no earlier item of the same array is equal to; `owner` has the row of
    each item."""
    codes = items.dictionary_encode("encode")
    numbered = owner * (len(codes.dictionary) + 1) + filled(codes.indices)
    return np.sort(np.unique(numbered, return_index=True)[1])


def _lists_of(lists: pa.Array, items: pa.Array, owner: np.ndarray, kept: np.ndarray) -> pa.Array:
    """Each array with only the items at the places `kept`; NULL where the array is NULL."""
    return pa.ListArray.from_arrays(
        kept_offsets(lists, owner[kept]), items.take(pa.array(kept)), type=pa.list_(items.type)
    )


def kept_offsets(lists: pa.Array, owner: np.ndarray) -> pa.Array:
    """The offsets of arrays whose items belong to the ascending rows `owner`, NULL where one of `lists` is NULL."""
    return _offsets(owner, nulls_of(lists))


def _offsets(owner: np.ndarray, missing: Mask) -> pa.Array:
    ends = np.cumsum(np.bincount(owner, minlength=len(missing)))
    return pa.array(np.append(0, ends), pa.int32(), mask=np.append(missing, False))


def _reversed(columns: Columns, _: str) -> Result:
    items, owner = items_of(columns[0])
    firsts, lasts = np.searchsorted(owner, owner), np.searchsorted(owner, owner, "right") - 1
    return _lists_of(columns[0], items, owner, firsts + lasts - np.arange(len(owner))), None


def _joined(is_set: bool) -> Callable[[Columns, str], Result]:
    def evaluate(columns: Columns, _: str) -> Result:
        """The items of all arrays of a row, or if `is_set` the different ones of them; NULL if an array is NULL."""
        missing = np.logical_or.reduce([nulls_of(column) for column in columns])
        parts = [items_of(column) for column in columns]
        items, owner = pa.concat_arrays([each for each, _ in parts]), np.concatenate([each for _, each in parts])
        order = np.argsort(owner, kind="stable")
        order = order[~missing[owner[order]]]
        items, owner = items.take(pa.array(order)), owner[order]
        kept = _first_ones(items, owner) if is_set else np.arange(len(owner))
        values = items.take(pa.array(kept))
        return pa.ListArray.from_arrays(_offsets(owner[kept], missing), values, type=columns[0].type), None

    return evaluate


def _overlap(columns: Columns, _: str) -> Result:
    """TRUE where two arrays have an equal item, else NULL where an item is NULL and no array is empty, else FALSE."""
    missing = nulls_of(columns[0]) | nulls_of(columns[1])
    (first, owner), (second, other) = (items_of(column) for column in columns)
    codes = pa.concat_arrays([first, second]).dictionary_encode("encode")
    numbered = np.concatenate([owner, other]) * (len(codes.dictionary) + 1) + filled(codes.indices)
    is_null = np.concatenate([nulls_of(first), nulls_of(second)])
    found, unknown = np.zeros(len(missing), bool), np.zeros(len(missing), bool)
    found[owner[np.isin(numbered[: len(first)], numbered[len(first) :]) & ~is_null[: len(first)]]] = True
    unknown[np.concatenate([owner, other])[is_null]] = True
    for each in (owner, other):
        unknown &= np.bincount(each, minlength=len(missing)) > 0
    return pa.array(found, mask=missing | (unknown & ~found)), None


def _without(columns: Columns, _: str) -> Result:
    """`array_remove(items, value)`, or `array_compact(items)`, which removes NULLs."""
    items, owner = items_of(columns[0])
    removed = _are_equal(items, owner, columns[1]) if len(columns) > 1 else nulls_of(items)
    found = _lists_of(columns[0], items, owner, np.flatnonzero(~removed))
    missing = nulls_of(columns[1]) if len(columns) > 1 else None
    if missing is None or not missing.any():
        return found, None
    return pc.if_else(pa.array(missing), pa.scalar(None, found.type), found), None


def _joined_texts(columns: Columns, _: str) -> Result:
    """`array_join(texts, separator, replacement)`: the texts and, if there is a replacement, that for each NULL."""
    lists = columns[0]
    if len(columns) == 2:
        lists, _failed = _without(columns[:1], "")
    else:
        items, owner = items_of(lists)
        items = pc.fill_null(items, columns[2][0])
        lists = pa.ListArray.from_arrays(kept_offsets(lists, owner), items, type=lists.type)
    return pc.binary_join(lists, columns[1][0]), None


def _of_map(is_keys: bool) -> Callable[[Columns, str], Result]:
    def evaluate(columns: Columns, _: str) -> Result:
        """The keys or the values of each map as an array."""
        maps = columns[0]
        # a mask, because Arrow gives the entries behind a NULL offset, which a NULL map may have, to the map before it
        offsets, is_null = pa.array(maps.offsets.to_numpy()), pa.array(nulls_of(maps))
        return pa.ListArray.from_arrays(offsets, maps.keys if is_keys else maps.items, mask=is_null), None

    return evaluate


def items_of(lists: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """The items of all lists, and the row of each, [items] int64. A list that is NULL has no items, whatever its
    offsets say."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return pc.list_flatten(lists), np.repeat(np.arange(len(lists)), lengths)


def _slice(columns: Columns, _: str) -> Result:
    """`slice(items, place, count)` with constant numbers: `count` items from a place, which counts from 1 or, if
    negative, from the end; none if the place is outside of the array."""
    lists, place, count = columns[0], columns[1][0].as_py(), columns[2][0].as_py()
    begins, ends = _bounds(lists)
    starts = begins + place - 1 if place > 0 else ends + place
    sizes = np.where((starts < begins) | nulls_of(lists), 0, np.clip(ends - starts, 0, count))
    owner = np.repeat(np.arange(len(lists)), sizes)
    kept = np.arange(len(owner)) + np.repeat(starts - np.cumsum(sizes) + sizes, sizes)
    offsets = kept_offsets(lists, owner)
    return pa.ListArray.from_arrays(offsets, lists.values.take(pa.array(kept)), type=lists.type), None


def _sorted(columns: Columns, _: str) -> Result:
    """`sort_array(items, ascending)` with a constant order. NULL is the least item, and NaN the greatest number."""
    lists = columns[0]
    ascending = columns[1][0].as_py() if len(columns) > 1 else True
    items, owner = items_of(lists)
    is_nan = pc.fill_null(pc.is_nan(items), False) if pa.types.is_floating(items.type) else pa.repeat(False, len(items))
    rows = pa.table({"owner": owner, "known": items.is_valid(), "nan": is_nan, "item": items})
    order = "ascending" if ascending else "descending"
    keys = [("owner", "ascending"), *((key, order) for key in ("known", "nan", "item"))]
    places = pc.sort_indices(rows, keys).to_numpy()
    return _lists_of(lists, items, owner, places), None


def _item(columns: Columns, _: str, first: int, raises: bool) -> Result:
    """The item of an array at a place, counting from `first`. If that is 1, negative places count from the end. At a
    place outside of the array, the call raises if `raises` and else is NULL."""
    array, place = columns
    begins, ends = _bounds(array)
    places, sizes = filled(place).astype(np.int64), ends - begins
    indices = places - first
    if first:
        indices = np.where(places < 0, sizes + places, indices)
    inside = (indices >= 0) & (indices < sizes)
    known = ~(nulls_of(array) | nulls_of(place))
    taken = pa.array(begins + indices, mask=~(inside & known))
    return array.values.take(taken), known & ~inside if raises else None


def _value_of_key(columns: Columns, _: str) -> Result:
    """The value of the first entry of each map with this key; NULL if there is none."""
    first, exists = _entry(columns)
    return columns[0].items.take(pa.array(first, mask=~exists)), None


def _has_key(columns: Columns, _: str) -> Result:
    return pa.array(_entry(columns)[1], mask=nulls_of(columns[0]) | nulls_of(columns[1])), None


def _entry(columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """For each map the place of its first entry with the row's key, in the keys of all maps, and whether there is
    one."""
    maps, key = columns
    begins, ends = _bounds(maps)
    entries = maps.keys.slice(begins[0], ends[-1] - begins[0])
    owner = np.repeat(np.arange(len(maps)), ends - begins)
    wanted = key[0] if _is_constant(key) else key.take(pa.array(owner))
    equal = pc.fill_null(pc.equal(entries, wanted), False)
    hits = np.flatnonzero(equal.to_numpy(zero_copy_only=False)) + begins[0]
    first = np.append(hits, len(maps.keys))[np.searchsorted(hits, begins)]
    return first, (first < ends) & ~nulls_of(maps)


def _is_constant(values: pa.Array) -> bool:
    """Whether all rows have the same value. Then it need not be repeated for each item, which would cost more than this
    test."""
    return not values.null_count and bool(pc.all(pc.equal(values, values[0])).as_py())


def _bounds(lists: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The offsets at which each row's items begin and end in `lists.values`, or in the keys and items of maps; [rows]
    int64."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return offsets[:-1], offsets[1:]


NESTED: dict[str, ScalarFunction] = {
    **dict.fromkeys(("size", "cardinality"), ScalarFunction(argument_types.one_list, _size)),
    "array_size": ScalarFunction(lambda kinds: bool(pa.types.is_list(kinds[0])), _size),
    "array_contains": ScalarFunction(argument_types.array_and_item, _array_contains),
    "array_position": ScalarFunction(argument_types.array_and_item, _array_position),
    "array_max": ScalarFunction(argument_types.one_array_in_order, partial(_array_extreme, last=True)),
    "array_min": ScalarFunction(argument_types.one_array_in_order, partial(_array_extreme, last=False)),
    "array_distinct": ScalarFunction(argument_types.one_array_of_exact, _distinct),
    "array_join": ScalarFunction(argument_types.array_of_texts_and_texts, _joined_texts, constants=(1, 2)),
    "array_remove": ScalarFunction(argument_types.array_and_item, _without),
    "array_compact": ScalarFunction(argument_types.one_plain_array, _without),
    "array_union": ScalarFunction(argument_types.arrays_of_exact, _joined(is_set=True)),
    "concat_arrays": ScalarFunction(argument_types.plain_arrays, _joined(is_set=False), eager=True),
    "reverse_array": ScalarFunction(argument_types.one_plain_array, _reversed),
    "overlap": ScalarFunction(argument_types.arrays_of_exact, _overlap),
    "array_intersect": ScalarFunction(argument_types.array_and_items, _among(is_kept=True)),
    "array_except": ScalarFunction(argument_types.array_and_items, _among(is_kept=False)),
    "map_keys": ScalarFunction(argument_types.one_map, _of_map(is_keys=True)),
    "map_values": ScalarFunction(argument_types.one_map, _of_map(is_keys=False)),
    "[]": ScalarFunction(argument_types.array_and_place, partial(_item, first=0, raises=True), raises=True),
    "get": ScalarFunction(argument_types.array_and_place, partial(_item, first=0, raises=False)),
    "element_at": ScalarFunction(argument_types.array_and_place, partial(_item, first=1, raises=True), raises=True),
    "try_element_at": ScalarFunction(
        argument_types.array_and_place,
        partial(_item, first=1, raises=False),
        constants=(1,),
        fits=lambda fixed: fixed[0] != 0,  # with 0 it raises
    ),
    "slice": ScalarFunction(
        argument_types.array_and_two_numbers,
        _slice,
        constants=(1, 2),
        fits=lambda fixed: fixed[0] != 0 and 0 <= fixed[1] <= 1 << 30,  # with more, Spark's sum overflows
    ),
    "sort_array": ScalarFunction(argument_types.array_and_order, _sorted, constants=(1,)),
    "map_contains_key": ScalarFunction(argument_types.map_and_key, _has_key),
    "map_value": ScalarFunction(argument_types.map_and_key, _value_of_key),
}
"""`array_intersect` and `array_except` have an array and the items of a constant one. `[]` is `array[place]`;
`map_value` is `map[key]`, `map.key` and `element_at(map, key)`; `overlap` is `arrays_overlap` of two columns."""
