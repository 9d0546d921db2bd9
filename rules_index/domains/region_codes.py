"""From constants to regions, and from values to region codes (ASC paper, definition 1).

A region is a maximal set of an attribute's values that no constant of any rule distinguishes. Values that rules name
one by one (*points*) have a code each. Between two neighbouring *cuts* of range predicates, all values that are not
points share one code, however many points lie there. Codes ascend with the cuts, so that a range of values is a range
of codes. NULL has the code after the last region, and a row whose evaluation raised has the next one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.arrays import distinct, offsets_of, segment_counts, segment_ids
from rules_index.domains.interned_constants import Keys
from rules_index.domains.value_sets import SetArrays
from rules_index.domains.values import is_bytes
from rules_index.kernels import encode

TABLE_SPAN = 1 << 16
"""Integers are encoded by a lookup table if their cuts span less than this."""
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True)
class Regions:
    """The regions of one attribute: how its values are encoded.

    There are `count` regions of values; `count` is the code of NULL and `count + 1` that of a row that raised. `arrays`
    are what the kernels read, by name: one-dimensional, int32, int64 or uint8 (`cut_arrays`, `byte_arrays`).
    """

    type: pa.DataType
    count: int
    arrays: dict[str, np.ndarray]

    @property
    def size(self) -> int:
        """The number of codes, including those of NULL and of rows that raised."""
        return self.count + 2

    @property
    def is_bytes(self) -> bool:
        """Whether keys are byte strings."""
        return is_bytes(self.type)

    def encode(self, values: pa.Array, raised: np.ndarray | None, out: np.ndarray) -> None:
        """Writes the codes of `values` [rows] into `out` [rows] int32. raised [rows] bool, or None: the rows whose
        evaluation raised."""
        if len(values) == 0:
            return
        if "offsets" in self.arrays:
            self._encode_strings(*byte_strings(values, self.type), out)
        else:
            self._encode_integers(integer_keys(values, self.type), out)
        if values.null_count:
            out[values.is_null().to_numpy(zero_copy_only=False)] = self.count
        if raised is not None:
            out[raised] = self.count + 1

    def encode_keys(self, keys: np.ndarray | pa.LargeBinaryArray, out: np.ndarray) -> None:
        """Writes the codes of keys [.], int64 or byte strings, into `out` [.] int32."""
        if isinstance(keys, np.ndarray):
            self._encode_integers(keys, out)
        else:
            self._encode_strings(*_packed(keys), out)

    def encode_truth(self, truth: np.ndarray, out: np.ndarray) -> None:
        """Writes the codes of a Boolean given as int8 truth codes: 0 FALSE, 1 TRUE, 2 NULL, 3 raised."""
        pair = np.empty(2, np.int32)
        self._encode_integers(np.array([0, 1], np.int64), pair)
        lookup = np.array([pair[0], pair[1], self.count, self.count + 1], np.int32)
        np.take(lookup, truth, out=out, mode="clip")

    def _encode_integers(self, keys: np.ndarray, out: np.ndarray) -> None:
        arrays = self.arrays
        codes = arrays["codes"]
        if "cuts" not in arrays:
            encode.encode_table(keys, arrays["low"][0], codes, out)
        elif len(arrays["cuts"]) == 0:
            out[:] = codes[0]
        else:
            low, shift = arrays["low"]
            encode.encode_search(keys, arrays["cuts"], arrays["buckets"], low, shift, codes, out)

    def _encode_strings(self, offsets: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
        a = self.arrays
        encode.encode_bytes(
            offsets, data, a["table"], a["point_offsets"], a["point_data"], a["point_codes"],
            a["offsets"], a["data"], a["codes"], out,
        )  # fmt: skip


@dataclass(frozen=True)
class RegionLayout:
    """The codes of the cuts and points of one attribute's value sets.

    cuts, points            [.] int64, positions (`interned_constants`), ascending
    cut_codes, point_codes  [.] int32, the code that begins at each cut, the code of each point
    count                   the number of codes, without that of NULL
    """

    cuts: np.ndarray
    points: np.ndarray
    cut_codes: np.ndarray
    point_codes: np.ndarray
    count: int


def _split(sets: SetArrays) -> tuple[np.ndarray, np.ndarray]:
    """Splits the cuts of sets into those of points and of ranges. Returns which cuts [.] bool begin a point (a key
    whose successor is the set's next cut), and which end one; the others are cuts of ranges."""
    cuts = sets.cuts
    follows = np.zeros(len(cuts), bool)
    follows[1:] = cuts[1:] == cuts[:-1] + 1
    follows[sets.offsets[:-1][np.diff(sets.offsets) > 0]] = False
    # of consecutive positions, the first two cuts are a point, then the next two
    run = np.maximum.accumulate(np.where(follows, 0, np.arange(len(cuts))))
    ends = follows & ((np.arange(len(cuts)) - run) % 2 == 1)
    begins = np.zeros(len(cuts), bool)
    begins[:-1] = ends[1:]
    return begins, ends


def lay_out(sets: SetArrays) -> RegionLayout:
    """Numbers the regions of one attribute, given all value sets that rules test it with.

    Points have codes of their own only if that needs fewer codes than a cut on each of their sides.
    """
    begins, ends = _split(sets)
    points = distinct(sets.cuts[begins])
    coarse = distinct(sets.cuts[~begins & ~ends])
    fine = distinct(np.concatenate([coarse, points, points + 1]))
    if len(fine) <= len(coarse) + len(points):
        codes = np.arange(1, len(fine) + 1, dtype=np.int32)
        return RegionLayout(fine, np.empty(0, np.int64), codes, np.empty(0, np.int32), len(fine) + 1)
    cut_codes = 1 + np.arange(len(coarse)) + np.searchsorted(points, coarse, side="left")
    point_codes = 1 + np.arange(len(points)) + np.searchsorted(coarse, points, side="right")
    count = len(coarse) + len(points) + 1
    return RegionLayout(coarse, points, cut_codes.astype(np.int32), point_codes.astype(np.int32), count)


def intervals(layout: RegionLayout, sets: SetArrays) -> tuple[np.ndarray, np.ndarray]:
    """The codes of sets as closed, disjoint, ascending, non-adjacent intervals [intervals, 2] int32, including the code
    of NULL; and the offsets [sets + 1] int64 of each set's intervals. Returns (offsets, intervals). The layout must
    have been made from these sets, among others."""
    edges, offsets = _edges(layout, sets)
    lengths = np.diff(offsets) + sets.start
    odd = lengths % 2 == 1
    ends = offsets_of(lengths + odd)
    flat = np.zeros(ends[-1], np.int32)
    flat[np.arange(len(edges)) + np.repeat(ends[:-1] + sets.start - offsets[:-1], np.diff(offsets))] = edges
    flat[ends[1:][odd] - 1] = layout.count
    pairs = flat.reshape(-1, 2) - np.array([0, 1], np.int32)
    starts = ends // 2
    if not sets.null.any():
        return starts, pairs
    filled = np.diff(starts) > 0
    reaches = np.zeros(len(sets), bool)
    reaches[filled] = pairs[starts[1:][filled] - 1, 1] == layout.count - 1
    pairs[starts[1:][sets.null & reaches] - 1, 1] = layout.count
    alone = sets.null & ~reaches
    pairs = np.insert(pairs, starts[1:][alone], np.int32(layout.count), axis=0)
    return starts + np.concatenate([[0], np.cumsum(alone)]), pairs


def _edges(layout: RegionLayout, sets: SetArrays) -> tuple[np.ndarray, np.ndarray]:
    """The codes below `count` at which each set's membership changes, ascending and distinct within a set; and their
    offsets [sets + 1]."""
    begins, ends = _split(sets) if len(layout.points) else (np.zeros(len(sets.cuts), bool),) * 2
    edges = np.empty(len(sets.cuts), np.int64)
    single = ~begins & ~ends
    edges[single] = layout.cut_codes[np.searchsorted(layout.cuts, sets.cuts[single])]
    edges[begins] = layout.point_codes[np.searchsorted(layout.points, sets.cuts[begins])]
    edges[ends] = edges[begins] + 1
    # if a point ends where the set's next element begins, membership does not change there
    owner = segment_ids(sets.offsets)
    same = np.zeros(len(edges), bool)
    same[:-1] = (edges[1:] == edges[:-1]) & (owner[1:] == owner[:-1])
    same[1:] |= same[:-1].copy()
    kept = ~same & (edges < layout.count)
    return edges[kept], offsets_of(segment_counts(kept, sets.offsets))


def build(layout: RegionLayout, keys: Keys, data_type: pa.DataType) -> Regions:
    """The regions by which values of `data_type` are encoded, for a layout whose positions are those of `keys`."""
    if is_bytes(data_type):
        points, cuts = keys.strings(layout.points), keys.strings(layout.cuts)
        arrays = byte_arrays(points, layout.point_codes, cuts, layout.cut_codes)
        return Regions(data_type, layout.count, arrays)
    return Regions(data_type, layout.count, _integer_arrays(layout))


def _integer_arrays(layout: RegionLayout) -> dict[str, np.ndarray]:
    """The arrays for integer keys. Each point becomes two cuts, the second of which returns to the code around it."""
    before = np.searchsorted(layout.cuts, layout.points, side="right")
    gaps = np.concatenate([[0], layout.cut_codes])[before]
    keys = np.concatenate([layout.points, layout.cuts, layout.points + 1])
    # if several codes begin at one key, a point has precedence over a cut, and a cut over the end of a point
    cuts, first = np.unique(keys, return_index=True)
    codes = np.concatenate([layout.point_codes, layout.cut_codes, gaps])[first]
    return cut_arrays(cuts, codes)


def cut_arrays(cuts: np.ndarray, codes: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays for integer keys. cuts [.] int64 ascend; codes [.]: the code that begins at each. Keys below the first
    cut have the code 0."""
    reached = int(len(cuts) > 0 and cuts[0] == INT64_MIN)
    codes = np.concatenate([[0], codes])[reached:].astype(np.int32)
    cuts = cuts[reached:]
    if len(cuts) and int(cuts[-1]) - int(cuts[0]) < TABLE_SPAN and abs(int(cuts[0])) < INT64_MAX - TABLE_SPAN:
        span = np.arange(cuts[0] - 1, cuts[-1] + 1, dtype=np.int64)
        return {
            "low": cuts[:1].copy(),
            "codes": codes[np.searchsorted(cuts, span, side="right")].astype(np.int32),
        }
    return {"cuts": cuts, "codes": codes, **_bucket_arrays(cuts)}


def _bucket_arrays(cuts: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays that limit `kernels.encode.encode_search` to the cuts that share their upper bits with a key."""
    if len(cuts) == 0:
        return {"buckets": np.zeros(2, np.int32), "low": np.zeros(2, np.int64)}
    low, span = int(cuts[0]), int(cuts[-1]) - int(cuts[0])
    shift = max(0, span.bit_length() - (2 * len(cuts)).bit_length())
    edges = np.arange((span >> shift) + 2, dtype=np.uint64) << np.uint64(shift)
    buckets = np.searchsorted(cuts.view(np.uint64) - np.uint64(low & (1 << 64) - 1), edges).astype(np.int32)
    buckets[-1] = len(cuts)
    return {"buckets": buckets, "low": np.array([low, shift], np.int64)}


def byte_arrays(
    points: pa.LargeBinaryArray, point_codes: np.ndarray, cuts: pa.LargeBinaryArray, cut_codes: np.ndarray
) -> dict[str, np.ndarray]:
    """The arrays for byte strings. Points and cuts are distinct and ascend. A string that is a point has the point's
    code; any other has the code of the last cut at or before it, or 0 if there is none. Codes are [.] int32."""
    point_offsets, point_data = _packed(points)
    offsets, data = _packed(cuts)
    table = np.full(1 << max(1, (2 * len(points)).bit_length()), -1, np.int32)
    encode.build_table(point_offsets, point_data, table)
    return {
        "offsets": offsets,
        "data": data,
        "codes": np.concatenate([np.zeros(1, np.int32), cut_codes]),
        "point_offsets": point_offsets,
        "point_data": point_data,
        "point_codes": point_codes,
        "table": table,
    }


def _packed(strings: pa.LargeBinaryArray) -> tuple[np.ndarray, np.ndarray]:
    """The offsets [strings + 1] int64, from 0 on, and the bytes of strings."""
    offsets = _buffer(strings, 1, np.int64, len(strings) + 1)[strings.offset :][: len(strings) + 1]
    return offsets - offsets[0], _buffer(strings, 2, np.uint8, 0)[offsets[0] : offsets[-1]].copy()


def _buffer(array: pa.Array, index: int, dtype: type, length: int) -> np.ndarray:
    """Buffer number `index` of an array, as numbers; zeros [length] if it is missing."""
    buffer = array.buffers()[index]
    if buffer is None:
        return np.zeros(length, dtype)
    return np.frombuffer(buffer, dtype)


def integer_keys(values: pa.Array, data_type: pa.DataType) -> np.ndarray:
    """The keys [rows] of values, of some integer dtype; arbitrary on NULL rows."""
    rows, start = len(values), values.offset
    if pa.types.is_boolean(data_type):
        bits = _buffer(values, 1, np.uint8, (start + rows + 7) // 8)
        return np.unpackbits(bits, count=start + rows, bitorder="little")[start:]
    if pa.types.is_decimal(data_type):
        return _buffer(values, 1, np.int64, 2 * (start + rows))[2 * start : 2 * (start + rows) : 2]
    if pa.types.is_floating(data_type):
        dtype = np.float64 if pa.types.is_float64(data_type) else np.float32
        doubles = _buffer(values, 1, dtype, start + rows)[start : start + rows].astype(np.float64)
        keys = np.empty(rows, np.int64)
        encode.float_keys(doubles.view(np.int64), keys)
        return keys
    width = np.dtype(f"int{data_type.bit_width}").type
    return _buffer(values, 1, width, start + rows)[start : start + rows]


def byte_strings(values: pa.Array, data_type: pa.DataType) -> tuple[np.ndarray, np.ndarray]:
    """The offsets [rows + 1] and the data of values as byte strings; wide decimals become 16 bytes each."""
    rows, start = len(values), values.offset
    if pa.types.is_decimal(data_type):
        words = _buffer(values, 1, np.uint64, 2 * (start + rows))[2 * start : 2 * (start + rows)].reshape(rows, 2)
        keys = np.empty((rows, 2), ">u8")
        # with the sign bit flipped, big-endian bytes are in the order of the numbers
        keys[:, 0] = words[:, 1] ^ np.uint64(1 << 63)
        keys[:, 1] = words[:, 0]
        return np.arange(0, 16 * rows + 1, 16, dtype=np.int64), keys.reshape(-1).view(np.uint8)
    offsets = _buffer(values, 1, np.int32, start + rows + 1)[start : start + rows + 1]
    return offsets, _buffer(values, 2, np.uint8, 1)


def plain(array: pa.Array | pa.ChunkedArray, data_type: pa.DataType) -> pa.Array:
    """`array` as one contiguous array of exactly `data_type`: large, view and dictionary variants are cast."""
    if isinstance(array, pa.ChunkedArray):
        # one by one: Arrow does not combine all dictionaries
        chunks = [plain(chunk, data_type) for chunk in array.chunks]
        return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks or [pa.array([], data_type)])
    if array.type == data_type:
        return array
    if pa.types.is_dictionary(array.type):
        values = array.dictionary
        if pa.types.is_string_view(values.type) or pa.types.is_binary_view(values.type):  # which `take` does not take
            values = values.cast(pa.large_string() if pa.types.is_string_view(values.type) else pa.large_binary())
        return plain(pc.take(values, array.indices), data_type)
    try:
        return array.cast(data_type)
    except pa.ArrowInvalid:
        if array.nbytes >= 1 << 31:
            raise
        # a slice of more than 2 GiB of texts: Arrow refuses its offsets, however few bytes it has itself
        return pa.concat_arrays([array]).cast(data_type)
