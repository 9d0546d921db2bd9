"""Constants to regions, batches to region codes (ASC paper, definition 1).

A region is a maximal set of an attribute's values that no constant of any rule tells apart. Values that
rules name one by one (*points*) get a code each; what lies between two *cuts* of range predicates and is no
point shares one code, however many points lie there. Codes ascend with the cuts, so a range of values is
a range of codes; NULL has the code after the last region, and a row whose evaluation raised the one after.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.kernels import encode
from rules_index.values import Key, ValueSet, successor

TABLE_SPAN = 1 << 16
"""Widest range of integer cuts that is coded by a direct table."""
WIDE_DECIMAL = 18
"""Decimals with more digits have 128-bit keys and are coded as 16 big-endian bytes."""

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True)
class Regions:
    """The regions of one attribute: how a value is coded.

    `count` regions of values; `count` is the code of NULL and `count + 1` that of a row that raised.
    `arrays` are what the kernels read, by name; all int32, int64 or uint8, one dimension.
    """

    type: pa.DataType
    count: int
    arrays: dict[str, np.ndarray]

    @property
    def size(self) -> int:
        """Number of codes, those of NULL and of raised rows included."""
        return self.count + 2

    @property
    def is_bytes(self) -> bool:
        """True where keys are byte strings."""
        return is_bytes(self.type)

    def encode(self, values: pa.Array, raised: np.ndarray | None, out: np.ndarray) -> None:
        """Writes the codes of `values` [rows] into `out` [rows] int32; `raised` [rows] bool or None."""
        if len(values) == 0:
            return
        if "offsets" in self.arrays:
            self._encode_bytes(values, out)
        else:
            self._encode_integers(_integer_keys(values, self.type), out)
        if values.null_count:
            out[values.is_null().to_numpy(zero_copy_only=False)] = self.count
        if raised is not None:
            out[raised] = self.count + 1

    def encode_truth(self, truth: np.ndarray, out: np.ndarray) -> None:
        """Codes of a Boolean handed over as int8: 0 FALSE, 1 TRUE, 2 NULL, 3 raised."""
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

    def _encode_bytes(self, values: pa.Array, out: np.ndarray) -> None:
        a = self.arrays
        offsets, data = _byte_strings(values, self.type)
        encode.encode_bytes(
            offsets, data, a["table"], a["point_offsets"], a["point_data"], a["point_codes"],
            a["offsets"], a["data"], a["codes"], out,
        )  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """Where the cuts and points of one attribute's value sets stand among its codes."""

    cuts: list[Key]
    points: list[Key]
    cut_codes: dict[Key, int]
    point_codes: dict[Key, int]
    count: int

    def intervals(self, values: ValueSet) -> list[int]:
        """The codes of a value set (one of those that the layout was made from) as the ends low, high, low,
        high, ... of closed, disjoint, ascending, non-adjacent intervals; the code of NULL is not among them."""
        cuts = values.cuts
        if not self.points:
            edges = [self.cut_codes[key] for key in cuts]
        elif len(cuts) == 2 and not values.start and cuts[1] == successor(cuts[0]):
            code = self.point_codes[cuts[0]]
            return [code, code]
        else:
            edges = self._edges(cuts)
        if values.start:
            edges = edges[1:] if edges and edges[0] == 0 else [0, *edges]
        if edges and edges[-1] == self.count:
            edges.pop()
        if len(edges) % 2:
            edges.append(self.count)
        edges[1::2] = [edge - 1 for edge in edges[1::2]]
        return edges

    def _edges(self, cuts: tuple[Key, ...]) -> list[int]:
        """The codes at which membership changes, ascending and distinct."""
        points, single = _split(cuts)
        edges = [self.cut_codes[key] for key in single]
        for key in points:
            code = self.point_codes[key]
            edges += (code, code + 1)
        edges.sort()
        kept: list[int] = []
        for edge in edges:
            if kept and kept[-1] == edge:
                kept.pop()
            else:
                kept.append(edge)
        return kept


