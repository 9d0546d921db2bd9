"""The batch kernel: reads a code matrix, chunk by chunk, and returns a list of rule ordinals for each row.

A chunk of rows passes through up to five steps, each over its own conjunctions:

1. shared disjunctions are evaluated to row bitmaps of each block;
2. scanned conjunctions, block by block: the row bitmaps of their terms are intersected, or a row is compared with 64
   conjunctions at once (`kernels.equality_blocks`);
3. conjunctions in hash tables: a row is compared only with those filed under its own codes of a few attributes
   (`kernels.hash_tables`);
4. conjunctions in sorted runs: the chunk is sorted by one attribute, and a block is compared only with those whose
   interval of that attribute it overlaps; then as in 2 (`kernels.sorted_runs`);
5. conjunctions in a tree: those in the nodes that some row of the block reaches (`kernels.tree_descent`).

Row bitmaps can be inexact (codes that were rounded to coarse ones, sets without a bitmap). The rows that are left are
then checked by their exact codes.

The kernels share some parameters:

codes, byte_codes    the code matrix, [attributes, rows] int32 or uint8; the one that is not used has no rows
first                the first row of the chunk
coarse               [attributes * chunk_rows] uint8, the coarse codes of the chunk
start                the first row of the block, counted from `first`
words, chunk_words   words of a bitmap of the block, and of one of the chunk; 64 rows each
bits                 [bitmaps * words] uint64, the bitmaps of the block (`kernels.bitmaps`)
disjunction_bits     [shared disjunctions * chunk_words] uint64, the bitmaps of shared disjunctions for the chunk
order, in_order      int32, the rows of the chunk in the order in which blocks have them; in_order: 0, 1, ...
hit_rows, hit_rules  int32, pairs of a row of the chunk and a rule, of which there are `hits`. A function that appends
                     to them returns the new `hits`, and the arrays as well if it may have reallocated them
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rules_index.kernels.bitmaps import STEP, add_rows, coarsen, count_rows
from rules_index.kernels.equality_blocks import (
    LOOKING,
    can_shuffle,
    comparing,
    equality_blocks_of,
    match_equality_blocks,
    no_equality_blocks,
)
from rules_index.kernels.fill import fill_bitmaps
from rules_index.kernels.hash_tables import list_keyed, match_keyed
from rules_index.kernels.jit import inner, jit
from rules_index.kernels.lists import row_lists, with_room
from rules_index.kernels.llvm import GROUP
from rules_index.kernels.scan import arrange_terms, check_rows, rows_of, scan
from rules_index.kernels.sorted_runs import match_sorted_runs
from rules_index.kernels.summaries import choose_summary_terms, summarise
from rules_index.kernels.transposed_lists import (
    GROUP_BITS,
    TRANSPOSED_HITS,
    groups_of,
    rows_found,
    scan_transposed,
    transposed_lists_of,
)
from rules_index.kernels.tree_descent import descend
from rules_index.kernels.vectors import SPILLED


class KernelArrays(NamedTuple):
    """The arrays of an index that the kernels read. Integers are int32 unless a dtype is given.

    shift             [attributes] bits that a coarse code drops; -1 if no coarse code is needed
    bitmap_attribute  [bitmaps] the attribute whose coarse codes it tests; -1 for the first two (`bitmaps.EMPTY`, `ALL`)
    bitmap_start      [bitmaps + 1] int64 into bitmap_intervals
    bitmap_intervals  [., 2] closed, disjoint intervals of coarse codes
    set_start         [sets + 1] int64 into set_intervals
    set_intervals     [., 2] closed, ascending, disjoint intervals of codes
    term_start        [conjunctions + 1] int64 into terms
    terms             [., 2] bitmaps (low, high): the rows in high that are not in low. The bitmap of a shared
                      disjunction is the number of bitmaps plus the shared disjunction's number
    check_start       [conjunctions + 1] int64 into checks
    checks            [., 4] (attribute, low, high, `scan.FAR` or `NEAR`): the code is in [low, high];
                      (attribute, 0, 0, set): it is in the set; (-1, 0, 0, shared disjunction): that is TRUE
    target            [conjunctions] the shared disjunction's number or the rule's ordinal
    disjunction_start [disjunctions + 1] the conjunctions of each shared disjunction. These come first, and a shared
                      disjunction names only earlier ones
    scanned           the number of scanned conjunctions. They follow those of shared disjunctions, and are followed by
                      those in hash tables, in sorted runs and in the tree

    key_..., slot_..., filter_..., group..., posted, plain   see `kernels.hash_tables` and `kernels.prefilter`
    run_..., level_..., tree_...                             see `kernels.sorted_runs` and `kernels.tree_descent`

    block_rows, chunk_rows  rows of a block and of a chunk, multiples of `STEP`
    ascending         1 if a row's matches are found in ascending order
    distinct          1 if they are found without repeats
    alone             1 if all conjunctions of rules are in one plain table, no two of the same rule

    The following are not stored, but chosen for the rows that are matched (`arranged`):

    transposed        1 if `kernels.transposed_lists` makes the lists; all conjunctions of rules are scanned then
    summary_terms     [`SUMMARY_TERMS` * scanned] bitmaps whose summaries limit where a scanned conjunction can have
                      a row (`kernels.summaries`); empty if bitmaps alone are faster
    summary_next      [scanned] int64, the first term that is not among them, or -1; empty if all terms are
    equality_...      see `kernels.equality_blocks`; empty if scanned conjunctions are not in equality blocks
    """

    shift: np.ndarray
    bitmap_attribute: np.ndarray
    bitmap_start: np.ndarray
    bitmap_intervals: np.ndarray
    set_start: np.ndarray
    set_intervals: np.ndarray
    term_start: np.ndarray
    terms: np.ndarray
    check_start: np.ndarray
    checks: np.ndarray
    target: np.ndarray
    disjunction_start: np.ndarray
    key_start: np.ndarray
    key_attributes: np.ndarray
    key_factors: np.ndarray
    key_bits: np.ndarray
    key_plain: np.ndarray
    slot_at: np.ndarray
    slot_start: np.ndarray
    filter_at: np.ndarray
    filter_bits: np.ndarray
    filter_words: np.ndarray
    groups: np.ndarray
    group_codes: np.ndarray
    group_code_at: np.ndarray
    posted: np.ndarray
    plain: np.ndarray
    run_attribute: np.ndarray
    run_level_start: np.ndarray
    level_width: np.ndarray
    level_offsets: np.ndarray
    tree_end: np.ndarray
    tree_test_start: np.ndarray
    tree_tests: np.ndarray
    tree_key_start: np.ndarray
    tree_keys: np.ndarray
    scanned: int
    block_rows: int
    chunk_rows: int
    ascending: int
    distinct: int
    tree_depth: int
    alone: int
    transposed: int
    summary_terms: np.ndarray
    summary_next: np.ndarray
    equality_attributes: np.ndarray
    equality_start: np.ndarray
    equality_terms: np.ndarray
    equality_conjunctions: np.ndarray
    equality_next: np.ndarray


@jit
def match_codes(codes, byte_codes, index):
    """Matches a code matrix [attributes, rows], int32 or uint8; the one that is not used has no rows.

    Returns (offsets [rows + 1] int64, ordinals [hits] int32); the ordinals of a row are ascending and distinct.
    """
    rows = max(codes.shape[1], byte_codes.shape[1])
    chunk_rows = max(STEP, min(index.chunk_rows, (rows + STEP - 1) // STEP * STEP))
    offsets = np.zeros(rows + 1, np.int64)
    ordinals = np.empty(max(SPILLED, rows), np.int32)
    if index.alone:
        ordinals = _copy_lists(codes, byte_codes, index, chunk_rows, offsets, ordinals)
    elif index.transposed:
        ordinals = _transpose_lists(codes, byte_codes, index, chunk_rows, offsets, ordinals)
    else:
        ordinals = _sort_lists(codes, byte_codes, index, chunk_rows, offsets, ordinals)
    return offsets, ordinals[: offsets[rows]]


@inner
def _copy_lists(codes, byte_codes, index, chunk_rows, offsets, ordinals):
    """Writes the lists if all conjunctions are in one plain table. Returns `ordinals`, reallocated if it had to grow;
    so do the next two functions."""
    rows = len(offsets) - 1
    coarse = np.empty(len(index.shift) * chunk_rows, np.uint8)
    for first in range(0, rows, chunk_rows):
        count = min(chunk_rows, rows - first)
        coarsen(codes, byte_codes, first, count, index.shift, chunk_rows, coarse)
        ordinals = list_keyed(codes, first, count, chunk_rows, coarse, index, offsets, ordinals)
    return ordinals


@inner
def _transpose_lists(codes, byte_codes, index, chunk_rows, offsets, ordinals):
    """Writes the lists if all conjunctions are scanned and rows satisfy many rules."""
    rows = len(offsets) - 1
    words = min(index.block_rows, chunk_rows) >> 6
    chunk_words = chunk_rows >> 6
    disjunctions = len(index.disjunction_start) - 1
    begin = index.disjunction_start[disjunctions]
    end = begin + index.scanned
    coarse = np.empty(len(index.shift) * chunk_rows, np.uint8)
    bits = np.empty((len(index.bitmap_attribute) + disjunctions) * words, np.uint64)
    disjunction_bits = np.zeros(disjunctions * chunk_words, np.uint64)
    in_order = np.arange(chunk_rows).astype(np.int32)
    groups = groups_of(begin, end, index.target)
    number = np.empty(groups, np.int32)
    masks = np.empty(groups * words << GROUP_BITS, np.uint64)
    for first in range(0, rows, chunk_rows):
        count = min(chunk_rows, rows - first)
        coarsen(codes, byte_codes, first, count, index.shift, chunk_rows, coarse)
        for start in range(0, count, words << 6):
            block = min(words << 6, count - start)
            _fill_block(codes, first, coarse, start, block, words, chunk_words, index, in_order, bits, disjunction_bits)
            matches = scan_transposed(
                begin, end, codes, first, coarse, start, words, chunk_words,
                bits, disjunction_bits, index.shift, index.term_start, index.terms, index.check_start, index.checks,
                index.set_start, index.set_intervals, index.target, groups, number, masks,
            )  # fmt: skip
            at = first + start
            ordinals = with_room(ordinals, offsets[at] + matches + SPILLED, at + block, rows)
            transposed_lists_of(block, groups, number, masks, offsets[at:], ordinals)
    return ordinals


@inner
def _sort_lists(codes, byte_codes, index, chunk_rows, offsets, ordinals):
    """Writes the lists by sorting the hits of each chunk by row."""
    rows = len(offsets) - 1
    words = min(index.block_rows, chunk_rows) >> 6
    chunk_words = chunk_rows >> 6
    disjunctions = len(index.disjunction_start) - 1
    bitmaps = len(index.bitmap_attribute) + disjunctions
    coarse = np.empty(len(index.shift) * chunk_rows, np.uint8)
    bits = np.empty(bitmaps * words, np.uint64)
    disjunction_bits = np.zeros(disjunctions * chunk_words, np.uint64)
    summaries = np.zeros(bitmaps * GROUP if len(index.summary_terms) else 0, np.uint64)
    in_order = np.arange(chunk_rows).astype(np.int32)
    row_ends = np.empty(chunk_rows, np.int32)
    hit_rows = np.empty(4 * chunk_rows, np.int32)
    hit_rules = np.empty(4 * chunk_rows, np.int32)
    by_blocks = index.disjunction_start[disjunctions] + index.scanned + len(index.tree_keys) > 0
    # equality blocks find hits in another order
    ascending = index.ascending and not len(index.equality_terms)
    for first in range(0, rows, chunk_rows):
        count = min(chunk_rows, rows - first)
        coarsen(codes, byte_codes, first, count, index.shift, chunk_rows, coarse)
        hits = 0
        if by_blocks:
            for start in range(0, count, words << 6):
                block = min(words << 6, count - start)
                hit_rows, hit_rules, hits = _match_block(
                    codes, first, coarse, start, block, words, chunk_words, index, in_order, bits, disjunction_bits,
                    summaries, hit_rows, hit_rules, hits,
                )  # fmt: skip
        hit_rows, hit_rules, hits = match_keyed(
            codes, first, count, chunk_rows, chunk_words, coarse, disjunction_bits, index, hit_rows, hit_rules, hits
        )
        hit_rows, hit_rules, hits = match_sorted_runs(
            codes, first, count, chunk_rows, words, chunk_words, coarse, bits, disjunction_bits, index,
            hit_rows, hit_rules, hits,
        )  # fmt: skip
        ordinals = with_room(ordinals, offsets[first] + hits, first + count, rows)
        row_lists(hit_rows, hit_rules, hits, count, ascending, index.distinct, row_ends, offsets[first:], ordinals)
    return ordinals


@inner
def _match_block(
    codes, first, coarse, start, rows, words, chunk_words, index, in_order, bits, disjunction_bits, summaries,
    hit_rows, hit_rules, hits,
):  # fmt: skip
    """Appends the hits of the scanned conjunctions, and of those in the tree, in a block of rows; evaluates the shared
    disjunctions. `summaries` is scratch."""
    begin = index.disjunction_start[len(index.disjunction_start) - 1]
    in_equality_blocks = len(index.equality_terms) > 0
    needs_bitmaps = (
        not in_equality_blocks or len(index.equality_next) > 0 or len(index.disjunction_start) > 1
        or len(index.tree_keys) > 0
    )  # fmt: skip
    if needs_bitmaps:
        _fill_block(codes, first, coarse, start, rows, words, chunk_words, index, in_order, bits, disjunction_bits)
    if in_equality_blocks:
        hit_rows, hit_rules, hits = match_equality_blocks(
            begin, codes, first, coarse, start, rows, words, chunk_words, bits, disjunction_bits, in_order,
            index.equality_attributes, index.equality_start, index.equality_terms, index.equality_conjunctions,
            index.equality_next, index.term_start, index.terms, index.check_start, index.checks, index.set_start,
            index.set_intervals, index.target, hit_rows, hit_rules, hits,
        )  # fmt: skip
    else:
        if len(index.summary_terms):
            summarise(len(index.bitmap_attribute) + len(index.disjunction_start) - 1, words, bits, summaries)
        hit_rows, hit_rules, hits = scan(
            begin, begin + index.scanned, codes, first, coarse, start, words, chunk_words, bits, disjunction_bits,
            in_order, index.summary_terms, index.summary_next, summaries, index.term_start, index.terms,
            index.check_start, index.checks, index.set_start, index.set_intervals, index.target,
            hit_rows, hit_rules, hits,
        )  # fmt: skip
    if len(index.tree_keys) > 0:
        hit_rows, hit_rules, hits = descend(
            codes, first, coarse, start, rows, words, chunk_words, bits, disjunction_bits, in_order, index,
            hit_rows, hit_rules, hits,
        )  # fmt: skip
    return hit_rows, hit_rules, hits


@inner
def _fill_block(codes, first, coarse, start, rows, words, chunk_words, index, in_order, bits, disjunction_bits):
    """Fills all bitmaps of a block of rows; those of the shared disjunctions are also written to the block's place in
    `disjunction_bits`."""
    fill_bitmaps(
        coarse, chunk_words << 6, start, rows, words,
        index.bitmap_attribute, index.bitmap_start, index.bitmap_intervals, bits,
    )  # fmt: skip
    _fill_disjunctions(codes, first, coarse, start, rows, words, chunk_words, index, in_order, bits, disjunction_bits)


@inner
def _fill_disjunctions(codes, first, coarse, start, rows, words, chunk_words, index, in_order, bits, disjunction_bits):
    """Fills the bitmaps of all shared disjunctions, in `bits` and at the block's place in `disjunction_bits`. They are
    filled in order, since each may name earlier ones."""
    bitmaps = len(index.bitmap_attribute)
    current = np.empty(words, np.uint64)
    collected = np.empty(words, np.uint64)
    scratch = np.empty(words << 6, np.int32)
    for disjunction in range(len(index.disjunction_start) - 1):
        collected[:] = 0
        for conjunction in range(index.disjunction_start[disjunction], index.disjunction_start[disjunction + 1]):
            found = rows_of(conjunction, words, bits, index.term_start, index.terms, current, scratch)
            if index.check_start[conjunction] < index.check_start[conjunction + 1]:
                found = check_rows(
                    conjunction, found, scratch, codes, first, coarse, start, chunk_words,
                    disjunction_bits, in_order, index.check_start, index.checks, index.set_start, index.set_intervals,
                )  # fmt: skip
            add_rows(scratch, found, collected)
        to = bitmaps + disjunction
        bits[to * words : (to + 1) * words] = collected
        at = disjunction * chunk_words + (start >> 6)
        used = (rows + 63) >> 6
        disjunction_bits[at : at + used] = collected[:used]


@jit
def arranged(sample, index):
    """Measures a sample of at most a block of rows, a code matrix [attributes, rows] int32, to choose how conjunctions
    are scanned.

    Returns `index.terms` with the terms of each conjunction ordered by ascending number of rows (and those of summaries
    or equality blocks first), `index.transposed`, and all fields of `KernelArrays` from `summary_terms` on.
    """
    count = sample.shape[1]
    words = index.block_rows >> 6
    chunk_rows = index.block_rows
    disjunctions = len(index.disjunction_start) - 1
    bitmaps = len(index.bitmap_attribute)
    coarse = np.empty(len(index.shift) * chunk_rows, np.uint8)
    bits = np.empty((bitmaps + disjunctions) * words, np.uint64)
    size_of = np.zeros(bitmaps + disjunctions, np.int32)
    disjunction_bits = np.zeros(disjunctions * words, np.uint64)
    order = np.arange(chunk_rows).astype(np.int32)
    begin = index.disjunction_start[disjunctions]
    end = begin + index.scanned
    coarsen(sample, np.empty((0, 0), np.uint8), 0, count, index.shift, chunk_rows, coarse)
    _fill_block(sample, 0, coarse, 0, count, words, words, index, order, bits, disjunction_bits)
    count_rows(bitmaps + disjunctions, words, bits, size_of)
    terms = index.terms.copy()
    arrange_terms(0, len(index.target), index.term_start, terms, size_of)
    transposed = 0
    if end == len(index.target):
        found = rows_found(begin, end, words, bits, index.term_start, terms)
        transposed = int(found > TRANSPOSED_HITS * groups_of(begin, end, index.target) * count)
    last = begin if transposed else end
    summary_terms, summary_next, shared = choose_summary_terms(
        begin, last, index.term_start, terms, bitmaps + disjunctions, words, count, bits
    )
    equality_blocks = no_equality_blocks()
    if len(summary_terms) and can_shuffle():
        reordered = terms.copy()
        equality_blocks = equality_blocks_of(
            begin, last, index.term_start, reordered, index.bitmap_attribute, index.bitmap_start, index.bitmap_intervals
        )
        scan_by_summaries = last - begin + LOOKING * shared
        if len(equality_blocks[0]) and scan_by_summaries > comparing(
            begin, last, index.term_start, reordered, size_of, equality_blocks, coarse, chunk_rows, count
        ):
            terms, summary_terms, summary_next = reordered, summary_terms[:0], summary_next[:0]
        else:
            equality_blocks = no_equality_blocks()
    return terms, transposed, summary_terms, summary_next, *equality_blocks
