"""Scans conjunctions one after the other over the row bitmaps of a block."""

from __future__ import annotations

import numpy as np

from rules_index.kernels.bisection import in_intervals
from rules_index.kernels.bitmaps import ALL, EMPTY, ONE, code_of, count_all
from rules_index.kernels.jit import bare, inlined, inner
from rules_index.kernels.lists import grown
from rules_index.kernels.llvm import GROUP
from rules_index.kernels.summaries import (
    SUMMARY_TERMS,
    add_groups,
    add_words,
    share_summaries,
)
from rules_index.kernels.vectors import (
    SPILLED,
    add_numbers,
    all_between,
    also_between,
    between,
    both,
    count_bits,
    three_terms,
    trailing_zeros,
)

FEW_WORDS = np.uint64(12)
"""If at most so many non-zero words are left, the remaining terms are read for these words only."""
SMALL_WORDS = 8
"""If a block has at most so many words, all terms are read for all words."""
_GROUP = np.uint64(GROUP)
AT_ONCE = 32
"""Conjunctions that are scanned together, so few that their intermediate words stay in the L1 cache."""
SUMMARIES_AT_ONCE = 512
"""Conjunctions that are scanned together by summaries: since few of them leave any word, there can be more."""
WORD_BITS = 6
"""A block has at most 2 ** WORD_BITS words."""
FAR, NEAR = -1, -2
"""In the last column of `checks`, where others have a set: the code must be in [low, high]. NEAR reads it from the
coarse codes, FAR from the code matrix."""


@bare
def arrange_terms(begin, end, term_start, terms, size_of):
    """Sorts the terms of each conjunction in place by ascending number of rows. size_of [bitmaps]: the number of rows
    of each bitmap."""
    for conjunction in range(begin, end):
        start = term_start[conjunction]
        for at in range(start + 1, term_start[conjunction + 1]):
            low = terms[at, 0]
            high = terms[at, 1]
            size = size_of[high] - size_of[low]
            to = at
            while to > start and size_of[terms[to - 1, 1]] - size_of[terms[to - 1, 0]] > size:
                terms[to, 0] = terms[to - 1, 0]
                terms[to, 1] = terms[to - 1, 1]
                to -= 1
            terms[to, 0] = low
            terms[to, 1] = high


@inlined
def words_of(conjunction, words, bits, term_start, terms, current):
    """Intersects the first two terms of a conjunction over the whole block into `current` [words] uint64, and further
    terms while many words are not zero. Returns which words are not zero, as bits, and the next term.

    Indices are unsigned, so that no test for negative ones is compiled.
    """
    term = term_start[conjunction]
    stop = term_start[conjunction + 1]
    count = np.uint64(words)
    low = low2 = np.uint64(EMPTY) * count
    high = high2 = np.uint64(ALL) * count
    if term < stop:
        low = np.uint64(terms[term, 0]) * count
        high = np.uint64(terms[term, 1]) * count
    if term + 1 < stop:
        low2 = np.uint64(terms[term + 1, 0]) * count
        high2 = np.uint64(terms[term + 1, 1]) * count
    term += 2
    left = np.uint64(0)
    if low == EMPTY and low2 == EMPTY:
        for at in range(np.uint64(0), count, _GROUP):
            left |= both(bits, high + at, high2 + at, current, at) << at
    else:
        for at in range(np.uint64(0), count, _GROUP):
            left |= between(bits, low + at, high + at, low2 + at, high2 + at, current, at) << at
    while term < stop and count_bits(left) > FEW_WORDS:
        low = np.uint64(terms[term, 0]) * count
        high = np.uint64(terms[term, 1]) * count
        low2 = np.uint64(EMPTY) * count
        high2 = np.uint64(ALL) * count
        if term + 1 < stop:
            low2 = np.uint64(terms[term + 1, 0]) * count
            high2 = np.uint64(terms[term + 1, 1]) * count
        left = np.uint64(0)
        for at in range(np.uint64(0), count, _GROUP):
            left |= also_between(bits, low + at, high + at, low2 + at, high2 + at, current, at) << at
        term += 2
    return left, term


@inlined
def word_of(word, rows, term, stop, words, bits, terms):
    """The rows of a word, as bits, that satisfy the terms [term, stop), too; `rows` has those that satisfy the terms
    before."""
    further, end = np.uint64(term), np.uint64(stop)
    while further < end and rows != 0:
        rows &= three_terms(bits, terms, further, end, np.uint64(words), word)
        further += np.uint64(3)
    return rows


@inlined
def rows_of(conjunction, words, bits, term_start, terms, current, out):
    """Writes the rows of the block that satisfy all terms of a conjunction, ascending, to `out` int32; returns their
    number. `current` [words] is scratch."""
    left, term = words_of(conjunction, words, bits, term_start, terms, current)
    stop = term_start[conjunction + 1]
    found = 0
    while left != 0:
        word = trailing_zeros(left)
        left &= left - ONE
        rows = word_of(word, current[word], term, stop, words, bits, terms)
        while rows != 0:
            out[found] = np.int32((word << np.uint64(6)) + trailing_zeros(rows))
            found += 1
            rows &= rows - ONE
    return found


