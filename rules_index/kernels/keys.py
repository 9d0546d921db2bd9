"""Keyed conjunctions: filed under the codes of a few attributes, so that a row meets only those that name its own.

A *table* has one or more attributes. The slot of a row is a number made of its codes of them, code times factor summed
up; the conjunctions filed in the row's slot are its candidates, whose checks follow. In a *direct* table every
combination of codes has a slot of its own. In a *hashed* table combinations share slots: a slot has groups, each of
one combination, which is compared first.

Where most slots are empty, rows that need not look are sifted out first (`kernels.sift`).

key_start        [tables + 1] int64 into key_attributes and key_factors
key_attributes   [.] int32
key_factors      [.] int64: a direct table's strides, a hashed table's odd multipliers
key_bits         [tables] int32: 0 for a direct table, else a hashed table has 2 ** key_bits slots
slot_at          [tables] int64, its first slot in slot_start
slot_start       int32: slots of a direct table point into posted, of a hashed one to groups
groups           [groups + 1, 2] int32: a group's tag, and where its entries begin in posted. The tag of a table of
                 at most three attributes with exact coarse codes is these codes, a byte each; else the lower half of
                 the number that the slot is the upper end of, and the codes are compared as well
group_codes      int32: the codes of every group, one per attribute of its table
group_code_at    [tables] int64: what a table's group g has begins at group_code_at + g * attributes
posted           [entries, 4] int32: a conjunction and three quick checks of it; or -1 - a rule's ordinal, where these
                 are all that there is to check

A quick check is attribute << 16 | low << 8 | span: the coarse code of the attribute less `low`, as a byte, is at most
`span`. It spares nearly all candidates the way to their own checks; low 0 and span 255 say nothing.
"""

from __future__ import annotations

import numpy as np

from rules_index.kernels.bitmaps import COARSE_CODES
from rules_index.kernels.jit import inner
from rules_index.kernels.lists import grown
from rules_index.kernels.scan import passes
from rules_index.kernels.sift import WORD_ROWS, rows_to_look

AT_ONCE = 1024
"""Rows whose candidates are looked for together."""
PACKED = 3
"""Codes of a byte each that fit a tag."""
QUICK = 3
"""Quick checks of an entry."""
NOTHING = COARSE_CODES
"""A quick check that all rows pass; behind one there are only such."""


@inner
def match_keyed(codes, first, rows, chunk_rows, chunk_words, coarse, gate_bits, index, hit_rows, hit_rules, hits):
    """Hits of the keyed conjunctions among the rows [first, first + rows) of a code matrix."""
    tables = len(index.key_bits)
    candidates = np.empty(chunk_rows + WORD_ROWS if tables else 0, np.uint16)
    scratch = np.empty((4, AT_ONCE + 1), np.int32)
    for table in range(tables):
        begin = index.key_start[table]
        attributes = index.key_attributes[begin : index.key_start[table + 1]]
        count = rows_to_look(coarse, chunk_rows, attributes, index, table, rows, candidates)
        hit_rows, hit_rules, hits = _meet(
            codes, first, chunk_words, gate_bits, candidates[:count], index.key_bits[table],
            index.slot_start[index.slot_at[table] :], attributes, index.key_factors[begin : begin + len(attributes)],
            index.shift, index.groups, index.group_codes[index.group_code_at[table] :],
            index.posted, coarse, chunk_rows, index.check_start, index.checks, index.set_start, index.set_intervals,
            index.target, scratch, hit_rows, hit_rules, hits,
        )  # fmt: skip
    return hit_rows, hit_rules, hits


