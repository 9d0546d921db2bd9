"""Loops over flat arrays for compiling: numbers distinct value sets, and sorts the terms of conjunctions."""

from __future__ import annotations

import numpy as np

from rules_index.kernels.jit import jit


@jit
def number_sets(start, null, offsets, cuts, table, first, number):
    """Numbers sets; equal ones have the same number. number [sets] int64 receives each set's number, first
    [>= distinct sets] int64 the first set with each number. Returns the number of distinct sets. table
    [a power of two above the number of sets] int64 is scratch, all -1."""
    mask = np.uint64(len(table) - 1)
    count = np.int64(0)
    for i in range(len(start)):
        begin = offsets[i]
        length = offsets[i + 1] - begin
        state = np.uint64(0xCBF29CE484222325) ^ np.uint64(start[i]) ^ (np.uint64(null[i]) << np.uint64(1))
        for j in range(begin, begin + length):
            state = (state ^ np.uint64(cuts[j])) * np.uint64(0x9E3779B97F4A7C15)
            state ^= state >> np.uint64(32)
        slot = state & mask
        found = np.int64(-1)
        while table[slot] >= 0 and found < 0:
            other = first[table[slot]]
            at = offsets[other]
            same = start[other] == start[i] and null[other] == null[i] and offsets[other + 1] - at == length
            j = 0
            while same and j < length:
                same = cuts[at + j] == cuts[begin + j]
                j += 1
            if same:
                found = table[slot]
            slot = (slot + np.uint64(1)) & mask
        if found < 0:
            found = count
            table[slot] = count
            first[count] = i
            count += 1
        number[i] = found
    return count


@jit
def find_repeats(offsets, attributes, common, seen, repeated, apart):
    """Finds rules that name an attribute twice, and marks them in `repeated` [rules] bool. Marks a rule in `apart`
    [rules] bool, too, if a clause that names the attribute is not `common` [clauses] bool. offsets [rules + 1],
    attributes [clauses]: the attribute of each rule's clauses. seen [attributes, 2] int64 is scratch, all -1."""
    for i in range(len(offsets) - 1):
        for j in range(offsets[i], offsets[i + 1]):
            last = seen[attributes[j]]
            if last[0] == i:
                repeated[i] = True
                if last[1] == 0 or not common[j]:
                    apart[i] = True
            last[0] = i
            last[1] = common[j]


@jit
def number_literals(offsets, terms, rank, number, count):
    """Numbers literals in the order in which conjunctions name them, and sorts each conjunction's terms by these
    numbers.

    terms: [offsets[-1]] int32, a literal, or -1 minus the number of a shared disjunction; receives the new numbers,
    ascending. Within a conjunction, literals are numbered by ascending `rank` [literals] int32 of their attribute.
    number: [literals] int32, -1 if not yet numbered; receives the numbers, the first of which is `count`. Returns the
    next number.
    """
    longest = 0
    for i in range(len(offsets) - 1):
        longest = max(longest, offsets[i + 1] - offsets[i])
    scratch = np.empty(longest, np.int64)
    for i in range(len(offsets) - 1):
        begin = offsets[i]
        named = 0
        for j in range(begin, offsets[i + 1]):
            if terms[j] >= 0:
                scratch[named] = np.int64(rank[terms[j]]) << 32 | np.int64(terms[j])
                named += 1
        scratch[:named].sort()
        for j in range(named):
            literal = scratch[j] & 0xFFFFFFFF
            if number[literal] < 0:
                number[literal] = count
                count += 1
        for j in range(begin, offsets[i + 1]):
            if terms[j] >= 0:
                terms[j] = number[terms[j]]
        terms[begin : offsets[i + 1]].sort()
    return count
