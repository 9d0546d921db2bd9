"""Lists of different lengths as flat arrays: list i is `values[offsets[i]:offsets[i + 1]]`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """The offsets [lists + 1] int64 of concatenated lists with these lengths: the prefix sum."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def gather_indices(offsets: np.ndarray, lists: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions [.] int64 of all values of the chosen `lists`, list after list, and the offsets
    [chosen + 1] int64 of these lists once their values are gathered."""
    lengths = offsets[lists + 1] - offsets[lists]
    gathered = offsets_of(lengths)
    return np.repeat(offsets[lists] - gathered[:-1], lengths) + np.arange(gathered[-1]), gathered


def segment_ids(offsets: np.ndarray) -> np.ndarray:
    """The number [values] int64 of the list that each value belongs to."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def segment_counts(chosen: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """For each list, how many of its values are chosen: [lists] int64, given `chosen` [values] bool."""
    return np.diff(np.concatenate([[0], np.cumsum(chosen)])[offsets])


def distinct(values: np.ndarray) -> np.ndarray:
    """The distinct integers, ascending; for millions of values far faster than `np.unique`."""
    ordered = np.sort(values)
    opens = np.ones(len(ordered), bool)
    opens[1:] = ordered[1:] != ordered[:-1]
    return ordered[opens]


def grown(array: np.ndarray, needed: int, fill: int = 0) -> np.ndarray:
    """Returns the array if it has at least `needed` rows, else a copy with at least `needed` rows and at least twice
    the former number; new rows are filled with `fill`."""
    if needed <= len(array):
        return array
    larger = np.full((max(needed, 2 * len(array), 16), *array.shape[1:]), fill, array.dtype)
    larger[: len(array)] = array
    return larger


def decoded(column: pa.Array) -> pa.Array:
    """The column without dictionary encoding."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def is_text(kind: pa.DataType) -> bool:
    """Whether values of the type are strings, with offsets of 32 or 64 bits."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def valid_texts(texts: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The texts, with NULL for bytes that are not UTF-8, which Arrow reads from files without an error."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([_decoded(each) for each in texts.cast(pa.large_binary()).to_pylist()], texts.type)
    return texts


def _decoded(data: bytes | None) -> str | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


def as_lists(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Mappings as lists of key and value; other columns unchanged."""
    kind = column.type
    if not pa.types.is_map(kind):
        return column
    return column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
