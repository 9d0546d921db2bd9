"""Tests of the argument types for which functions are evaluated here."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, repeat

import pyarrow as pa

from rules_index.language.coercion import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING, is_decimal, is_float, is_integer
from rules_index.language.evaluation.scalar import Types

Kind = Callable[[pa.DataType], bool]
"""A test of the type of one argument."""


def takes(*kinds: Kind, more: Kind = lambda _: False) -> Callable[[Types], bool]:
    """Returns a test of the types of a call's arguments: one for each of `kinds`, in order, then any number of `more`.
    (The greatest number of arguments of a function is checked earlier.)"""

    def accepts(types: Types) -> bool:
        expected = chain(kinds, repeat(more))
        return len(types) >= len(kinds) and all(kind(each) for kind, each in zip(expected, types, strict=False))

    return accepts


def _of(data_type: pa.DataType) -> Kind:
    """Returns the test for exactly this type."""
    return lambda other: bool(other == data_type)


def _small_integer(data_type: pa.DataType) -> bool:
    """An integer no wider than INT."""
    return is_integer(data_type) and data_type != BIGINT


def _plain_number(data_type: pa.DataType) -> bool:
    """An integer or DOUBLE."""
    return is_integer(data_type) or bool(data_type == DOUBLE)


def _roundable(data_type: pa.DataType) -> bool:
    """An integer, a DOUBLE, or a DECIMAL that has room for its floor and ceiling."""
    return bool(data_type.precision < 38 or data_type.scale == 0) if is_decimal(data_type) else _plain_number(data_type)


def _time(data_type: pa.DataType) -> bool:
    """A TIMESTAMP or TIMESTAMP_NTZ."""
    return bool(pa.types.is_timestamp(data_type))


def _instant(data_type: pa.DataType) -> bool:
    """A TIMESTAMP."""
    return _time(data_type) and data_type.tz is not None


def _moment(data_type: pa.DataType) -> bool:
    """A DATE, TIMESTAMP or TIMESTAMP_NTZ."""
    return _time(data_type) or bool(data_type == DATE)


def _list(data_type: pa.DataType) -> bool:
    """An array or a map."""
    return bool(pa.types.is_list(data_type) or pa.types.is_map(data_type))


def _plain_array(data_type: pa.DataType) -> bool:
    """An array of values that are not nested."""
    return bool(pa.types.is_list(data_type)) and not pa.types.is_nested(data_type.value_type)


def _array_in_order(data_type: pa.DataType) -> bool:
    """An array of numbers, DATEs or times."""
    if not pa.types.is_list(data_type):
        return False
    item = data_type.value_type
    return is_integer(item) or is_float(item) or is_decimal(item) or _moment(item)


def _array_of_exact(data_type: pa.DataType) -> bool:
    """An array of texts, integers or DATEs."""
    if not pa.types.is_list(data_type):
        return False
    item = data_type.value_type
    return bool(item in (STRING, DATE)) or is_integer(item)


def _plain_map(data_type: pa.DataType) -> bool:
    """A map to values that are not nested."""
    return bool(pa.types.is_map(data_type)) and not pa.types.is_nested(data_type.item_type)


_TEXT, _INT, _BIGINT, _DATE = _of(STRING), _of(INT), _of(BIGINT), _of(DATE)

texts = takes(more=_TEXT)
one_text = takes(_TEXT)
two_texts = takes(_TEXT, _TEXT)
three_texts = takes(_TEXT, _TEXT, _TEXT)
two_texts_and_number = takes(_TEXT, _TEXT, _INT)
two_texts_and_perhaps_a_number = takes(_TEXT, _TEXT, more=_INT)
text_and_number = takes(_TEXT, _INT)
text_and_numbers = takes(_TEXT, more=_INT)
padded_text = takes(_TEXT, _INT, more=_TEXT)

one_integer = takes(is_integer)
one_small_integer = takes(_small_integer)
one_number = takes(_roundable)
one_plain_number = takes(_plain_number)
two_doubles = takes(_of(DOUBLE), _of(DOUBLE))
number_and_digits = takes(_plain_number, more=_INT)
wide_integer_and_place = takes(lambda data_type: data_type in (INT, BIGINT), _INT)
integer_and_places = takes(is_integer, _small_integer)

one_array_of_exact = takes(_array_of_exact)
one_list = takes(_list)
one_map = takes(_plain_map)
one_array_in_order = takes(_array_in_order)
array_and_order = takes(lambda data_type: _array_in_order(data_type) or _array_of_exact(data_type), more=_of(BOOLEAN))
one_plain_array = takes(_plain_array)
array_of_texts_and_texts = takes(_of(pa.list_(STRING)), _TEXT, more=_TEXT)
array_and_place = takes(_plain_array, _small_integer)
array_and_two_numbers = takes(_plain_array, _INT, _INT)

one_date = takes(_DATE)
one_time = takes(_time)
one_instant = takes(_instant)
one_moment = takes(_moment)
two_instants = takes(_instant, _instant)
two_moments = takes(_moment, _moment)
date_and_days = takes(_DATE, _small_integer)
three_small_integers = takes(_small_integer, _small_integer, _small_integer)
date_and_unit = takes(_DATE, _TEXT)
instant_and_text = takes(_instant, _TEXT)
moment_and_pattern = takes(lambda data_type: data_type == DATE or _instant(data_type), _TEXT)
number_and_pattern = takes(is_integer, more=_TEXT)
time_and_length = takes(_time, _BIGINT)
time_and_months = takes(_time, _INT)
unit_and_instant = takes(_TEXT, _instant)
# dates and TIMESTAMP_NTZs are excluded: in a zone such a local time may not exist
unit_and_instants = takes(_TEXT, _instant, _instant)


def two_integers(kinds: Types) -> bool:
    """Two integers of one type."""
    return len(kinds) == 2 and is_integer(kinds[0]) and kinds[0] == kinds[1]


def two_of_a_kind(kinds: Types) -> bool:
    """Two DATEs, two TIMESTAMPs or two TIMESTAMP_NTZs."""
    return two_moments(kinds) and kinds[0] == kinds[1]


def array_and_item(kinds: Types) -> bool:
    """An array, and a text, integer or floating-point number of its items' type."""
    return (
        len(kinds) == 2
        and bool(pa.types.is_list(kinds[0]))
        and kinds[0].value_type == kinds[1]
        and (kinds[1] == STRING or is_integer(kinds[1]) or is_float(kinds[1]))
    )


def array_and_items(kinds: Types) -> bool:
    """An array of texts, integers or DATEs, and values of its items' type, each of which costs time on each row: at
    least one, and not more than a hundred."""
    return 1 < len(kinds) <= 101 and _array_of_exact(kinds[0]) and set(kinds[1:]) == {kinds[0].value_type}


def plain_arrays(kinds: Types) -> bool:
    """Arrays of one type, of values that are not nested."""
    return _plain_array(kinds[0]) and set(kinds) == {kinds[0]}


def arrays_of_exact(kinds: Types) -> bool:
    """Two arrays of one type, of texts, integers or DATEs."""
    return len(kinds) == 2 and _array_of_exact(kinds[0]) and kinds[0] == kinds[1]


def map_and_key(kinds: Types) -> bool:
    """A map of plain values, and a text or integer of its keys' type."""
    return (
        len(kinds) == 2
        and _plain_map(kinds[0])
        and kinds[0].key_type == kinds[1]
        and (kinds[1] == STRING or is_integer(kinds[1]))
    )
