"""All bitmaps of a block beside NumPy, of few intervals and many, of codes, edges and sets."""

from __future__ import annotations

import numpy as np
import pytest

from rules_index.kernels.bitmaps import COARSE_CODES, NO_ROW, STEP, coarsen
from rules_index.kernels.fill import MANY_INTERVALS, fill_bitmaps
from rules_index.kernels.jit import jit

WORDS = 24


@jit
def _coarsen(codes, byte_codes, first, rows, shift, stride, coarse):
    coarsen(codes, byte_codes, first, rows, shift, stride, coarse)


@jit
def _fill(coarse, stride, start, rows, words, attribute, interval_start, intervals, bits):
    fill_bitmaps(coarse, stride, start, rows, words, attribute, interval_start, intervals, bits)


def _intervals(choice: np.random.Generator, kind: str, codes: int) -> np.ndarray:
    """Those of one bitmap, ascending, with a gap between one and the next."""
    if kind == "codes":
        code = int(choice.integers(codes))
        return np.array([[code, code]])
    if kind == "edges":
        return np.array([[0, choice.integers(codes)]])
    pieces = int(choice.integers(1, 5))
    ends = np.sort(choice.choice(codes, 2 * pieces, replace=codes < 2 * pieces)).reshape(-1, 2)
    return ends[np.concatenate([[True], ends[1:, 0] > ends[:-1, 1] + 1])]


@pytest.mark.parametrize("kind", ["codes", "edges", "sets", "mixed"])
@pytest.mark.parametrize("seed", range(8))
def test_bitmaps_are_those_of_the_codes(kind: str, seed: int) -> None:
    choice = np.random.default_rng(seed)
    attributes, stride = 3, (WORDS << 6) + STEP
    sizes = choice.integers(1, COARSE_CODES + 1, attributes)
    rows = int(choice.integers(1, (WORDS << 6) + 1))
    coarse = np.full(attributes * stride, NO_ROW, np.uint8)
    for attribute, size in enumerate(sizes.tolist()):
        coarse[attribute * stride : attribute * stride + rows] = choice.integers(0, size, rows)
    given = []
    for attribute, size in enumerate(sizes.tolist()):
        for _ in range(int(choice.integers(1, 3 * MANY_INTERVALS))):
            drawn = kind if kind != "mixed" else str(choice.choice(["codes", "edges", "sets"]))
            given.append((attribute, _intervals(choice, drawn, size)))
    attribute = np.array([-1, -1, *(each for each, _ in given)], np.int32)
    starts = np.concatenate([[0, 0], np.cumsum([0, *(len(each) for _, each in given)])])
    intervals = np.concatenate([each for _, each in given]).astype(np.int32)
    bitmaps = len(attribute)
    bits = choice.integers(0, 1 << 62, bitmaps * WORDS).astype(np.uint64)
    _fill(coarse, stride, 0, rows, WORDS, attribute, starts, intervals, bits)
    found = np.unpackbits(bits.view(np.uint8), bitorder="little").reshape(bitmaps, -1).astype(bool)
    assert not found[0].any()
    assert found[1].tolist() == [True] * rows + [False] * ((WORDS << 6) - rows)
    for bitmap, (place, each) in enumerate(given):
        codes = coarse[place * stride : place * stride + rows]
        expected = np.zeros(WORDS << 6, bool)
        expected[:rows] = ((codes[:, None] >= each[:, 0]) & (codes[:, None] <= each[:, 1])).any(1)
        assert (found[bitmap + 2] == expected).all(), (place, each)


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 511, 513, 1_000])
def test_coarse_codes_are_the_codes_without_their_lowest_bits(rows: int) -> None:
    choice = np.random.default_rng(rows)
    shift = np.array([0, -1, 3, 9], np.int32)
    stride, first = 2 * STEP, 37
    codes = choice.integers(0, COARSE_CODES << np.maximum(shift, 0)[:, None], (4, first + rows + 5)).astype(np.int32)
    coarse = np.full(4 * stride, 77, np.uint8)
    _coarsen(codes, np.empty((4, 0), np.uint8), first, rows, shift, stride, coarse)
    for attribute, by in enumerate(shift.tolist()):
        own = coarse[attribute * stride : (attribute + 1) * stride]
        if by < 0:
            assert (own == 77).all()
            continue
        whole = -(-rows // STEP) * STEP
        assert own[:rows].tolist() == (codes[attribute, first : first + rows] >> by).tolist()
        assert (own[rows:whole] == NO_ROW).all()
        assert (own[whole:] == 77).all()


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 511, 513, 1_000])
def test_codes_of_bytes_are_coarse_as_they_are(rows: int) -> None:
    choice = np.random.default_rng(rows)
    stride, first = 2 * STEP, 37
    codes = choice.integers(0, COARSE_CODES, (3, first + rows + 5)).astype(np.uint8)
    coarse = np.full(3 * stride, 77, np.uint8)
    _coarsen(np.empty((3, 0), np.int32), codes, first, rows, np.array([0, -1, 0], np.int32), stride, coarse)
    found, whole = coarse.reshape(3, stride), -(-rows // STEP) * STEP
    assert np.array_equal(found[:, :rows], codes[:, first : first + rows])
    assert (found[:, rows:whole] == NO_ROW).all() and (found[:, whole:] == 77).all()
