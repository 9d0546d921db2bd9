"""`hash`, `xxhash64` and `crc32`: the functions by which rules draw samples of rows."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from rules_index.kernels.jit import inlined, jit
from rules_index.language.coercion import BIGINT, BOOLEAN, DATE, INT, STRING, is_decimal, is_float, is_integer
from rules_index.language.evaluation.decimals import halves_of
from rules_index.language.evaluation.scalar import Columns, Result, ScalarFunction, Types, filled, nulls_of
from rules_index.language.patterns.strings import buffers

_SEED = 42
_WORDS = (1 << 32) - 1
_MOST_DIGITS = 18
"""The most digits of a DECIMAL that Spark hashes as a BIGINT; of longer ones it hashes the bytes."""


def _are_hashed(kinds: Types) -> bool:
    return bool(kinds) and all(
        kind in (STRING, BOOLEAN, DATE)
        or is_integer(kind)
        or is_float(kind)
        or pa.types.is_timestamp(kind)
        or (is_decimal(kind) and kind.precision <= _MOST_DIGITS)
        for kind in kinds
    )


def _hash(numbers: Callable[..., None], texts: Callable[..., None], kind: pa.DataType) -> Callable[..., Result]:
    """Returns the function that hashes several columns. The hash of each is the seed for the next; NULL does not change
    it."""

    def evaluate(columns: Columns, _: str) -> Result:
        """Hashes the columns from left to right, beginning with Spark's seed."""
        hashes = np.full(len(columns[0]), _SEED, np.uint64)
        for column in columns:
            if column.type == STRING:
                texts(*buffers(column), hashes)
            else:
                numbers(*_bits(column), ~nulls_of(column), hashes)
        signed = hashes.astype(np.uint32).view(np.int32) if kind == INT else hashes.view(np.int64)
        return pa.array(signed, kind), None

    return evaluate


def _bits(column: pa.Array) -> tuple[np.ndarray, bool]:
    """The bits [rows] uint64 of each number that Spark hashes, and whether these are 64 (else 32)."""
    if is_decimal(column.type):
        return halves_of(column)[:, 0], True
    if is_float(column.type):
        values = filled(column) + 0.0  # -0.0 is hashed as 0.0
        values[np.isnan(values)] = np.nan
        return values.view(np.uint64 if values.itemsize == 8 else np.uint32).astype(np.uint64), values.itemsize == 8
    if pa.types.is_timestamp(column.type) or column.type == BIGINT:
        return filled(column.cast(BIGINT)).view(np.uint64), True
    return filled(column.cast(INT)).view(np.uint32).astype(np.uint64), False


# Murmur3, x86, 32 bits. Hashes are kept in 64 bits, of which the upper 32 are 0.


@inlined
def _rotated(value, count, width):  # type: ignore[no-untyped-def]
    """A word of `width` bits, rotated to the left by `by` bits."""
    value = (value << np.uint64(count)) | (value >> np.uint64(width - count))
    return value & np.uint64(_WORDS) if width == 32 else value


@inlined
def _mixed(state, word):  # type: ignore[no-untyped-def]
    """Murmur3's state after another word of 32 bits."""
    word = (word * np.uint64(0xCC9E2D51)) & np.uint64(_WORDS)
    word = (_rotated(word, 15, 32) * np.uint64(0x1B873593)) & np.uint64(_WORDS)
    state = _rotated(state ^ word, 13, 32)
    return (state * np.uint64(5) + np.uint64(0xE6546B64)) & np.uint64(_WORDS)


@inlined
def _finished(state, length):  # type: ignore[no-untyped-def]
    """Murmur3's hash of `length` bytes, from its state."""
    state ^= np.uint64(length)
    state = ((state ^ (state >> np.uint64(16))) * np.uint64(0x85EBCA6B)) & np.uint64(_WORDS)
    state = ((state ^ (state >> np.uint64(13))) * np.uint64(0xC2B2AE35)) & np.uint64(_WORDS)
    return state ^ (state >> np.uint64(16))


@jit
def _murmur_numbers(bits, is_long, valid, hashes):  # type: ignore[no-untyped-def]
    """Hashes the valid numbers, of 64 bits if `is_long` and else of 32, into `hashes` [rows] uint64."""
    for row in range(len(bits)):
        if valid[row]:
            state = _mixed(hashes[row], bits[row] & np.uint64(_WORDS))
            if is_long:
                state = _mixed(state, bits[row] >> np.uint64(32))
            hashes[row] = _finished(state, 8 if is_long else 4)


@jit
def _murmur_texts(data, offsets, valid, hashes):  # type: ignore[no-untyped-def]
    """Hashes texts into `hashes` [rows] uint64. Unlike Murmur3, Spark mixes in each byte behind the last whole word as
    a word of its own, with its sign."""
    for row in range(len(valid)):
        if valid[row]:
            start, stop = offsets[row], offsets[row + 1]
            whole = start + (stop - start) // 4 * 4
            state = hashes[row]
            for at in range(start, whole, 4):
                state = _mixed(state, _word(data, at, 4))
            for at in range(whole, stop):
                byte = np.uint64(data[at])
                state = _mixed(state, byte | np.uint64(0xFFFFFF00) if byte >= 128 else byte)
            hashes[row] = _finished(state, stop - start)


