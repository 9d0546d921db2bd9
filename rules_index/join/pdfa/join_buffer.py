"""The join buffer (section 2.2): one copy of each row; for each stream a hash table by key and a list by arrival.

`benchmarks/papers/systems/pdfa/` has the buffer that grows and lets rows expire, as the paper has it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rules_index.kernels.jit import inner, jit

OLDEST_KEPT, NEXT, KEYS = range(3)
"""Indices into `StreamRows.header`: the oldest arrival that is kept, the next arrival's number, the keys in the
table."""
NO_ROW, NO_KEY = -1, -2
LEAST_ROOM = 16


class StreamRows(NamedTuple):
    """The rows of one stream that are kept; arrival number a is at index `a % len(key)`.

    key, time     [room] int64; the room is a power of two
    codes         [room, attributes of the stream] int32
    following     [room] int64, the next arrival of the same key, or `NO_ROW`
    table_key     [slots] int64; the number of slots is a power of two
    first, last   [slots] int64, the earliest and the latest arrival of the key; both are `NO_KEY` in a free slot, and
                  `first` is `NO_ROW` if none of the key's rows is kept any more
    header        [3] int64, see `OLDEST_KEPT`
    """

    key: np.ndarray
    time: np.ndarray
    codes: np.ndarray
    following: np.ndarray
    table_key: np.ndarray
    first: np.ndarray
    last: np.ndarray
    header: np.ndarray


def make_rows(places: int, slots: int, attributes: int, first: int) -> StreamRows:
    """Makes an empty store with `places` rows and `slots` slots for keys, both powers of two; `first` is the number of
    the first arrival."""
    return StreamRows(
        key=np.empty(places, np.int64),
        time=np.empty(places, np.int64),
        codes=np.empty((places, attributes), np.int32),
        following=np.empty(places, np.int64),
        table_key=np.empty(slots, np.int64),
        first=np.full(slots, NO_KEY),
        last=np.full(slots, NO_KEY),
        header=np.array([first, first, 0], np.int64),
    )


@inner
def slot_of(rows: StreamRows, key: int) -> int:
    """The slot of a key in the table, or the free slot for it."""
    mask = len(rows.first) - 1
    state = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    slot = int(np.int64((state ^ (state >> np.uint64(32))) & np.uint64(mask)))
    while rows.first[slot] != NO_KEY and rows.table_key[slot] != key:
        slot = (slot + 1) & mask
    return slot


@jit
def insert_row(rows: StreamRows, key: int, time: int, codes: np.ndarray) -> int:
    """Keeps a row, for which there must be room; returns the number of its arrival."""
    mask = len(rows.key) - 1
    arrival = rows.header[NEXT]
    rows.header[NEXT] += 1
    place = arrival & mask
    rows.key[place] = key
    rows.time[place] = time
    rows.codes[place] = codes
    rows.following[place] = NO_ROW
    slot = slot_of(rows, key)
    if rows.first[slot] == NO_KEY:
        rows.table_key[slot] = key
        rows.header[KEYS] += 1
    if rows.first[slot] < 0:
        rows.first[slot] = arrival
    else:
        rows.following[rows.last[slot] & mask] = arrival
    rows.last[slot] = arrival
    return arrival


@inner
def partners(rows: StreamRows, key: int, earliest: int, found: np.ndarray) -> int:
    """Writes the arrivals of a key whose time is at least `earliest` to `found` [.] int64, ascending, and removes the
    key's older ones. Returns the number written. Rows must have arrived in the order of time."""
    mask = len(rows.key) - 1
    slot = slot_of(rows, key)
    arrival = rows.first[slot]
    while arrival >= 0 and rows.time[arrival & mask] < earliest:
        arrival = rows.following[arrival & mask]
        rows.first[slot] = arrival
    count = 0
    while arrival >= 0:
        found[count] = arrival
        count += 1
        arrival = rows.following[arrival & mask]
    return count