def _split(cuts: tuple[Key, ...]) -> tuple[list[Key], list[Key]]:
    """The cuts of one value set as points (a value and its successor) and single cuts."""
    points: list[Key] = []
    single: list[Key] = []
    i = 0
    while i < len(cuts):
        if i + 1 < len(cuts) and cuts[i + 1] == successor(cuts[i]):
            points.append(cuts[i])
            i += 2
        else:
            single.append(cuts[i])
            i += 1
    return points, single


def lay_out(sets: Iterable[ValueSet]) -> Layout:
    """Numbers the regions of one attribute from all value sets that rules test it with.

    Points are kept apart from cuts only where that needs fewer codes than cutting on both their sides.
    """
    points: set[Key] = set()
    coarse: set[Key] = set()
    for values in sets:
        edges = values.cuts
        if len(edges) == 1:
            coarse.add(edges[0])
        elif len(edges) == 2 and edges[1] == successor(edges[0]):
            points.add(edges[0])
        else:
            some_points, some_cuts = _split(edges)
            points.update(some_points)
            coarse.update(some_cuts)
    fine = coarse | points | {successor(point) for point in points}
    if len(fine) <= len(coarse) + len(points):
        cuts: list[Key] = sorted(fine)
        return Layout(cuts, [], {key: i + 1 for i, key in enumerate(cuts)}, {}, len(cuts) + 1)
    cuts = sorted(coarse)
    ordered: list[Key] = sorted(points)
    cut_codes: dict[Key, int] = {}
    point_codes: dict[Key, int] = {}
    code, following = 1, 0
    for key in (*cuts, None):
        while following < len(ordered) and (key is None or ordered[following] < key):
            point_codes[ordered[following]] = code
            code, following = code + 1, following + 1
        if key is not None:
            cut_codes[key] = code
            code += 1
    return Layout(cuts, ordered, cut_codes, point_codes, code)


def build(layout: Layout, data_type: pa.DataType) -> Regions:
    """The arrays that code values of `data_type` by `layout`."""
    if is_bytes(data_type):
        return Regions(data_type, layout.count, _byte_arrays(layout, data_type))
    return Regions(data_type, layout.count, _integer_arrays(layout))


def _integer_arrays(layout: Layout) -> dict[str, np.ndarray]:
    """Points become two cuts each, told apart from ranges only by the code that follows them."""
    steps: dict[int, int] = {}
    gap = 0
    following = 0
    for key in (*layout.cuts, None):
        while following < len(layout.points) and (key is None or layout.points[following] < key):
            point = layout.points[following]
            steps[point] = layout.point_codes[point]
            steps[point + 1] = gap
            following += 1
        if key is not None:
            steps[key] = gap = layout.cut_codes[key]
    keys = sorted(steps)
    reached = sum(key <= INT64_MIN for key in keys)
    codes = np.array([0, *(steps[key] for key in keys)], np.int32)[reached:]
    inside = [key for key in keys[reached:] if key <= INT64_MAX]
    cuts = np.array(inside, np.int64)
    codes = codes[: len(cuts) + 1].copy()
    if len(cuts) and inside[-1] - inside[0] < TABLE_SPAN and abs(inside[0]) < INT64_MAX - TABLE_SPAN:
        span = np.arange(inside[0] - 1, inside[-1] + 1, dtype=np.int64)
        return {
            "low": np.array([inside[0]], np.int64),
            "codes": codes[np.searchsorted(cuts, span, side="right")].astype(np.int32),
        }
    return {"cuts": cuts, "codes": codes, **_bucket_arrays(cuts)}


