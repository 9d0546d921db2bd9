"""Statistics of a Parquet file for a Delta table's log.

Delta protocol, "Per-file Statistics".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

INDEXED_LEAVES = 32
"""Delta keeps statistics of the first so many leaf columns, unless a table asks for others."""
_LONGEST_TEXT = 64
_LONGEST_EXACT_DECIMAL = 15
"""The digits of a decimal that the log can have as a number, which is read as a double."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class FloatBounds:
    """A file's statistics of a floating-point column: the least and the greatest number (None if there is none), the
    number of NULLs, and whether there is a NaN."""

    low: float | None = None
    high: float | None = None
    nulls: int = 0
    nan: bool = False

    def add(self, column: pa.ChunkedArray) -> None:
        """Adds further values."""
        self.nulls += column.null_count
        not_numbers = pc.is_nan(column)
        if pc.any(not_numbers).as_py():
            self.nan = True
            column = column.filter(pc.invert(not_numbers))
        found = pc.min_max(column).as_py()
        if found["min"] is not None:
            self.low = found["min"] if self.low is None else min(self.low, found["min"])
            self.high = found["max"] if self.high is None else max(self.high, found["max"])

    def put(self, found: dict[str, Any], name: str) -> None:
        """Writes them to a file's statistics `found`, under a column's name."""
        found["nullCount"][name] = self.nulls
        if self.low is not None and self.high is not None:
            found["minValues"][name] = _finite(self.low)
            if not self.nan:
                found["maxValues"][name] = _finite(self.high)


def float_bounds(schema: pa.Schema) -> dict[str, FloatBounds]:
    """Empty bounds for each floating-point column."""
    return {field.name: FloatBounds() for field in schema if pa.types.is_floating(field.type)}


def statistics(
    footer: pq.FileMetaData,
    schema: pa.Schema,
    floats: Mapping[str, FloatBounds],
    indexed: frozenset[str] | None = None,
    groups: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Delta's per-file statistics from a file's footer, as the object that the log has as JSON text.

    indexed: the columns that get statistics; None: the first `INDEXED_LEAVES` leaves. groups: the row groups whose
    statistics they are; None: all.

    Bounds are given only where they certainly hold in Spark's order: none for Booleans, bytes, long decimals and values
    inside lists or maps. Those of floating-point columns are passed in; there is no upper one for a column with NaN.
    """
    described = [footer.row_group(i) for i in (range(footer.num_row_groups) if groups is None else groups)]
    rows = sum(group.num_rows for group in described)
    found: dict[str, Any] = {"numRecords": rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for number, (path, data_type) in enumerate(leaves(schema)):
        if data_type is None or (number >= INDEXED_LEAVES if indexed is None else path[0] not in indexed):
            continue
        if path[0] in floats:
            floats[path[0]].put(found, path[0])
            continue
        chunks = [group.column(number).statistics for group in described]
        if any(chunk is None or not chunk.has_null_count for chunk in chunks):
            continue
        _put(found["nullCount"], path, sum(chunk.null_count for chunk in chunks))
        bounded = [chunk for chunk in chunks if chunk.has_min_max]
        if not bounded or any(not c.has_min_max and c.num_values for c in chunks):
            continue
        try:
            low, high = _bounds(bounded, data_type)
        except UnicodeDecodeError:  # another writer has cut a text within a letter
            continue
        if low is not None:
            _put(found["minValues"], path, low)
        if high is not None:
            _put(found["maxValues"], path, high)
    return found


def leaves(schema: pa.Schema | pa.StructType) -> Iterator[tuple[tuple[str, ...], pa.DataType | None]]:
    """Parquet's leaf columns in their order: path and type; no type for those below a list or a map."""
    for field in schema:
        kind = field.type
        if pa.types.is_struct(kind):
            for path, leaf in leaves(kind):
                # Nested fields are not searched for NaN, so they get no bounds.
                yield (field.name, *path), None if leaf is not None and pa.types.is_floating(leaf) else leaf
        elif pa.types.is_map(kind):
            yield from _unknown(pa.struct([("k", kind.key_type), ("v", kind.item_type)]))
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            yield from _unknown(pa.struct([("element", kind.value_type)]))
        else:
            yield (field.name,), kind.value_type if pa.types.is_dictionary(kind) else kind


def _unknown(kind: pa.StructType) -> Iterator[tuple[tuple[str, ...], None]]:
    for path, _ in leaves(kind):
        yield path, None


def has_bounds(kind: pa.DataType) -> bool:
    """Whether the bounds that a footer has for values of a type can be written to the log."""
    t = pa.types
    is_short_decimal = t.is_decimal(kind) and kind.precision <= _LONGEST_EXACT_DECIMAL
    return bool(t.is_integer(kind) or t.is_string(kind) or is_short_decimal or t.is_date(kind) or t.is_timestamp(kind))


def _bounds(chunks: list[pq.Statistics], data_type: pa.DataType) -> tuple[Any, Any]:
    """The least and the greatest value as the log writes them; None for bounds that it must not have."""
    if pa.types.is_integer(data_type):
        return min(c.min for c in chunks), max(c.max for c in chunks)
    if pa.types.is_string(data_type):
        texts = [(str(c.min), str(c.max)) for c in chunks]
        low = min((least for least, _ in texts), key=str.encode)
        high = max((largest for _, largest in texts), key=str.encode)
        return low[:_LONGEST_TEXT], high if len(high) <= _LONGEST_TEXT else None
    if pa.types.is_decimal(data_type) and data_type.precision <= _LONGEST_EXACT_DECIMAL:
        return float(min(c.min for c in chunks)), float(max(c.max for c in chunks))
    if pa.types.is_date(data_type) or pa.types.is_timestamp(data_type):
        low, high = min(c.min_raw for c in chunks), max(c.max_raw for c in chunks)
        return _time(low, data_type), _time(high, data_type)
    return None, None


def _finite(value: float) -> float | str:
    """A number, with infinities as the log writes them."""
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _time(value: int, data_type: pa.DataType) -> str | None:
    """A date, or a timestamp in milliseconds, which readers know to be rounded down; None beyond the year 9999."""
    try:
        moment = _EPOCH + (
            timedelta(days=value) if pa.types.is_date(data_type) else timedelta(milliseconds=value // 1000)
        )
    except OverflowError:
        return None
    if pa.types.is_date(data_type):
        return moment.date().isoformat()
    text = moment.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return f"{text}Z" if data_type.tz is not None else text


def _put(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for part in path[:-1]:
        values = values.setdefault(part, {})
    values[path[-1]] = value
