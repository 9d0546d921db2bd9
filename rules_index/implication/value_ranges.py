"""The ranges of keys (`domains.values`) that constants divide a column's values into."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from rules_index.domains.region_codes import Regions
from rules_index.domains.values import Key, successor
from rules_index.implication.representatives import integer_pieces, least_text, strings
from rules_index.language.constants import domain

_WIDE_DIGITS = 16
"""The bytes of the key of a decimal of more than 18 digits."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The values with keys in [low, high). An end is None if no value lies beyond it. Keys of decimals are integers."""

    low: Key | None
    high: Key | None

    @property
    def is_single(self) -> bool:
        """Whether the range has a single key."""
        return self.low is not None and self.high is not None and bool(self.high == successor(self.low))


@dataclass(frozen=True)
class Pieces:
    """The pieces of a column's keys that contain a value, ascending.

    region  [pieces] int64, the region code of each; points divide a region into several pieces
    low     the least key of each
    high    the key behind each
    """

    region: np.ndarray
    low: Sequence[Key]
    high: Sequence[Key | None]
    is_boolean: bool = False

    def ranges(self, chosen: np.ndarray, most: int) -> list[KeyRange]:
        """The pieces of the chosen regions [regions] bool, merged into one range if no other value is between them. If
        there are more than `most` ranges, those with the smallest gaps between them are merged."""
        taken = chosen[self.region]
        edges = np.flatnonzero(np.diff(np.concatenate([[False], taken, [False]])))
        begins, ends = edges[::2], edges[1::2]
        if len(begins) > most:
            widest = np.sort(np.argsort(-self._gaps(begins[1:], ends[:-1]), kind="stable")[: most - 1])
            begins, ends = np.append(begins[0], begins[1:][widest]), np.append(ends[:-1][widest], ends[-1])
        last = len(taken)
        # a BOOLEAN always has both bounds, which make the condition `= FALSE` in place of `<= FALSE`
        least, behind = (None, None) if not self.is_boolean else (self.low[0], self.high[-1])
        return [
            KeyRange(least if begin == 0 else self.low[begin], behind if end == last else self.high[end - 1])
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
        ]

    def _gaps(self, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """The sizes [.] float64 of the gaps between a piece that ends before `ends` and the next one at `begins`: in
        keys, or, if keys are byte strings, in pieces."""
        if isinstance(self.low[0], bytes):
            return np.asarray(begins - ends, float)
        pairs = zip(begins.tolist(), ends.tolist(), strict=True)
        return np.array([float(self.low[begin] - (self.high[end - 1] or 0)) for begin, end in pairs])


def pieces_of(regions: Regions, held: np.ndarray) -> Pieces:
    """The pieces of the regions [regions] bool that have a value."""
    if not regions.is_bytes:
        codes, first, last = integer_pieces(regions)
        kept = held[codes] & (first <= last)
        ends = [key + 1 for key in last[kept].tolist()]
        return Pieces(codes[kept], first[kept].tolist(), ends, pa.types.is_boolean(regions.type))
    arrays = regions.arrays
    cuts = [_key(key, regions.type) for key in strings(arrays["offsets"], arrays["data"])]
    points = [_key(key, regions.type) for key in strings(arrays["point_offsets"], arrays["point_data"])]
    code_of = dict(zip(points, arrays["point_codes"].tolist(), strict=True))
    least, greatest = domain(regions.type)
    edges = sorted({least, *cuts, *points, *map(successor, points)})
    behind = None if greatest is None else greatest + 1
    found: list[tuple[int, Key, Key | None]] = []
    for low, high in pairwise([*edges, behind]):
        code = code_of.get(low)
        if code is None:
            code = int(arrays["codes"][bisect.bisect_right(cuts, low)])
        if held[code] and _holds_value(low, high, regions.type):
            found.append((code, low, high))
    codes = np.array([code for code, _, _ in found], np.int64)
    return Pieces(codes, [low for _, low, _ in found], [high for _, _, high in found])


def _key(key: bytes, data_type: pa.DataType) -> Key:
    """The integer of a decimal's key, which is one more if the key is a successor, with a further byte; other keys
    unchanged."""
    if not pa.types.is_decimal(data_type):
        return key
    digits = int.from_bytes(key[:_WIDE_DIGITS], "big") - (1 << 127)
    return digits + (len(key) > _WIDE_DIGITS)


def _holds_value(low: Key, high: Key | None, data_type: pa.DataType) -> bool:
    """Whether a value of the type has a key in [low, high)."""
    if pa.types.is_string(data_type):
        found = least_text(low)
        return found is not None and (high is None or found < high)
    return high is None or bool(low < high)