@inlined
def _all_words_of(conjunction, words, bits, term_start, terms, current):
    """`words_of` for all terms, for blocks of so few words that reading all of them is faster than branching. Returns
    which words are not zero, as bits."""
    begin, end = np.uint64(term_start[conjunction]), np.uint64(term_start[conjunction + 1])
    count = np.uint64(words)
    left = np.uint64(0)
    for at in range(np.uint64(0), count, _GROUP):
        left |= all_between(bits, terms, begin, end, count, np.uint64(ALL), current, at)
    return left


@bare
def passes(
    conjunction, row, codes, first, coarse, chunk_words, disjunction_bits, check_start, checks, set_start, set_intervals
):
    """Whether a row of the chunk passes a conjunction's checks. If coarse codes are exact they are read in place of the
    code matrix, because they are in a nearer cache."""
    for check in range(check_start[conjunction], check_start[conjunction + 1]):
        attribute = checks[check, 0]
        which = checks[check, 3]
        if attribute < 0:
            word = disjunction_bits[which * chunk_words + (row >> 6)]
            if (word >> np.uint64(row & 63)) & ONE == 0:
                return False
            continue
        if which == NEAR:
            code = np.int32(coarse[attribute * (chunk_words << 6) + row])
        else:
            code = code_of(attribute, row, codes, first, coarse, chunk_words << 6)
        if which < 0:
            if code < checks[check, 1] or code > checks[check, 2]:
                return False
        elif not in_intervals(code, set_start[which], set_start[which + 1], set_intervals):
            return False
    return True


@bare
def check_rows(
    conjunction, found, scratch, codes, first, coarse, start, chunk_words, disjunction_bits, order,
    check_start, checks, set_start, set_intervals,
):  # fmt: skip
    """Keeps the rows among `scratch[:found]` that pass the checks, in place; returns their number. Rows are those of
    the block at `start`."""
    kept = 0
    for i in range(found):
        scratch[kept] = scratch[i]
        kept += passes(
            conjunction, order[start + scratch[i]], codes, first, coarse, chunk_words, disjunction_bits,
            check_start, checks, set_start, set_intervals,
        )  # fmt: skip
    return kept


@inner
def scan(
    begin, end, codes, first, coarse, start, words, chunk_words, bits, disjunction_bits, order,
    summary_terms, summary_next, summaries,
    term_start, terms, check_start, checks, set_start, set_intervals, target, hit_rows, hit_rules, hits,
):  # fmt: skip
    """Appends the hits of the conjunctions [begin, end) in the block whose rows are order[start], order[start + 1], ...
    of the chunk. Arrays are passed one by one, not as `KernelArrays`: reading them out of a tuple costs more than a
    conjunction.

    A batch of conjunctions passes through three steps together, so that a branch misprediction stalls few of them:
    which words their first two terms leave, what the other terms leave of these words, and which rows these are. If
    there are `summary_terms` (for the conjunctions from `begin` on), summaries select the words first.
    """
    at_once = SUMMARIES_AT_ONCE if len(summary_terms) else AT_ONCE
    current = np.empty((at_once << WORD_BITS) + GROUP, np.uint64)
    places = np.empty((at_once << WORD_BITS) + SPILLED, np.int32)
    next_term = np.empty(AT_ONCE, np.int64)
    groups = np.empty(SUMMARIES_AT_ONCE + (SUMMARIES_AT_ONCE + 1) * GROUP if len(summary_terms) else 0, np.int32)
    for batch in range(begin, end, at_once):
        stop = min(end, batch + at_once)
        if len(summary_terms):
            found, rows = _intersect_summary_terms(
                batch - begin, stop - begin, words, bits, summary_terms, summaries, groups, current, places
            )  # fmt: skip
            if len(summary_next):
                found, rows = _apply_rest(
                    batch, found, True, words, bits, term_start, terms, summary_next[batch - begin :], current, places
                )
        else:
            found = _intersect_first_terms(batch, stop, words, bits, term_start, terms, current, next_term, places)
            found, rows = _apply_rest(batch, found, False, words, bits, term_start, terms, next_term, current, places)
        if hits + rows > len(hit_rows):
            hit_rows, hit_rules = grown(hit_rows, hits + rows), grown(hit_rules, hits + rows)
        hits = _add_hits(
            batch, found, places, current, codes, first, coarse, start, chunk_words, disjunction_bits, order,
            check_start, checks, set_start, set_intervals, target, hit_rows, hit_rules, hits,
        )  # fmt: skip
    return hit_rows, hit_rules, hits


