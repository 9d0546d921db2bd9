"""Keys and event times of a join as Arrow arrays, with the equality and the instants that Spark gives them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import NeedsSparkError
from pipelines.lake.column_types import spark_name
from rules_index.language.evaluation.datetime_parser import DAY, is_known, zone_offset
from rules_index.language.evaluation.time_zones import first_instants, offsets

_INTEGER_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_MOST_DIGITS = 38
_KNOWN_DAYS = (1, 2_932_896)
"""Days since 1970 on which all editions of the time zone database agree, up to the end of the year 9999."""


def common_type(kinds: Sequence[pa.DataType], what: str) -> pa.DataType:
    """The type as which a column of the key is compared. kinds: its types in the streams; what: its name in errors.

    NeedsSparkError for types that only Spark compares: a decimal with a floating-point number, an instant with a date
    or a wall time, CHAR or collated strings.
    """
    t = pa.types
    floating, decimal = any(map(t.is_floating, kinds)), any(map(t.is_decimal, kinds))
    if floating and not decimal:
        return pa.float64()
    if len(set(kinds)) == 1 and (kinds[0] in _INTEGER_DIGITS or _is_plain(kinds[0])):
        return kinds[0]
    if all(kind in _INTEGER_DIGITS for kind in kinds):
        return pa.int64()
    if not floating and all(kind in _INTEGER_DIGITS or t.is_decimal(kind) for kind in kinds):
        digits = [kind.precision - kind.scale if t.is_decimal(kind) else _INTEGER_DIGITS[kind] for kind in kinds]
        scale = max(kind.scale for kind in kinds if t.is_decimal(kind))
        if max(digits) + scale <= _MOST_DIGITS:
            return pa.decimal128(max(digits) + scale, scale)
    if all(t.is_date(kind) or (t.is_timestamp(kind) and kind.tz is None) for kind in kinds):
        return pa.timestamp("us")
    raise NeedsSparkError(f"only Spark compares {what}, which are {', '.join(map(spark_name, dict.fromkeys(kinds)))}")


def _is_plain(kind: pa.DataType) -> bool:
    t = pa.types
    alike = (t.is_string, t.is_boolean, t.is_binary, t.is_date, t.is_timestamp, t.is_decimal)
    return any(is_kind(kind) for is_kind in alike)


def comparable(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of the key in its common type, normalised so that values are identical exactly if `=` is TRUE;
    NeedsSparkError for a value that this type cannot hold."""
    try:
        if pa.types.is_floating(kind):
            # integers beyond 2 ** 53 are rounded to doubles, as Spark rounds them
            column = pc.cast(column, kind, safe=False)
            # NaNs, and the two zeros, are equal in SQL although their bits differ
            return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), kind), pc.add(column, pa.scalar(0.0, kind)))
        return column if column.type == kind else pc.cast(column, kind)
    except pa.ArrowInvalid as error:
        raise NeedsSparkError(f"a key of the type {spark_name(column.type)} is beyond {spark_name(kind)}") from error


def instants(column: pa.Array, zone: str) -> pa.Array:
    """Event times as microseconds since 1970, int64; a date is its midnight in the zone, a wall time its instant there.

    NeedsSparkError for a time whose instant only Spark knows, such as one before 1970 in a named zone.
    """
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        return column.cast(pa.int64())
    is_date = pa.types.is_date(column.type)
    null = column.is_null().to_numpy(zero_copy_only=False)
    local = column.cast(pa.int32() if is_date else pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    local = local[~null].astype(np.int64)
    days, of_day = (local, np.zeros_like(local)) if is_date else np.divmod(local, DAY)
    found, failed = _instants_of(days, of_day, zone, is_date)
    if failed.any():
        times = "dates whose midnights" if is_date else "wall times whose instants"
        raise NeedsSparkError(f"event times are {times} in {zone} only Spark knows")
    every = np.zeros(len(column), np.int64)
    every[~null] = found
    return pa.array(every, mask=null)


def _instants_of(days: np.ndarray, of_day: np.ndarray, zone: str, is_date: bool) -> tuple[np.ndarray, np.ndarray]:
    """The instants of local times, [rows] int64 microseconds since 1970, and those that only Spark knows [rows] bool.

    days, of_day: days since 1970, and microseconds of the day, [rows] int64 each.
    """
    if not is_known(zone):
        return days, np.ones(len(days), bool)
    found, failed = first_instants(days, of_day, zone)
    if zone_offset(zone) is None:
        failed |= (days < _KNOWN_DAYS[0]) | (days > _KNOWN_DAYS[1])
        if is_date:  # clocks may skip midnight
            failed |= found + offsets(found, zone) != days * DAY
    return found, failed