def _bucket_arrays(cuts: np.ndarray) -> dict[str, np.ndarray]:
    if len(cuts) == 0:
        return {"buckets": np.zeros(2, np.int32), "low": np.zeros(2, np.int64)}
    low, span = int(cuts[0]), int(cuts[-1]) - int(cuts[0])
    shift = max(0, span.bit_length() - (2 * len(cuts)).bit_length())
    edges = np.arange((span >> shift) + 2, dtype=np.uint64) << np.uint64(shift)
    buckets = np.searchsorted(cuts.view(np.uint64) - np.uint64(low & (1 << 64) - 1), edges).astype(np.int32)
    buckets[-1] = len(cuts)
    return {"buckets": buckets, "low": np.array([low, shift], np.int64)}


def _byte_arrays(layout: Layout, data_type: pa.DataType) -> dict[str, np.ndarray]:
    def packed(keys: list[Key]) -> tuple[np.ndarray, np.ndarray]:
        strings = [key if isinstance(key, bytes) else wide_key(key) for key in keys]
        offsets = np.zeros(len(strings) + 1, np.int64)
        np.cumsum([len(s) for s in strings], out=offsets[1:])
        return offsets, np.frombuffer(b"".join(strings), np.uint8).copy()

    point_offsets, point_data = packed(layout.points)
    offsets, data = packed(layout.cuts)
    table = np.full(1 << max(1, (2 * len(layout.points)).bit_length()), -1, np.int32)
    encode.build_table(point_offsets, point_data, table)
    return {
        "offsets": offsets,
        "data": data,
        "codes": np.array([0, *(layout.cut_codes[key] for key in layout.cuts)], np.int32),
        "point_offsets": point_offsets,
        "point_data": point_data,
        "point_codes": np.array([layout.point_codes[key] for key in layout.points], np.int32),
        "table": table,
    }


def is_bytes(data_type: pa.DataType) -> bool:
    """True for the types whose values are coded as byte strings."""
    if pa.types.is_decimal(data_type):
        return bool(data_type.precision > WIDE_DECIMAL)
    return pa.types.is_string(data_type) or pa.types.is_binary(data_type)


def wide_key(key: int) -> bytes:
    """A 128-bit signed key as 16 bytes in the same order; keys beyond 128 bits are clamped."""
    clamped = min(max(key, -(1 << 127)), (1 << 127) - 1)
    return (clamped + (1 << 127)).to_bytes(16, "big")


def _buffer(array: pa.Array, index: int, dtype: type, length: int) -> np.ndarray:
    buffer = array.buffers()[index]
    if buffer is None:
        return np.zeros(length, dtype)
    return np.frombuffer(buffer, dtype)


def _integer_keys(values: pa.Array, data_type: pa.DataType) -> np.ndarray:
    """Keys [rows] of any integer dtype; what stands on NULL rows is arbitrary."""
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


def _byte_strings(values: pa.Array, data_type: pa.DataType) -> tuple[np.ndarray, np.ndarray]:
    """Offsets [rows + 1] and data of byte strings; wide decimals become 16 bytes each."""
    rows, start = len(values), values.offset
    if pa.types.is_decimal(data_type):
        words = _buffer(values, 1, np.uint64, 2 * (start + rows))[2 * start : 2 * (start + rows)].reshape(rows, 2)
        keys = np.empty((rows, 2), ">u8")
        keys[:, 0] = words[:, 1] ^ np.uint64(1 << 63)
        keys[:, 1] = words[:, 0]
        return np.arange(0, 16 * rows + 1, 16, dtype=np.int64), keys.reshape(-1).view(np.uint8)
    offsets = _buffer(values, 1, np.int32, start + rows + 1)[start : start + rows + 1]
    return offsets, _buffer(values, 2, np.uint8, 1)


def plain(array: pa.Array | pa.ChunkedArray, data_type: pa.DataType) -> pa.Array:
    """`array` as one contiguous array of exactly `data_type`; large, view and dictionary variants are cast."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    if array.type == data_type:
        return array
    if pa.types.is_dictionary(array.type):
        return plain(pc.take(array.dictionary, array.indices), data_type)
    return array.cast(data_type)
