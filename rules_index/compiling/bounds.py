"""Reads the validity bounds of rules from columns of any unit and zone."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from rules_index.errors import RulesIndexError
from rules_index.language.evaluation.datetime_parser import zone_offset

_LAST = np.iinfo(np.int64).max
_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


def instants(table: pa.Table, name: str, time_zone: str) -> pa.Int64Array | None:
    """Reads a column of bounds as microseconds since the epoch; None if there is no such column, or no bound in it.

    A timestamp without a zone is read in `time_zone`. A bound that 64 bits cannot hold becomes the nearest one that
    they can. Raises `RulesIndexError` for a column that is no timestamp.
    """
    if name not in table.column_names or pa.types.is_null(table.schema.field(name).type):
        return None
    column = table.column(name)
    if not pa.types.is_timestamp(column.type):
        raise RulesIndexError(f"The rules' column {name} is {column.type}; it must be a timestamp.")
    if column.null_count == len(column):
        return None
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    found = _microseconds(column.cast(pa.int64()).fill_null(0).to_numpy(), column.type.unit)
    if column.type.tz is None:
        offset = zone_offset(time_zone)
        found = _of_region(found, ZoneInfo(time_zone)) if offset is None else _earlier(found, offset)
    return pa.array(found, mask=is_null)


def _microseconds(ticks: np.ndarray, unit: str) -> np.ndarray:
    if unit == "ns":
        return ticks // 1_000
    factor = _PER_UNIT[unit]
    return np.clip(ticks, -(_LAST // factor), _LAST // factor) * factor


def _earlier(local: np.ndarray, offset: Any) -> np.ndarray:
    """`local` - `offset` without an overflow; offset: an integer, or an array with one for each."""
    low, high = -_LAST + np.maximum(offset, 0), _LAST + np.minimum(offset, 0)
    return np.clip(local, low, high) - offset


def _of_region(local: np.ndarray, zone: ZoneInfo) -> np.ndarray:
    """The instants of local times; those outside of the years 1 to 9999 are left as they are."""
    ahead = np.zeros(len(local), np.int64)
    for row, microseconds in enumerate(local.tolist()):
        try:
            offset = (_EPOCH + timedelta(microseconds=microseconds)).replace(tzinfo=zone).utcoffset()
        except OverflowError:
            continue
        ahead[row] = 0 if offset is None else offset // _MICROSECOND
    return _earlier(local, ahead)