@bare
def _intersect_first_terms(begin, end, words, bits, term_start, terms, current, next_term, places):
    """Intersects the first terms of the conjunctions [begin, end). Writes the words that they leave to `current`, 64
    elements for each conjunction, its next term to `next_term`, and the indices of the non-zero words to `places`.
    Returns the number of these."""
    count = np.uint64(0)
    for i in range(end - begin):
        conjunction = begin + i
        at = i << WORD_BITS
        own = current[at : at + (1 << WORD_BITS)]
        if words <= SMALL_WORDS:
            left = _all_words_of(conjunction, words, bits, term_start, terms, own)
            next_term[i] = term_start[conjunction + 1]
        else:
            left, next_term[i] = words_of(conjunction, words, bits, term_start, terms, own)
        add_numbers(places, count, np.int32(at), left)
        count += count_bits(left)
    return np.int64(count)


@bare
def _intersect_summary_terms(begin, end, words, bits, summary_terms, summaries, groups, current, places):
    """Intersects the `summary_terms` of the conjunctions [begin, end), counted from the first conjunction that has any.
    Writes the non-zero words to `current`, without gaps, and their indices, as `_intersect_first_terms` numbers them,
    to `places`. Returns the number of words and that of their rows. `groups` is scratch.

    It first finds which conjunctions can have a row at all, by the summaries of their rarest terms; then in which
    groups of words, by all summaries; then the words themselves.
    """
    passing = np.uint64(0)
    skip = np.uint64(begin)
    for i in range(np.uint64(end - begin)):
        groups[passing] = i
        passing += share_summaries(summaries, summary_terms, (skip + i) * np.uint64(SUMMARY_TERMS))
    found_groups = groups[SUMMARIES_AT_ONCE:]
    found = np.uint64(0)
    for each in range(passing):
        number = np.uint64(groups[each])
        at = (skip + number) * np.uint64(SUMMARY_TERMS)
        found = add_groups(summaries, summary_terms, at, found_groups, found, np.int32(number * _GROUP))
    count = np.uint64(0)
    for each in range(found):
        at, group, place = _place_of(skip, found_groups[each])
        count = add_words(bits, summary_terms, at, np.uint64(words), group, current, places, count, place)
    return np.int64(count), count_all(current, count)


@inlined
def _place_of(skip, shared):
    """Decodes `shared`, a group of words that `add_groups` found; groups are numbered through the conjunctions behind
    the first `skip` of `summary_terms`. Returns where the conjunction's summary terms begin, the group's first word,
    and that word's index as in `places`."""
    number, group = np.uint64(shared) // _GROUP, np.uint64(shared) % _GROUP * _GROUP
    return (skip + number) * np.uint64(SUMMARY_TERMS), group, np.int32((number << np.uint64(WORD_BITS)) + group)


@bare
def _apply_rest(begin, count, gathered, words, bits, term_start, terms, next_term, current, places):
    """Applies the remaining terms to the words at `places[:count]` and keeps the non-zero ones, without gaps. If
    `gathered`, `current` has these words one after the other, else at their indices. Returns the number of words kept,
    and that of their rows. A next term of -1 means that no term remains."""
    before = np.uint64(begin + 1)
    kept = np.uint64(0)
    total = np.uint64(0)
    for i in range(np.uint64(count)):
        place = np.uint64(places[i])
        number = place >> np.uint64(WORD_BITS)
        rows = current[i if gathered else place]
        term = next_term[number]
        if term >= 0:
            word = place & np.uint64((1 << WORD_BITS) - 1)
            rows = word_of(word, rows, term, term_start[before + number], words, bits, terms)
        places[kept] = place
        current[kept] = rows
        total += count_bits(rows)
        kept += np.uint64(rows != 0)
    return np.int64(kept), np.int64(total)


@bare
def _add_hits(
    begin, count, places, held, codes, first, coarse, start, chunk_words, disjunction_bits, order,
    check_start, checks, set_start, set_intervals, target, hit_rows, hit_rules, hits,
):  # fmt: skip
    """Appends the rows in the words `held[:count]` that pass the checks of their conjunctions as hits; the arrays have
    room for all."""
    to = np.uint64(hits)
    for i in range(np.uint64(count)):
        place = np.uint64(places[i])
        rows = held[i]
        conjunction = np.uint64(begin) + (place >> np.uint64(WORD_BITS))
        rule = target[conjunction]
        at = np.uint64(start) + ((place & np.uint64((1 << WORD_BITS) - 1)) << np.uint64(6))
        checked = check_start[conjunction] < check_start[conjunction + ONE]
        while rows != 0:
            row = order[at + trailing_zeros(rows)]
            rows &= rows - ONE
            hit_rows[to] = row
            hit_rules[to] = rule
            to += ONE
            if checked and not passes(
                np.int64(conjunction), row, codes, first, coarse, chunk_words, disjunction_bits, check_start, checks,
                set_start, set_intervals,
            ):  # fmt: skip
                to -= ONE
    return np.int64(to)
