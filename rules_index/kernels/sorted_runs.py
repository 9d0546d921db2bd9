"""Conjunctions in sorted runs: rows are sorted by an attribute, so that a block of them spans few of its codes.

For each sort attribute the chunk is sorted by its coarse code and split into small blocks, whose bitmaps are filled
again. Of the conjunctions of the run, only those are scanned whose interval can overlap the block's codes. To make
these contiguous, the conjunctions are divided into *levels* by the width of their interval; within a level they ascend
by its lowest code. A level has the intervals of at most as many codes as its width, and of more than the width of the
level before.

run_attribute    [runs] int32
run_level_start  [runs + 1] int64 into the levels
level_width      [levels] int32, codes
level_offsets    [levels, `COARSE_CODES` + 2] int32: [l, c] is the first conjunction of level l whose lowest coarse code
                 is at least c; the last element is the level's end
"""

from __future__ import annotations

import numpy as np

from rules_index.kernels.bitmaps import COARSE_CODES, NO_ROW, STEP
from rules_index.kernels.fill import fill_bitmaps
from rules_index.kernels.jit import bare, inner
from rules_index.kernels.scan import scan

RUN_WORDS = 8
"""The most words of a block of sorted rows. They are so few that its rows span few codes, and that all terms of a
conjunction are read for all words without a branch."""


@inner
def match_sorted_runs(
    codes, first, rows, chunk_rows, words, chunk_words, coarse, bits, disjunction_bits, index,
    hit_rows, hit_rules, hits,
):  # fmt: skip
    """Appends the hits of the conjunctions in sorted runs among the rows [first, first + rows) of the code matrix."""
    runs = len(index.run_attribute)
    # blocks of sorted rows are too short for summaries
    summary_terms, summary_next, summaries = index.summary_terms[:0], index.summary_next[:0], bits[:0]
    words = min(words, RUN_WORDS)
    block_rows = words << 6
    order = np.empty(chunk_rows if runs else 0, np.int32)
    sorted_block = np.empty(len(index.shift) * block_rows if runs else 0, np.uint8)
    for run in range(runs):
        at = index.run_attribute[run] * chunk_rows
        column = coarse[at : at + rows]
        _sort(column, order)
        for start in range(0, rows, block_rows):
            block = min(block_rows, rows - start)
            _gather(coarse, chunk_rows, index.shift, order[start : start + block], block_rows, sorted_block)
            fill_bitmaps(
                sorted_block, block_rows, 0, block, words,
                index.bitmap_attribute, index.bitmap_start, index.bitmap_intervals, bits,
            )  # fmt: skip
            least = column[order[start]]
            most = column[order[start + block - 1]]
            for level in range(index.run_level_start[run], index.run_level_start[run + 1]):
                lowest = max(0, np.int64(least) - index.level_width[level] + 1)
                hit_rows, hit_rules, hits = scan(
                    index.level_offsets[level, lowest], index.level_offsets[level, np.int64(most) + 1],
                    codes, first, coarse, start, words, chunk_words, bits, disjunction_bits, order,
                    summary_terms, summary_next, summaries,
                    index.term_start, index.terms, index.check_start, index.checks, index.set_start,
                    index.set_intervals, index.target, hit_rows, hit_rules, hits,
                )  # fmt: skip
    return hit_rows, hit_rules, hits


@inner
def _sort(column, order):
    """Writes the rows of a column of coarse codes to `order` int32, by ascending code: a stable counting sort."""
    start = np.zeros(COARSE_CODES + 2, np.int32)
    for row in range(len(column)):
        start[column[row] + 1] += 1
    for code in range(COARSE_CODES + 1):
        start[code + 1] += start[code]
    for row in range(len(column)):
        order[start[column[row]]] = row
        start[column[row]] += 1


@bare
def _gather(coarse, chunk_rows, shift, rows, stride, out):
    """Gathers the coarse codes of `rows` into `out`, attribute by attribute, `stride` bytes apart. Behind them it
    writes `NO_ROW` up to the end of the group of words."""
    count = len(rows)
    for attribute in range(len(shift)):
        if shift[attribute] < 0:
            continue
        column = coarse[attribute * chunk_rows : (attribute + 1) * chunk_rows]
        to = out[attribute * stride : (attribute + 1) * stride]
        for i in range(count):
            to[i] = column[rows[i]]
        to[count : (count + STEP - 1) & -STEP] = NO_ROW
