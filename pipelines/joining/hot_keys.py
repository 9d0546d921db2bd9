"""Skew handling: keys of a join with more rows than a partition should have are cut into slices of time.

Each slice owns the rows within it, and gets copies of earlier rows that a window reaches from there. Slices have about
equal numbers of rows, however rows are distributed in time, and are assigned to partitions so that loads are balanced.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import Column, DataFrame, functions

from pipelines.joining import partitioning
from pipelines.joining.partitioning import MAX_SLICE_COPIES
from rules_index.join.worker import KEY, OWNED, STREAM, TIME
from rules_index.names import back_quoted

if TYPE_CHECKING:
    from pipelines.settings.model import Join

PARTS = 4
"""A key is cut into slices if it has more than 1 / PARTS of a partition's share of all rows."""
_HASH, _PLACE = "#hash", "#place"
_SLICES, _BOUNDS, _PLACES = "#slices", "#bounds", "#places"


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key that is cut into slices.

    hash: of the key; bounds: the event times between slices, ascending, in microseconds; places: the partition of each
    slice, one more than there are bounds.
    """

    hash: int
    bounds: list[int]
    places: list[int]


def key_columns(keys: int) -> list[Column]:
    """The columns of a key that has `keys` columns."""
    return [functions.col(back_quoted(f"{KEY}{place}")) for place in range(keys)]


def hot_keys(frames: Sequence[DataFrame], join: Join, keys: int, count: int, total: int | None) -> list[HotKey]:
    """The keys with too many rows for one of `count` partitions.

    Only keys and times of the frames are read. total: the number of rows in all frames, None if unknown.
    """
    hashed = functions.xxhash64(*key_columns(keys)).alias(_HASH)
    rows = reduce(DataFrame.union, [frame.select(functions.col(back_quoted(TIME)), hashed) for frame in frames])
    limit = max(partitioning.MIN_PARTITION_ROWS // PARTS, (rows.count() if total is None else total) // (count * PARTS))
    counted = rows.groupBy(_HASH).agg(functions.count(functions.lit(1)).alias("rows")).filter(f"rows > {limit}")
    found = {int(row[_HASH]): int(row["rows"]) for row in counted.collect()}
    if not found:
        return []
    even = _even_bounds(rows, {hashed: -(-size // limit) for hashed, size in found.items()})
    shortest = max(join.window.values()) // MAX_SLICE_COPIES
    bounds = {hashed: _spaced(times, shortest) for hashed, times in even.items()}
    sizes = {hashed: _sizes(even[hashed], bounds[hashed], found[hashed]) for hashed in found}
    places = _assigned(sizes, count)
    return [HotKey(hashed, bounds[hashed].tolist(), places[hashed]) for hashed in found]


def _even_bounds(rows: DataFrame, slices: dict[int, int]) -> dict[int, np.ndarray]:
    """The event times that divide each key's rows into the given number of slices of about equal size."""
    known = rows.sparkSession.createDataFrame(list(slices.items()), f"`{_HASH}` bigint, `{_SLICES}` bigint")
    finest = max(slices.values())
    shares = [number / finest for number in range(1, finest)]
    times = functions.percentile_approx(functions.col(back_quoted(TIME)), shares, max(4 * finest, 1000))
    parted = rows.join(functions.broadcast(known), _HASH).groupBy(_HASH, _SLICES).agg(times.alias(_BOUNDS))
    of_key = (
        f"transform(sequence(1, `{_SLICES}` - 1), n -> get(`{_BOUNDS}`, CAST(n * {finest} div `{_SLICES}` AS INT) - 1))"
    )
    found = parted.select(_HASH, functions.expr(of_key).alias(_BOUNDS)).collect()
    return {int(row[_HASH]): np.array(row[_BOUNDS], np.int64) for row in found}


def _spaced(bounds: np.ndarray, shortest: int) -> np.ndarray:
    """The ascending bounds without those that are less than `shortest` microseconds after the last kept one."""
    kept = [bounds[0]]
    for bound in bounds[1:]:
        if bound - kept[-1] >= max(shortest, 1):
            kept.append(bound)
    return np.array(kept)


def _sizes(even: np.ndarray, bounds: np.ndarray, rows: int) -> np.ndarray:
    """About how many rows of a key are in each slice between `bounds`, a subset of its `even` bounds."""
    parts = np.bincount(np.searchsorted(bounds, even, side="right"), minlength=len(bounds) + 1)
    # each even bound begins a part, and the first part begins before all bounds
    parts[0] += 1
    return parts * rows / (len(even) + 1)


def _assigned(sizes: dict[int, np.ndarray], count: int) -> dict[int, list[int]]:
    """The partition of each slice, assigned greedily: the largest slice first, each to the least loaded partition."""
    places = {hashed: [0] * len(rows) for hashed, rows in sizes.items()}
    waiting = [(-float(size), hashed, number) for hashed, rows in sizes.items() for number, size in enumerate(rows)]
    loads = [(0.0, place) for place in range(count)]
    for size, hashed, number in sorted(waiting):
        load, place = loads[0]
        places[hashed][number] = place
        heapq.heapreplace(loads, (load - size, place))
    return places


def placed_slices(rows: DataFrame, join: Join, keys: int, count: int, hot: Sequence[HotKey]) -> tuple[DataFrame, int]:
    """The rows in `count` partitions, one copy for each slice that needs them; and how many columns the key now has.

    A row is owned by the slice of its own time. The slice's number is added as the last column of the key.
    """
    part, spark = f"{KEY}{keys}", rows.sparkSession
    schema = f"`{_HASH}` bigint, `{_BOUNDS}` array<bigint>, `{_PLACES}` array<int>"
    known = spark.createDataFrame([astuple(each) for each in hot], schema)
    rows = rows.withColumn(_HASH, functions.xxhash64(*key_columns(keys)))
    rows = rows.join(functions.broadcast(known), _HASH, "left")
    windows = ", ".join(f"{join.window[name]}L" for name in join.streams)
    longest = max(len(each.bounds) for each in hot)
    first = _slice_of(f"`{TIME}`", longest)
    last = _slice_of(f"`{TIME}` + element_at(array({windows}), `{STREAM}` + 1)", longest)
    slices = f"IF(`{_BOUNDS}` IS NULL, array(0), sequence({first}, {last}))"
    rows = rows.withColumn(part, functions.explode(functions.expr(slices)))
    rows = rows.withColumn(OWNED, functions.expr(f"`{_BOUNDS}` IS NULL OR `{part}` = {first}"))
    place = f"coalesce(get(`{_PLACES}`, `{part}`), CAST(pmod(`{_HASH}`, {count}L) AS INT))"
    rows = rows.withColumn(_PLACE, functions.expr(place)).drop(_HASH, _BOUNDS, _PLACES)
    return rows.repartitionById(count, back_quoted(_PLACE)).drop(_PLACE), keys + 1


def _slice_of(time: str, longest: int) -> str:
    """SQL for the number of a time's slice: a binary search for how many bounds (at most `longest`) are not later."""
    steps = ", ".join(str(1 << power) for power in reversed(range(longest.bit_length())))
    return (
        f"aggregate(array({steps}), 0, (slice, step) -> "
        f"IF(get(`{_BOUNDS}`, slice + step - 1) <= {time}, slice + step, slice))"
    )
