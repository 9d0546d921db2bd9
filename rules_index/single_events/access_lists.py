"""Lists of conjunctions by their access predicate, and the search of one event in them.

A conjunction is an *entry* in the lists for the codes of one of its terms, the access predicate (as in Propagation,
Fabret and others). A list is for a single code, or for a bucket: two neighbouring blocks of 2 ** shift codes, so that
each code is in two buckets of a level. An entry contains its rarest predicates, so that a search reads memory
sequentially.

levels   [., 3] int32: attribute, shift (-1: a list per code), and where its lists begin in `starts`. Attribute -1 has
         a single list, of the conjunctions without terms
starts   [lists + 1] int64, offsets into heads
heads    [entries, WIDTH] uint8, uint16 or int32, as codes and attributes need: low and high of the access predicate;
         attribute, low and high of the next `NEXT`, with the access predicate repeated if there are fewer
tails    [entries, 2] int32: the rule, and where `words` has more of the conjunction, or -1
words    [.] int32, for a conjunction: its number where bounds are not exact (else -1), the number of its terms that
         are not in `heads`, then attribute, low and high of each of these
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rules_index.kernels.bisection import first_reaching
from rules_index.kernels.jit import inlined, inner, jit
from rules_index.kernels.vectors import prefetch

HEADER = 2
NEXT = 4
WIDTH = 2 + 3 * NEXT
TOO_SMALL = -1


@inner
def _in_order(found: np.ndarray, count: int) -> Any:
    """Sorts the first `count` elements of `found` and removes repeats; returns how many are left."""
    ascending = True
    for i in range(1, count):
        if found[i] <= found[i - 1]:
            ascending = False
            break
    if ascending:
        return count
    found[:count].sort()
    kept = np.int64(1)
    for i in range(1, count):
        if found[i] != found[i - 1]:
            found[kept] = found[i]
            kept += 1
    return kept


@inlined
def _lists_of(levels: np.ndarray, level: int, codes: np.ndarray) -> Any:
    """The first and the last list of a level that a row is in."""
    attribute, shift, first = levels[level, 0], levels[level, 1], np.int64(levels[level, 2])
    if attribute < 0:
        return first, first
    code = np.int64(codes[attribute])
    if shift < 0:
        return first + code, first + code
    block = code >> shift
    return first + block - (block > 0), first + block


@jit
def search_row(
    levels: np.ndarray, starts: np.ndarray, heads: np.ndarray, tails: np.ndarray, words: np.ndarray, codes: np.ndarray,
    bounds: np.ndarray, found: np.ndarray,
) -> int:  # fmt: skip
    """Finds the conjunctions whose bounds a row of codes [attributes] int32 satisfies.

    Writes to `found` [.] int32 the rules that match, ascending, from the front; and from the end the numbers of
    conjunctions whose bounds are not exact, which the caller must test. Returns how many there are of each as rules +
    (conjunctions << 32), or `TOO_SMALL` if `found` has no room. bounds: [levels, 2] int64, scratch.
    """
    rules = np.int64(0)
    doubtful = np.int64(0)
    # a first pass starts all memory reads before any result is needed
    for level in range(len(levels)):
        first, last = _lists_of(levels, level, codes)
        bounds[level, 0], bounds[level, 1] = starts[first], starts[last + 1]
    for level in range(len(levels)):
        for line in range(bounds[level, 0] * WIDTH, bounds[level, 1] * WIDTH, 64 // heads.itemsize):
            prefetch(heads, line)
    for level in range(len(levels)):
        attribute = levels[level, 0]
        own_code = codes[max(attribute, 0)] if len(codes) else np.int32(0)
        for entry in range(bounds[level, 0], bounds[level, 1]):
            if attribute >= 0:
                second, third = codes[heads[entry, 2]], codes[heads[entry, 5]]
                # negative if some code is out of its bounds: one branch instead of six that are often mispredicted
                outside = (own_code - heads[entry, 0]) | (heads[entry, 1] - own_code)
                outside |= (second - heads[entry, 3]) | (heads[entry, 4] - second)
                outside |= (third - heads[entry, 6]) | (heads[entry, 7] - third)
                if outside < 0:
                    continue
                at = 8
                while at < WIDTH:
                    code = codes[heads[entry, at]]
                    if code < heads[entry, at + 1] or code > heads[entry, at + 2]:
                        break
                    at += 3
                if at < WIDTH:
                    continue
            if rules + doubtful == len(found):
                return TOO_SMALL
            more = np.int64(tails[entry, 1])
            if more < 0:
                found[rules] = tails[entry, 0]
                rules += 1
                continue
            term = more + HEADER
            end = term + 3 * words[more + 1]
            while term < end:
                code = codes[words[term]]
                if code < words[term + 1] or code > words[term + 2]:
                    break
                term += 3
            if term == end:
                if words[more] < 0:
                    found[rules] = tails[entry, 0]
                    rules += 1
                else:
                    doubtful += 1
                    found[len(found) - doubtful] = words[more]
    return _in_order(found, rules) + (doubtful << 32)


@inlined
def _offers(
    attribute: int, low: int, high: int, first: np.ndarray, last: np.ndarray, start: np.ndarray, intervals: np.ndarray
) -> bool:
    """Whether an event offers a code of the attribute in [low, high]."""
    if last[attribute] < low or first[attribute] > high:
        return False
    begin, end = start[attribute, 0], start[attribute, 1]
    if end - begin < 2:
        return True
    return intervals[first_reaching(low, begin, end, intervals), 0] <= high


@jit
def search_event(
    levels: np.ndarray, starts: np.ndarray, heads: np.ndarray, tails: np.ndarray, words: np.ndarray, first: np.ndarray,
    last: np.ndarray, start: np.ndarray, intervals: np.ndarray, found: np.ndarray,
) -> int:  # fmt: skip
    """Like `search_row`, for an event that is an expression. A conjunction may be written several times.

    first, last [attributes] int32: the lowest and highest code of each, `ABSENT` and -1 where the event does not have
    it; start [attributes, 2] int64, the range of its intervals in intervals [., 2] int32, closed and ascending.
    """
    rules = np.int64(0)
    doubtful = np.int64(0)
    for level in range(len(levels)):
        attribute, shift, base = levels[level, 0], levels[level, 1], np.int64(levels[level, 2])
        begin, end = np.int64(0), np.int64(1)
        if attribute >= 0:
            begin, end = start[attribute, 0], start[attribute, 1]
        next_list = base
        for interval in range(begin, end):
            low_list = high_list = base
            if attribute >= 0:
                low, high = intervals[interval, 0], intervals[interval, 1]
                if shift < 0:
                    low_list, high_list = base + low, base + high
                else:
                    low_list = base + max((low >> shift) - 1, 0)
                    high_list = base + (high >> shift)
            low_list = max(low_list, next_list)
            if low_list > high_list:
                continue
            next_list = high_list + 1
            for entry in range(starts[low_list], starts[high_list + 1]):
                if attribute >= 0:
                    if not _offers(attribute, heads[entry, 0], heads[entry, 1], first, last, start, intervals):
                        continue
                    at = 2
                    while at < WIDTH and _offers(
                        heads[entry, at], heads[entry, at + 1], heads[entry, at + 2], first, last, start, intervals
                    ):
                        at += 3
                    if at < WIDTH:
                        continue
                if rules + doubtful == len(found):
                    return TOO_SMALL
                more = np.int64(tails[entry, 1])
                if more < 0:
                    found[rules] = tails[entry, 0]
                    rules += 1
                    continue
                term = more + HEADER
                after = term + 3 * words[more + 1]
                while term < after and _offers(
                    words[term], words[term + 1], words[term + 2], first, last, start, intervals
                ):
                    term += 3
                if term == after:
                    if words[more] < 0:
                        found[rules] = tails[entry, 0]
                        rules += 1
                    else:
                        doubtful += 1
                        found[len(found) - doubtful] = words[more]
    return _in_order(found, rules) + (doubtful << 32)