@inner
def _meet(
    codes, first, chunk_words, gate_bits, candidates, bits, slot_start, attributes, factors, shift,
    groups, group_codes, posted, coarse, chunk_rows, check_start, checks, set_start, set_intervals,
    target, scratch, hit_rows, hit_rules, hits,
):  # fmt: skip
    """Checks the conjunctions in the slots of the candidate rows.

    Step by step for `AT_ONCE` rows, each step a loop without a branch: so the machine waits for many of the scattered
    loads at once.
    """
    totals = np.empty(AT_ONCE, np.uint64)
    packed = len(attributes) <= PACKED
    for k in range(len(attributes)):
        packed &= shift[attributes[k]] == 0
    rows, begins, ends, tags = scratch[0], scratch[1], scratch[2], scratch[3]
    for start in range(0, len(candidates), AT_ONCE):
        some = candidates[start : start + AT_ONCE]
        _add_up(codes, first, some, attributes, factors, shift, coarse, chunk_rows, totals)
        count = np.uint64(0)
        by = np.uint64(64 - bits) if bits > 0 else np.uint64(0)
        for i in range(len(some)):
            slot = totals[i] >> by
            begin = slot_start[slot]
            end = slot_start[slot + np.uint64(1)]
            rows[count] = some[i]
            begins[count] = begin
            ends[count] = end
            tags[count] = np.int32(totals[i] & np.uint64(0xFFFFFFFF))
            count += np.uint64(begin < end)
        met = np.int64(count)
        if bits > 0:
            if packed:
                _pack(rows[:met], attributes, coarse, chunk_rows, tags)
            met = _groups_of(codes, first, attributes, packed, groups, group_codes, scratch, met)
        hit_rows, hit_rules, hits = _check_entries(
            codes, first, chunk_words, gate_bits, posted, coarse, chunk_rows, check_start, checks,
            set_start, set_intervals, target, scratch, met, hit_rows, hit_rules, hits,
        )  # fmt: skip
    return hit_rows, hit_rules, hits


@inner
def _add_up(codes, first, rows, attributes, factors, shift, coarse, chunk_rows, totals):
    """The rows' codes of the attributes, times the factors, summed up."""
    for i in range(len(rows)):
        totals[i] = 0
    for k in range(len(attributes)):
        factor = np.uint64(factors[k])
        if shift[attributes[k]] == 0:
            near = coarse[attributes[k] * chunk_rows : (attributes[k] + 1) * chunk_rows]
            for i in range(len(rows)):
                totals[i] += np.uint64(near[np.uint64(rows[i])]) * factor
        else:
            column = codes[attributes[k], first:]
            for i in range(len(rows)):
                totals[i] += np.uint64(column[np.uint64(rows[i])]) * factor


@inner
def _pack(rows, attributes, coarse, chunk_rows, tags):
    """The rows' coarse codes of at most three attributes, a byte each."""
    for i in range(len(rows)):
        tags[i] = 0
    for k in range(len(attributes)):
        column = coarse[attributes[k] * chunk_rows : (attributes[k] + 1) * chunk_rows]
        for i in range(len(rows)):
            tags[i] = tags[i] << 8 | np.int32(column[np.uint64(rows[i])])


@inner
def _groups_of(codes, first, attributes, packed, groups, group_codes, scratch, count):
    """Turns the slots' groups, in `scratch`, into the entries of the one with the row's codes; the number of rows
    that have one."""
    rows, begins, ends, tags = scratch[0], scratch[1], scratch[2], scratch[3]
    likely = 0
    for i in range(count):
        row, begin, end, tag = rows[i], begins[i], ends[i], tags[i]
        rows[likely], begins[likely], ends[likely], tags[likely] = row, begin, end, tag
        likely += (groups[begin, 0] == tag) | (end - begin > 1)
    width = 0 if packed else len(attributes)
    kept = 0
    for i in range(likely):
        row = rows[i]
        for group in range(begins[i], ends[i]):
            if groups[group, 0] != tags[i]:
                continue
            same = True
            for k in range(width):
                same &= codes[attributes[k], first + row] == group_codes[group * width + k]
            if same:
                rows[kept], begins[kept], ends[kept] = row, groups[group, 1], groups[group + 1, 1]
                kept += 1
                break
    return kept


