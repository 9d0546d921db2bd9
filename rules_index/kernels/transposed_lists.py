"""Makes the lists of rows that satisfy many rules: the row bitmaps of 64 rules are transposed, and each row's list is
read from them.

Sorting hits that were found rule by rule into the order of rows costs more than finding them. Here the rows of a rule
stay a bitmap. The bitmaps of a *group*, 64 rules whose ordinals differ only in their lowest bits, become one word for
each row: its bit b says whether the row satisfies the group's rule b. A row's words, group by group, are its list. A
rule of several conjunctions occurs in it only once.
"""

from __future__ import annotations

import numpy as np

from rules_index.kernels.bitmaps import ONE
from rules_index.kernels.code_vectors import codes_within
from rules_index.kernels.jit import bare, inlined, inner
from rules_index.kernels.scan import FAR, passes, rows_of, word_of, words_of
from rules_index.kernels.vectors import add_numbers, count_bits, trailing_zeros, transpose

GROUP_BITS = 6
RULES = 1 << GROUP_BITS
"""The number of rules of a group."""
SURE_CHECKS = 8
"""In a conjunction with at most so many checks, a row whose coarse codes prove that it passes is not checked
exactly."""
TRANSPOSED_HITS = 0.12
"""If there are more matches per row and group, lists are made by transposing bitmaps."""


@bare
def groups_of(begin, end, target):
    """The number of groups that have a rule among the conjunctions [begin, end), which ascend by rule."""
    groups = 0
    before = np.int32(-1)
    for conjunction in range(begin, end):
        group = target[conjunction] >> GROUP_BITS
        groups += group != before
        before = group
    return groups


@inner
def rows_found(begin, end, words, bits, term_start, terms):
    """The number of pairs of a row of a block and a conjunction in [begin, end) whose terms the row satisfies."""
    current = np.empty(words, np.uint64)
    scratch = np.empty(words << 6, np.int32)
    found = np.int64(0)
    for conjunction in range(begin, end):
        found += rows_of(conjunction, words, bits, term_start, terms, current, scratch)
    return found


@inner
def scan_transposed(
    begin, end, codes, first, coarse, start, words, chunk_words, bits, disjunction_bits, shift,
    term_start, terms, check_start, checks, set_start, set_intervals, target, groups, number, masks,
):  # fmt: skip
    """Scans the conjunctions [begin, end) in the block at `start` of the chunk. Returns the number of matches.

    number [groups] int32 receives the groups' numbers. masks [words * groups * 64] uint64 receives the words of all
    rows: for every 64 rows, the words of one group after the other. groups: as `groups_of` returns it.
    """
    current = np.empty(words, np.uint64)
    held = np.zeros(words << 6, np.uint64)
    sure = np.empty((SURE_CHECKS, 3), np.int64)
    matches = np.uint64(0)
    place = 0
    for conjunction in range(begin, end):
        rule = target[conjunction]
        _hold(
            conjunction, rule & (RULES - 1), codes, first, coarse, start, words, chunk_words, bits, disjunction_bits,
            shift, term_start, terms, check_start, checks, set_start, set_intervals, current, sure, held,
        )  # fmt: skip
        if conjunction + 1 == end or target[conjunction + 1] >> GROUP_BITS != rule >> GROUP_BITS:
            number[place] = rule >> GROUP_BITS
            for word in range(np.uint64(words)):
                to = (word * np.uint64(groups) + np.uint64(place)) << np.uint64(6)
                matches += transpose(held, word << np.uint64(6), masks, to)
            held[:] = 0
            place += 1
    return np.int64(matches)


@inlined
def _hold(
    conjunction, rule, codes, first, coarse, start, words, chunk_words, bits, disjunction_bits, shift,
    term_start, terms, check_start, checks, set_start, set_intervals, current, sure, held,
):  # fmt: skip
    """Adds the rows of a conjunction to those of its rule in `held` [words * 64] uint64, in which word 64 w + r has
    word w of the bitmap of the group's rule r. `rule` is the rule's number in the group."""
    left, term = words_of(conjunction, words, bits, term_start, terms, current)
    stop = term_start[conjunction + 1]
    checked = check_start[conjunction] < check_start[conjunction + 1]
    surely = checked and _sure_codes(conjunction, shift, check_start, checks, chunk_words << 6, sure)
    while left != 0:
        word = trailing_zeros(left)
        left &= left - ONE
        rows = word_of(word, current[word], term, stop, words, bits, terms)
        if checked and rows != 0:
            at = start + np.int64(word << np.uint64(6))
            open_rows = rows
            if surely:
                open_rows &= ~_sure_rows(check_start[conjunction + 1] - check_start[conjunction], at, coarse, sure)
            while open_rows != 0:
                bit = open_rows & (~open_rows + ONE)
                open_rows ^= bit
                if not passes(
                    conjunction, at + np.int64(trailing_zeros(bit)), codes, first, coarse, chunk_words,
                    disjunction_bits, check_start, checks, set_start, set_intervals,
                ):  # fmt: skip
                    rows ^= bit
        held[(word << np.uint64(6)) + np.uint64(rule)] |= rows


@bare
def _sure_codes(conjunction, shift, check_start, checks, stride, sure):
    """For each check of a conjunction, writes to `sure` [`SURE_CHECKS`, 3] int64: where the coarse codes of its
    attribute begin, the lowest coarse code that proves that a row passes, and the span of such codes. Returns False if
    some check has no such codes, or there are too many checks."""
    begin = check_start[conjunction]
    if check_start[conjunction + 1] - begin > SURE_CHECKS:
        return False
    for check in range(begin, check_start[conjunction + 1]):
        attribute = checks[check, 0]
        if checks[check, 3] != FAR or shift[attribute] < 0:
            return False
        by = shift[attribute]
        low = (checks[check, 1] + (1 << by) - 1) >> by
        high = ((checks[check, 2] + 1) >> by) - 1
        if low > high:
            return False
        sure[check - begin, 0] = attribute * stride
        sure[check - begin, 1] = low
        sure[check - begin, 2] = high - low
    return True


@bare
def _sure_rows(checks, at, coarse, sure):
    """Which of the 64 rows from `at` on have coarse codes that prove that they pass all checks, as bits."""
    rows = ~np.uint64(0)
    for check in range(checks):
        begin = np.uint64(sure[check, 0] + at)
        rows &= codes_within(coarse, begin, np.uint8(sure[check, 1]), np.uint8(sure[check, 2]))
    return rows


@bare
def transposed_lists_of(rows, groups, number, masks, offsets, ordinals):
    """Writes the lists of a block's rows: offsets [rows + 1] int64 from offsets[1] on, and ordinals from offsets[0] on.
    `ordinals` must have room for `SPILLED` more."""
    at = np.uint64(offsets[0])
    for row in range(np.uint64(rows)):
        begin = ((row >> np.uint64(6)) * np.uint64(groups) << np.uint64(6)) + (row & np.uint64(63))
        for group in range(np.uint64(groups)):
            mask = masks[begin + (group << np.uint64(6))]
            add_numbers(ordinals, at, number[group] << GROUP_BITS, mask)
            at += count_bits(mask)
        offsets[row + np.uint64(1)] = at