# xxHash, 64 bits


_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


@inlined
def _word(data, at, size):  # type: ignore[no-untyped-def]
    """The little-endian number in `size` bytes of `data` from `at` on."""
    word = np.uint64(0)
    for place in range(size):
        word |= np.uint64(data[at + place]) << np.uint64(8 * place)
    return word


@inlined
def _round(state, word):  # type: ignore[no-untyped-def]
    """xxHash's state of a lane after another word of 64 bits."""
    return _rotated(state + word * np.uint64(_P2), 31, 64) * np.uint64(_P1)


@inlined
def _with_long(state, word):  # type: ignore[no-untyped-def]
    """xxHash's state after 8 bytes of the tail."""
    return _rotated(state ^ _round(np.uint64(0), word), 27, 64) * np.uint64(_P1) + np.uint64(_P4)


@inlined
def _with_int(state, word):  # type: ignore[no-untyped-def]
    """xxHash's state after 4 bytes of the tail."""
    return _rotated(state ^ (word * np.uint64(_P1)), 23, 64) * np.uint64(_P2) + np.uint64(_P3)


@inlined
def _avalanched(state):  # type: ignore[no-untyped-def]
    """xxHash's hash, from its last state."""
    state = (state ^ (state >> np.uint64(33))) * np.uint64(_P2)
    state = (state ^ (state >> np.uint64(29))) * np.uint64(_P3)
    return state ^ (state >> np.uint64(32))


@jit
def _xxhash_numbers(bits, is_long, valid, hashes):  # type: ignore[no-untyped-def]
    """Hashes the valid numbers, of 64 bits if `is_long` and else of 32, into `hashes` [rows] uint64."""
    for row in range(len(bits)):
        if valid[row]:
            state = hashes[row] + np.uint64(_P5) + np.uint64(8 if is_long else 4)
            state = _with_long(state, bits[row]) if is_long else _with_int(state, bits[row])
            hashes[row] = _avalanched(state)


@jit
def _xxhash_texts(data, offsets, valid, hashes):  # type: ignore[no-untyped-def]
    """Hashes texts into `hashes` [rows] uint64."""
    for row in range(len(valid)):
        if not valid[row]:
            continue
        at, stop = offsets[row], offsets[row + 1]
        length = np.uint64(stop - at)
        state = hashes[row] + np.uint64(_P5)
        if stop - at >= 32:
            state, at = _stripes(data, at, stop, hashes[row])
        state += length
        while at + 8 <= stop:
            state, at = _with_long(state, _word(data, at, 8)), at + 8
        if at + 4 <= stop:
            state, at = _with_int(state, _word(data, at, 4)), at + 4
        while at < stop:
            state = _rotated(state ^ (np.uint64(data[at]) * np.uint64(_P5)), 11, 64) * np.uint64(_P1)
            at += 1
        hashes[row] = _avalanched(state)


@inlined
def _stripes(data, at, stop, seed):  # type: ignore[no-untyped-def]
    """The state after all whole stripes of 32 bytes, each with four lanes of 8, and the offset at which the tail
    begins."""
    first, second = seed + np.uint64(_P1) + np.uint64(_P2), seed + np.uint64(_P2)
    third, fourth = seed, seed - np.uint64(_P1)
    while at + 32 <= stop:
        first = _round(first, _word(data, at, 8))
        second = _round(second, _word(data, at + 8, 8))
        third = _round(third, _word(data, at + 16, 8))
        fourth = _round(fourth, _word(data, at + 24, 8))
        at += 32
    state = _rotated(first, 1, 64) + _rotated(second, 7, 64) + _rotated(third, 12, 64) + _rotated(fourth, 18, 64)
    for lane in (first, second, third, fourth):
        state = (state ^ _round(np.uint64(0), lane)) * np.uint64(_P1) + np.uint64(_P4)
    return state, at


def _crc32(columns: Columns, _: str) -> Result:
    codes = columns[0].cast(pa.binary()).dictionary_encode()
    sums = pa.array([zlib.crc32(each) for each in codes.dictionary.to_pylist()], BIGINT)
    return sums.take(codes.indices), None


HASHES: dict[str, ScalarFunction] = {
    "hash": ScalarFunction(_are_hashed, _hash(_murmur_numbers, _murmur_texts, INT), strict=False, eager=True),
    "xxhash64": ScalarFunction(_are_hashed, _hash(_xxhash_numbers, _xxhash_texts, BIGINT), strict=False, eager=True),
    "crc32": ScalarFunction(lambda kinds: len(kinds) == 1 and kinds[0] == STRING, _crc32),
}