@inner
def _check_entries(
    codes, first, chunk_words, gate_bits, posted, coarse, chunk_rows, check_start, checks, set_start, set_intervals,
    target, scratch, count, hit_rows, hit_rules, hits,
):  # fmt: skip
    """Hits among the entries [begin, end) of each row of `scratch`."""
    rows, begins, ends = scratch[0], scratch[1], scratch[2]
    kept_rows, kept_entries = np.empty(AT_ONCE, np.int32), np.empty(AT_ONCE, np.int32)
    at = np.uint64(0)
    end = np.uint64(count)
    entry = np.int64(begins[0])
    while at < end:
        pairs = np.uint64(0)
        while at < end and pairs < AT_ONCE:
            row = rows[at]
            stop = min(np.int64(ends[at]), entry + np.int64(np.uint64(AT_ONCE) - pairs))
            for place in range(entry, stop):
                kept_rows[pairs] = row
                kept_entries[pairs] = place
                pairs += np.uint64(1)
            entry = stop
            if entry == ends[at]:
                at += np.uint64(1)
                entry = np.int64(begins[at])
        if hits + np.int64(pairs) > len(hit_rows):
            hit_rows = grown(hit_rows, hits + np.int64(pairs))
            hit_rules = grown(hit_rules, hits + np.int64(pairs))
        if _all_hits(posted, kept_entries, np.int64(pairs)):
            for i in range(pairs):
                hit_rows[hits + np.int64(i)] = kept_rows[i]
                hit_rules[hits + np.int64(i)] = -1 - posted[np.uint64(kept_entries[i]), 0]
            hits += np.int64(pairs)
            continue
        kept = _keep_quick(posted, coarse, chunk_rows, kept_rows, kept_entries, np.int64(pairs))
        hits = _check_rest(
            codes, first, chunk_words, gate_bits, posted, coarse, check_start, checks, set_start, set_intervals,
            target, kept_rows[:kept], kept_entries, hit_rows, hit_rules, hits,
        )  # fmt: skip
    return hit_rows, hit_rules, hits


@inner
def _all_hits(posted, entries, pairs):
    """Whether there is nothing to check of these entries."""
    for i in range(pairs):
        entry = np.uint64(entries[i])
        if posted[entry, 0] >= 0 or posted[entry, 1] != NOTHING:
            return False
    return True


@inner
def _keep_quick(posted, coarse, chunk_rows, rows, entries, pairs):
    """Keeps the pairs of a row and an entry whose quick checks are passed; returns their number."""
    kept = np.uint64(0)
    for i in range(pairs):
        row = rows[i]
        entry = np.uint64(entries[i])
        passed = (
            _quick(posted[entry, 1], row, coarse, chunk_rows)
            & _quick(posted[entry, 2], row, coarse, chunk_rows)
            & _quick(posted[entry, 3], row, coarse, chunk_rows)
        )
        rows[kept] = row
        entries[kept] = entry
        kept += np.uint64(passed)
    return np.int64(kept)


@inner
def _check_rest(
    codes, first, chunk_words, gate_bits, posted, coarse, check_start, checks, set_start, set_intervals,
    target, rows, entries, hit_rows, hit_rules, hits,
):  # fmt: skip
    """Hits among entries whose quick checks were passed; there is room for all of them."""
    for i in range(len(rows)):
        conjunction = posted[np.uint64(entries[i]), 0]
        hit_rows[hits] = rows[i]
        if conjunction < 0:
            hit_rules[hits] = -1 - conjunction
            hits += 1
        elif passes(
            conjunction, rows[i], codes, first, coarse, chunk_words, gate_bits, check_start, checks,
            set_start, set_intervals,
        ):  # fmt: skip
            hit_rules[hits] = target[conjunction]
            hits += 1
    return hits


@inner
def _quick(check, row, coarse, chunk_rows):
    """Whether a row passes a quick check."""
    code = coarse[np.uint64(check >> 16) * np.uint64(chunk_rows) + np.uint64(row)]
    return ((np.int32(code) - (check >> 8)) & 255) <= (check & 255)
