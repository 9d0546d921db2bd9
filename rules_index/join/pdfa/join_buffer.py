"""The join buffer (section 2.2): one copy of each row; for each stream a hash table by key and a list by arrival."""

from __future__ import annotations

from collections.abc import Sequence
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


class JoinBuffer:
    """The rows of all streams of one join predicate. Rows expire in the order of their arrival."""

    def __init__(self, attributes: Sequence[int]) -> None:
        """attributes: the number of codes of a row, for each stream."""
        self._streams = [make_rows(LEAST_ROOM, LEAST_ROOM, count, 0) for count in attributes]

    def __len__(self) -> int:
        """Number of rows that are kept."""
        return sum(int(rows.header[NEXT] - rows.header[OLDEST_KEPT]) for rows in self._streams)

    def insert(self, stream: int, key: int, time: int, codes: np.ndarray) -> int:
        """Keeps a row; returns the number of its arrival within its stream."""
        rows = self._streams[stream]
        kept = int(rows.header[NEXT] - rows.header[OLDEST_KEPT])
        if kept == len(rows.key) or 2 * int(rows.header[KEYS]) >= len(rows.first):
            rows = self._streams[stream] = _with_room(rows, kept)
        return int(insert_row(rows, key, time, codes))

    def expire(self, stream: int, before: int) -> None:
        """Removes the oldest rows, up to the first whose time is at least `before`."""
        _expire(self._streams[stream], before)

    def probe(self, stream: int, key: int, earliest: int, latest: int) -> np.ndarray:
        """The arrivals [.] int64, ascending, with a key and a time in [earliest, latest]."""
        return _probe(self._streams[stream], key, earliest, latest)

    def times(self, stream: int, arrivals: np.ndarray) -> np.ndarray:
        """The times [arrivals] int64 of kept rows."""
        rows = self._streams[stream]
        return rows.time[arrivals & len(rows.key) - 1]

    def codes(self, stream: int, arrivals: np.ndarray) -> np.ndarray:
        """The codes [arrivals, attributes of the stream] int32 of kept rows."""
        rows = self._streams[stream]
        return rows.codes[arrivals & len(rows.key) - 1]


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


def _with_room(rows: StreamRows, kept: int) -> StreamRows:
    """A copy of the rows that are kept, with room for as many again, and without keys that have no row."""
    room = LEAST_ROOM
    while room < 2 * (kept + 1):
        room *= 2
    # at most half of the slots are used, even when all room is taken
    larger = make_rows(room, 2 * room, rows.codes.shape[1], int(rows.header[OLDEST_KEPT]))
    _copy(rows, larger)
    return larger


@inner
def _slot(rows: StreamRows, key: int) -> int:
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
    slot = _slot(rows, key)
    if rows.first[slot] == NO_KEY:
        rows.table_key[slot] = key
        rows.header[KEYS] += 1
    if rows.first[slot] < 0:
        rows.first[slot] = arrival
    else:
        rows.following[rows.last[slot] & mask] = arrival
    rows.last[slot] = arrival
    return arrival


@jit
def _copy(rows: StreamRows, larger: StreamRows) -> None:
    """Inserts all kept rows into a larger, empty store."""
    for arrival in range(rows.header[OLDEST_KEPT], rows.header[NEXT]):
        place = arrival & (len(rows.key) - 1)
        insert_row(larger, rows.key[place], rows.time[place], rows.codes[place])


@jit
def _expire(rows: StreamRows, before: int) -> None:
    """Removes the oldest rows, up to the first whose time is at least `before`."""
    mask = len(rows.key) - 1
    while rows.header[OLDEST_KEPT] < rows.header[NEXT]:
        place = rows.header[OLDEST_KEPT] & mask
        if rows.time[place] >= before:
            return
        # the oldest row of the stream is also the oldest one of its key
        rows.first[_slot(rows, rows.key[place])] = rows.following[place]
        rows.header[OLDEST_KEPT] += 1


@jit
def _probe(rows: StreamRows, key: int, earliest: int, latest: int) -> np.ndarray:
    """The arrivals [.] int64, ascending, with a key and a time in [earliest, latest]."""
    mask = len(rows.key) - 1
    first = rows.first[_slot(rows, key)]
    count = 0
    arrival = first
    while arrival >= 0:
        time = rows.time[arrival & mask]
        count += earliest <= time <= latest
        arrival = rows.following[arrival & mask]
    found = np.empty(count, np.int64)
    count = 0
    arrival = first
    while arrival >= 0:
        time = rows.time[arrival & mask]
        if earliest <= time <= latest:
            found[count] = arrival
            count += 1
        arrival = rows.following[arrival & mask]
    return found


@jit
def combine(begin: np.ndarray, times: np.ndarray, windows: np.ndarray, time: int, window: int) -> np.ndarray:
    """Returns the combinations [., streams] int32, ascending, of one candidate of each other stream that an arriving
    row with this time and window is joined with: the latest time among all rows is within every row's window.

    begin: [streams + 1] int64, offsets into times [candidates] int64; windows: [streams] int64.
    """
    found = np.empty(
        (_combine(begin, times, windows, time, window, np.empty((0, 0), np.int32)), len(windows)), np.int32
    )
    _combine(begin, times, windows, time, window, found)
    return found


@inner
def _combine(
    begin: np.ndarray, times: np.ndarray, windows: np.ndarray, time: int, window: int, found: np.ndarray
) -> int:
    """Returns the number of combinations, and writes them to `found` unless that is empty."""
    streams = len(windows)
    chosen = begin[:-1].copy()
    latest = np.full(streams + 1, np.int64(time))
    bound = np.full(streams + 1, np.int64(time + window))
    count, stream = 0, 0
    while stream >= 0:
        if chosen[stream] == begin[stream + 1]:
            stream -= 1
            chosen[stream] += stream >= 0
            continue
        at = times[chosen[stream]]
        latest[stream + 1] = max(latest[stream], at)
        bound[stream + 1] = min(bound[stream], at + windows[stream])
        if latest[stream + 1] > bound[stream + 1]:
            chosen[stream] += 1
        elif stream + 1 < streams:
            stream += 1
            chosen[stream] = begin[stream]
        else:
            if len(found) > 0:
                found[count] = chosen
            count += 1
            chosen[stream] += 1
    return count


@inner
def partners(rows: StreamRows, key: int, earliest: int, found: np.ndarray) -> int:
    """Writes the arrivals of a key whose time is at least `earliest` to `found` [.] int64, ascending, and removes the
    key's older ones. Returns the number written. Rows must have arrived in the order of time."""
    mask = len(rows.key) - 1
    slot = _slot(rows, key)
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
