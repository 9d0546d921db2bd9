"""The join buffer of the paper: it grows, rows come in any order of times, and the oldest ones expire (section 2.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.jit import inner, jit
from rules_index.join.pdfa.join_buffer import (
    KEYS,
    LEAST_ROOM,
    NEXT,
    OLDEST_KEPT,
    StreamRows,
    insert_row,
    make_rows,
    slot_of,
)


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


def _with_room(rows: StreamRows, kept: int) -> StreamRows:
    """A copy of the rows that are kept, with room for as many again, and without keys that have no row."""
    room = LEAST_ROOM
    while room < 2 * (kept + 1):
        room *= 2
    # at most half of the slots are used, even when all room is taken
    larger = make_rows(room, 2 * room, rows.codes.shape[1], int(rows.header[OLDEST_KEPT]))
    _copy(rows, larger)
    return larger


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
        rows.first[slot_of(rows, rows.key[place])] = rows.following[place]
        rows.header[OLDEST_KEPT] += 1


@jit
def _probe(rows: StreamRows, key: int, earliest: int, latest: int) -> np.ndarray:
    """The arrivals [.] int64, ascending, with a key and a time in [earliest, latest]."""
    mask = len(rows.key) - 1
    first = rows.first[slot_of(rows, key)]
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
