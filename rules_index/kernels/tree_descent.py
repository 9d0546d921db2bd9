"""Conjunctions in the nodes of a tree: a block descends the tree once, with the bitmap of the rows that reach each
node.

tree_end         [nodes] int32, the first node behind the subtree of a node; nodes are in preorder
tree_test_start  [nodes + 1] int64 into tree_tests
tree_tests       [., 3] int32 (attribute, low, high): a row enters a node if its coarse codes are in all these intervals
tree_key_start   [nodes + 1] int64 into tree_keys
tree_keys        [.] int32: the conjunctions of each node
tree_depth       the number of nodes on the path from the root to the deepest node
"""

from __future__ import annotations

import numpy as np

from rules_index.kernels.bitmaps import ONE, fill_all
from rules_index.kernels.code_vectors import codes_within
from rules_index.kernels.jit import bare, inner
from rules_index.kernels.lists import grown
from rules_index.kernels.scan import check_rows, passes, rows_of
from rules_index.kernels.vectors import count_bits, trailing_zeros

FEW_ROWS = 64
"""If at most so many rows reach a node, its conjunctions are tested row by row instead of by bitmaps."""


@inner
def descend(
    codes, first, coarse, start, rows, words, chunk_words, bits, disjunction_bits, in_order, index,
    hit_rows, hit_rules, hits,
):  # fmt: skip
    """Appends the hits of the conjunctions in the tree among the rows of the block at `start` of the chunk."""
    bitmaps = np.empty((index.tree_depth + 1, words), np.uint64)
    live = np.zeros(index.tree_depth + 1, np.uint64)
    ends = np.empty(index.tree_depth + 1, np.int32)
    scratch = np.empty(words << 6, np.int32)
    listed = np.empty(words << 6, np.int32)
    current = np.empty(words, np.uint64)
    fill_all(rows, words, bitmaps[0])
    live[0] = ~np.uint64(0) >> np.uint64(64 - ((rows + 63) >> 6))
    nodes = len(index.tree_end)
    ends[0] = nodes
    level = 0
    node = 0
    while node < nodes:
        while ends[level] <= node:
            level -= 1
        count = _go_below(node, coarse, start, chunk_words << 6, index, bitmaps, live, level)
        if count == 0:
            node = index.tree_end[node]
            continue
        level += 1
        ends[level] = index.tree_end[node]
        begin, end = index.tree_key_start[node], index.tree_key_start[node + 1]
        if begin < end and hits + (end - begin) * count > len(hit_rows):
            hit_rows = grown(hit_rows, hits + (end - begin) * count)
            hit_rules = grown(hit_rules, hits + (end - begin) * count)
        if count <= FEW_ROWS:
            _list_rows(bitmaps[level], live[level], listed)
            hits = _row_by_row(
                index.tree_keys[begin:end], listed[:count], codes, first, coarse, start, words, chunk_words, bits,
                disjunction_bits, index.term_start, index.terms, index.check_start, index.checks, index.set_start,
                index.set_intervals, index.target, hit_rows, hit_rules, hits,
            )  # fmt: skip
        else:
            for key in range(begin, end):
                conjunction = index.tree_keys[key]
                found = rows_of(conjunction, words, bits, index.term_start, index.terms, current, scratch)
                found = _within(scratch, found, bitmaps[level])
                found = check_rows(
                    conjunction, found, scratch, codes, first, coarse, start, chunk_words, disjunction_bits, in_order,
                    index.check_start, index.checks, index.set_start, index.set_intervals,
                )  # fmt: skip
                for i in range(found):
                    hit_rows[hits + i] = start + scratch[i]
                    hit_rules[hits + i] = index.target[conjunction]
                hits += found
        node += 1
    return hit_rows, hit_rules, hits


@bare
def _go_below(node, coarse, start, chunk_rows, index, bitmaps, live, level):
    """Writes to the next level's bitmap which rows of this level's bitmap pass the node's tests; returns their number.
    `live` [levels] uint64 says, as bits, which words of a level's bitmap are not zero."""
    words = live[level]
    for word in range(bitmaps.shape[1]):
        bitmaps[level + 1, word] = bitmaps[level, word]
    for test in range(index.tree_test_start[node], index.tree_test_start[node + 1]):
        at = np.uint64(index.tree_tests[test, 0] * chunk_rows + start)
        low = np.uint8(index.tree_tests[test, 1])
        span = np.uint8(index.tree_tests[test, 2] - index.tree_tests[test, 1])
        left = words
        while left != 0:
            word = trailing_zeros(left)
            left &= left - ONE
            rows = bitmaps[level + 1, word] & codes_within(coarse, at + (word << np.uint64(6)), low, span)
            bitmaps[level + 1, word] = rows
            if rows == 0:
                words &= ~(ONE << word)
        if words == 0:
            return 0
    live[level + 1] = words
    count = np.int64(0)
    while words != 0:
        word = trailing_zeros(words)
        words &= words - ONE
        count += np.int64(count_bits(bitmaps[level + 1, word]))
    return count


@bare
def _list_rows(bitmap, words, out):
    """Writes the rows of a bitmap, ascending, to `out` int32. words: which words of the bitmap are not zero, as
    bits."""
    found = 0
    while words != 0:
        word = trailing_zeros(words)
        words &= words - ONE
        rows = bitmap[word]
        while rows != 0:
            out[found] = np.int32((word << np.uint64(6)) + trailing_zeros(rows))
            found += 1
            rows &= rows - ONE


@bare
def _within(rows, count, bitmap):
    """Keeps the rows among `rows[:count]` that are in the bitmap, in place; returns their number."""
    kept = np.int64(0)
    for i in range(count):
        row = rows[i]
        rows[kept] = row
        kept += np.int64((bitmap[row >> 6] >> np.uint64(row & 63)) & ONE)
    return kept


@bare
def _row_by_row(
    conjunctions, rows, codes, first, coarse, start, words, chunk_words, bits, disjunction_bits,
    term_start, terms, check_start, checks, set_start, set_intervals, target, hit_rows, hit_rules, hits,
):  # fmt: skip
    """Appends the hits of every conjunction among a few rows of the block; the arrays have room for all."""
    for conjunction in conjunctions:
        for row in rows:
            word = row >> 6
            held = ~np.uint64(0)
            for term in range(term_start[conjunction], term_start[conjunction + 1]):
                held &= bits[terms[term, 1] * words + word] & ~bits[terms[term, 0] * words + word]
            if (held >> np.uint64(row & 63)) & ONE == 0:
                continue
            if passes(
                conjunction, start + row, codes, first, coarse, chunk_words, disjunction_bits, check_start, checks,
                set_start, set_intervals,
            ):  # fmt: skip
                hit_rows[hits] = start + row
                hit_rules[hits] = target[conjunction]
                hits += 1
    return hits
