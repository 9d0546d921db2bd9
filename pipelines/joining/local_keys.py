"""Keys and event times of a join as Arrow arrays, with the equality and the instants that Spark gives them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import NeedsSparkError
from rules_index.language.evaluation.datetime_parser import DAY, start_of_day, to_instant, zone_offset

_INTEGER_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_MOST_DIGITS = 38
_PROBES = 8
"""How many times of a day are probed to find the days on which a zone's offset changes."""


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
    raise NeedsSparkError(f"only Spark compares {what}, which are {', '.join(map(str, dict.fromkeys(kinds)))}")


def _is_plain(kind: pa.DataType) -> bool:
    t = pa.types
    alike = (t.is_string, t.is_boolean, t.is_binary, t.is_date, t.is_timestamp, t.is_decimal)
    return any(is_kind(kind) for is_kind in alike)


def comparable(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of the key in its common type, normalised so that values are identical exactly if `=` is TRUE."""
    try:
        if pa.types.is_floating(kind):
            # integers beyond 2 ** 53 are rounded to doubles, as Spark rounds them
            column = pc.cast(column, kind, safe=False)
            # NaNs, and the two zeros, are equal in SQL although their bits differ
            return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), kind), pc.add(column, pa.scalar(0.0, kind)))
        return column if column.type == kind else pc.cast(column, kind)
    except pa.ArrowInvalid as error:
        raise NeedsSparkError(f"a key of the type {column.type} is beyond {kind}") from error


def instants(column: pa.Array, zone: str) -> pa.Array:
    """Event times as microseconds since 1970, int64; a date is its midnight in the zone, a wall time its instant there.

    NeedsSparkError for a time whose instant only Spark knows, such as one before 1970 in a named zone.
    """
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        return column.cast(pa.int64())
    is_date = pa.types.is_date(column.type)
    values = column.cast(pa.int32() if is_date else pa.int64())
    local = values.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    null = column.is_null().to_numpy(zero_copy_only=False)
    distinct, place = np.unique(local[~null], return_inverse=True)
    found = np.zeros(len(local), np.int64)
    found[~null] = (_midnights(distinct, zone) if is_date else _walls(distinct, zone))[place.reshape(-1)]
    return pa.array(found, mask=null)


def _midnights(days: np.ndarray, zone: str) -> np.ndarray:
    known = [start_of_day(day, zone) for day in days.tolist()]
    if None in known:
        raise NeedsSparkError(f"event times are dates whose midnights in {zone} only Spark knows")
    return np.array(known, np.int64)


def _walls(times: np.ndarray, zone: str) -> np.ndarray:
    """The instants of distinct wall times. The offset is looked up once a day, except on days when it changes."""
    offset = zone_offset(zone)
    if offset is not None and (np.abs(times) < 1 << 62).all():
        return times - offset
    days, of = np.unique(times // DAY, return_inverse=True)
    offsets = np.array([_offset(day, zone) for day in days.tolist()], np.float64)
    found = times - np.nan_to_num(offsets).astype(np.int64)[of.reshape(-1)]
    for at in np.flatnonzero(np.isnan(offsets)[of.reshape(-1)]).tolist():
        instant = to_instant(int(times[at]), zone)
        if instant is None:
            raise NeedsSparkError(f"event times are wall times whose instants in {zone} only Spark knows")
        found[at] = instant
    return found


def _offset(day: int, zone: str) -> float:
    """A zone's offset from UTC on a day, in microseconds; NaN if it changes on that day, or is unknown."""
    times = [day * DAY + DAY * number // _PROBES for number in range(_PROBES + 1)]
    instants_of = [to_instant(local, zone) for local in times]
    offsets = {None if instant is None else local - instant for local, instant in zip(times, instants_of, strict=True)}
    (offset,) = offsets if len(offsets) == 1 else (None,)
    return float("nan") if offset is None else float(offset)
