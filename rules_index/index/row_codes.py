"""Encodes one row of Python values, attribute by attribute. Needs no array if a value has its column's usual Python
type.

The codes of up to `MOST_KNOWN` values of a column are cached. Everything else (computed attributes, fields of structs,
decimals, NumPy's scalars, values of another type) is encoded as a table of one row.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rules_index.domains.region_codes import Regions
from rules_index.domains.values import float_key
from rules_index.index.code_matrix import codes_of_values
from rules_index.index.inputs import inputs_of
from rules_index.index.single_rows import no_mapping, values_of_row
from rules_index.kernels import encode
from rules_index.language.evaluation.datetime_parser import zone_of
from rules_index.language.typed import Expression, Leaf
from rules_index.names import path_parts

MOST_KNOWN = 1 << 14
_EPOCH, _EPOCH_DATE = datetime(1970, 1, 1), date(1970, 1, 1).toordinal()
_EPOCH_UTC = _EPOCH.replace(tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Coder = Callable[[Any], int | None]
"""Returns the code of a value that has the column's usual Python type; None if a table must encode or refuse the
value."""


class _Column(NamedTuple):
    """How the values of one attribute are encoded.

    name    the key of its column in a row
    kind    the usual Python type of its values; `_NoValue` if a table encodes them all
    known   cached codes by value
    code    encodes values that are not cached
    null    the code of NULL
    number  the attribute's number
    """

    name: str
    kind: type
    known: dict[Any, int]
    code: Coder
    null: int
    number: int


class _NoValue:
    """No value has this type."""


class _Scratch(threading.local):
    codes: np.ndarray | None = None


class RowCoder:
    """Encodes rows for the attributes of an index. Thread-safe."""

    def __init__(self, attributes: Sequence[Expression], regions: Sequence[Regions], time_zone: str) -> None:
        self._attributes, self._regions, self._time_zone = attributes, regions, time_zone
        self._inputs = [inputs_of([attribute]) for attribute in attributes]
        self._columns = [
            _column(number, attribute, regions[number], time_zone) for number, attribute in enumerate(attributes)
        ]
        self._scratch = _Scratch()

    def codes(self, row: Mapping[str, Any]) -> np.ndarray:
        """The codes [attributes] int32 of a row. The array is valid until the thread encodes its next row. Raises
        `SchemaError` for a column that is missing or a value that its type cannot hold."""
        codes: list[int] = []
        others: list[int] = []
        for name, kind, known, code_of, null, number in self._columns:
            try:
                value = row[name]
            except KeyError:
                value = None
                kind = _NoValue
            except TypeError:
                raise no_mapping(row) from None
            if type(value) is kind:
                code = known.get(value)
                if code is None:
                    code = code_of(value)
                    if code is None:
                        others.append(number)
                        code = -1
                    # datetimes are not cached: two that differ only in `fold` are equal, but can be different instants
                    elif len(known) < MOST_KNOWN and kind is not datetime:
                        known[value] = code
            elif value is None and kind is not _NoValue:
                code = null
            else:
                others.append(number)
                code = -1
            codes.append(code)
        if others:
            self._from_table(row, others, codes)
        array = self._scratch.codes
        if array is None:
            array = self._scratch.codes = np.empty(len(codes), np.int32)
        array[:] = codes
        return array

    def _from_table(self, row: Mapping[str, Any], numbers: list[int], codes: list[int]) -> None:
        """Writes the codes of the attributes `numbers` to `codes`, by way of a table of one row, and caches them."""
        leaves = {leaf.name: leaf for number in numbers for leaf in self._inputs[number]}
        values = values_of_row(row, [*leaves.values()], self._time_zone)
        attributes, regions = [self._attributes[i] for i in numbers], [self._regions[i] for i in numbers]
        found, _ = codes_of_values(attributes, regions, values, 1)
        for number, code in zip(numbers, found[:, 0].tolist(), strict=True):
            codes[number] = code
            name, kind, known, *_ = self._columns[number]
            value = row.get(name)
            if type(value) is kind and kind is not datetime and len(known) < MOST_KNOWN:
                known[value] = code


def _column(number: int, attribute: Expression, regions: Regions, time_zone: str) -> _Column:
    name = ""
    kind: type = _NoValue
    code: Coder = _ask_table
    if isinstance(attribute, Leaf) and attribute.text is None and len(path_parts(attribute.name)) == 1:
        name = path_parts(attribute.name)[0]
        plain = _plain(attribute.type, regions, time_zone)
        kind, code = plain if plain is not None else (_NoValue, _ask_table)
    return _Column(name, kind, {}, code, regions.count, number)


def _ask_table(_: Any) -> None:
    return None


def _plain(data_type: pa.DataType, regions: Regions, time_zone: str) -> tuple[type, Coder] | None:
    """The usual Python type of a column's values, and their coder; None if a table must encode them."""
    t = pa.types
    if t.is_boolean(data_type):
        return bool, _ask_table
    if t.is_signed_integer(data_type):
        return int, _integers(regions, 1 << (data_type.bit_width - 1))
    if t.is_float64(data_type):
        code = _integers(regions, 1 << 63)
        return float, lambda value: code(float_key(value))
    if t.is_float32(data_type):
        return float, _ask_table
    if t.is_date32(data_type):
        code = _integers(regions, 1 << 31)
        return date, lambda value: code(value.toordinal() - _EPOCH_DATE)
    if t.is_timestamp(data_type) and data_type.unit == "us":
        return datetime, _moments(regions, data_type.tz is not None, time_zone)
    if t.is_string(data_type):
        return str, _strings(regions)
    return (bytes, _ask_table) if t.is_binary(data_type) else None


def _integers(regions: Regions, bound: int) -> Coder:
    """A coder for keys in [-bound, bound)."""
    codes = regions.arrays["codes"]
    if "cuts" not in regions.arrays:
        low, last = int(regions.arrays["low"][0]) - 1, len(codes) - 1

        def from_table(key: int) -> int | None:
            return int(codes[min(max(key - low, 0), last)]) if -bound <= key < bound else None

        return from_table
    cuts = regions.arrays["cuts"]

    def by_search(key: int) -> int | None:
        return int(codes[cuts.searchsorted(key, "right")]) if -bound <= key < bound else None

    return by_search


def _moments(regions: Regions, has_zone: bool, time_zone: str) -> Coder:
    code = _integers(regions, 1 << 63)
    zone = zone_of(time_zone)

    def zoned(value: datetime) -> int | None:
        aware = value if value.tzinfo is not None else value.replace(tzinfo=zone)
        return code((aware - _EPOCH_UTC) // _MICROSECOND)

    def naive(value: datetime) -> int | None:
        return code((value - _EPOCH) // _MICROSECOND) if value.tzinfo is None else None

    return zoned if has_zone else naive


def _strings(regions: Regions) -> Coder:
    """Returns a coder for strings."""
    a = regions.arrays

    def code(value: str) -> int | None:
        """The code of a string; None if a table must encode or refuse it."""
        try:
            data = value.encode()
        except UnicodeEncodeError:
            return None
        if not data:
            return None
        out = np.empty(1, np.int32)
        encode.encode_bytes(
            np.frombuffer(struct.pack("=ii", 0, len(data)), np.int32), np.frombuffer(data, np.uint8), a["table"],
            a["point_offsets"], a["point_data"], a["point_codes"], a["offsets"], a["data"], a["codes"], out,
        )  # fmt: skip
        return int(out[0])

    return code
