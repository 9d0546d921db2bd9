"""Hash tables of conjunctions: a conjunction is filed under its codes of a few attributes, and a row is compared only
with the conjunctions filed under its own codes.

A *table* has one or more attributes. The slot of a row is the sum of its codes of these attributes, each times a
factor. The conjunctions filed in the row's slot are its candidates; their checks follow. A table is

- *direct* if every combination of codes has a slot of its own;
- *even* if all slots of a direct table have the same number of entries, so that no offsets are read to find them;
- *hashed* if combinations share slots. A slot has groups, one for each combination, which is compared first;
- *plain* if it is direct or hashed and its conjunctions have nothing to check but their codes.

If most slots are empty, a prefilter excludes most rows before the table is read (`kernels.prefilter`).

key_start        [tables + 1] int64 into key_attributes and key_factors
key_attributes   [.] int32
key_factors      [.] int64: a direct table's strides, a hashed table's odd multipliers
key_bits         [tables] int32: 0 for a direct table; -n for an even one with n entries a slot; n for a hashed one
                 with 2 ** n slots
key_plain        [tables] int32, 1 for a plain table: its entries are in plain, not in posted
slot_at          [tables] int64, its first slot in slot_start; for an even table, its first entry in posted
slot_start       int32: slots of a direct table point to entries, those of a hashed one to groups
groups           [groups + 1, 2] int32: a group's tag, and where its entries begin. If a table has at most three
                 attributes, all with exact coarse codes, the tag is these codes, a byte each. Else it is the lower
                 half of the sum whose upper bits are the slot, and the codes are compared, too
group_codes      int32: the codes of every group, one per attribute of its table
group_code_at    [tables] int64: the codes of a table's group g begin at group_code_at + g * attributes
posted           [entries, 4] int32: a conjunction, or -1 minus a rule's ordinal if quick checks decide everything;
                 and three quick checks
plain            int32, rules' ordinals, followed by `LOOKED_UP` unused elements

A quick check is attribute << 16 | low << 8 | span: the row's coarse code of the attribute minus `low`, as a byte, is at
most `span`. Quick checks reject nearly all candidates before their other checks are read. With low 0 and span 255 every
row passes; with low 255 and span 0 none does.
"""

from __future__ import annotations

import numpy as np

from rules_index.kernels.bitmaps import COARSE_CODES, code_of
from rules_index.kernels.jit import bare, inner
from rules_index.kernels.lists import grown, with_room
from rules_index.kernels.llvm import LOOKED_UP
from rules_index.kernels.prefilter import WORD_ROWS, candidate_rows
from rules_index.kernels.scan import passes
from rules_index.kernels.vectors import SPILLED, copy_numbers, prefetch, spread_number

AT_ONCE = 1024
"""Rows whose entries are looked up together."""
PACKED = 3
"""The number of codes, a byte each, that fit into a tag."""
QUICK = 3
"""The number of quick checks of an entry."""
NOTHING = COARSE_CODES
"""A quick check that all rows pass."""
NEVER = COARSE_CODES << 8
"""A quick check that no row passes."""


@inner
def match_keyed(
    codes, first, rows, chunk_rows, chunk_words, coarse, disjunction_bits, index, hit_rows, hit_rules, hits
):
    """Appends the hits of the conjunctions in hash tables among the rows [first, first + rows) of the code matrix."""
    tables = len(index.key_bits)
    candidates = np.empty(chunk_rows + WORD_ROWS if tables else 0, np.uint16)
    scratch = np.empty((4, AT_ONCE + 1), np.int32)
    totals = np.empty(AT_ONCE, np.uint64)
    kept = np.empty((2, AT_ONCE), np.int32)
    for table in range(tables):
        begin, end = index.key_start[table], index.key_start[table + 1]
        attributes, factors = index.key_attributes[begin:end], index.key_factors[begin:end]
        count = candidate_rows(coarse, chunk_rows, attributes, index, table, rows, candidates)
        for start in range(0, count, AT_ONCE):
            met = _find(
                codes, first, candidates[start : min(count, start + AT_ONCE)], attributes, factors, index, table,
                coarse, chunk_rows, totals, scratch,
            )  # fmt: skip
            if met == 0:
                continue
            if index.key_plain[table]:
                needed = hits + _entries(scratch, met) + SPILLED
                if needed > len(hit_rows):
                    hit_rows, hit_rules = grown(hit_rows, needed), grown(hit_rules, needed)
                hits = _copy_entries(scratch, met, index.plain, hit_rows, hit_rules, hits)
            else:
                hit_rows, hit_rules, hits = _check_entries(
                    codes, first, chunk_words, disjunction_bits, index.posted, coarse, chunk_rows, index.check_start,
                    index.checks, index.set_start, index.set_intervals, index.target, scratch, met, kept,
                    hit_rows, hit_rules, hits,
                )  # fmt: skip
    return hit_rows, hit_rules, hits


@inner
def list_keyed(codes, first, rows, chunk_rows, coarse, index, offsets, ordinals):
    """Writes the lists of the rows [first, first + rows) of the code matrix if all conjunctions are in one plain table
    and no two are of the same rule: a row's list is then the entries of its slot. `offsets` [all rows + 1] int64 is
    written from offsets[first + 1] on. Returns `ordinals`, reallocated if it had to grow."""
    all_rows = len(offsets) - 1
    candidates = np.empty(chunk_rows + WORD_ROWS, np.uint16)
    scratch = np.empty((4, AT_ONCE + 1), np.int32)
    totals = np.empty(AT_ONCE, np.uint64)
    count = candidate_rows(coarse, chunk_rows, index.key_attributes, index, 0, rows, candidates)
    done = first
    for start in range(0, count, AT_ONCE):
        met = _find(
            codes, first, candidates[start : min(count, start + AT_ONCE)], index.key_attributes, index.key_factors,
            index, 0, coarse, chunk_rows, totals, scratch,
        )  # fmt: skip
        if met == 0:
            continue
        needed = offsets[done] + _entries(scratch, met) + SPILLED
        ordinals = with_room(ordinals, needed, first + scratch[0, met - 1] + 1, all_rows)
        done = _list_entries(scratch, met, index.plain, first, done, offsets, ordinals)
    offsets[done + 1 : first + rows + 1] = offsets[done]
    return ordinals


@bare
def _find(codes, first, candidates, attributes, factors, index, table, coarse, chunk_rows, totals, scratch):
    """Finds the entries of candidate rows. Writes the rows that have any (in an even table all), and where the entries
    of each begin and end; returns the number of rows.

    Each step is a branch-free loop over at most `AT_ONCE` rows, so that many cache misses overlap. `scratch`
    [4, AT_ONCE + 1] int32 receives rows, begins, ends and, for use here only, tags.
    """
    rows, begins, ends, tags = scratch[0], scratch[1], scratch[2], scratch[3]
    bits = index.key_bits[table]
    slot_start = index.slot_start[index.slot_at[table] :]
    _add_up(codes, first, candidates, attributes, factors, index.shift, coarse, chunk_rows, totals)
    if bits < 0:
        at = index.slot_at[table]
        for i in range(len(candidates)):
            begin = at + np.int64(totals[i]) * -bits
            rows[i] = candidates[i]
            begins[i] = begin
            ends[i] = begin - bits
            prefetch(index.posted, np.uint64(begin) * np.uint64(1 + QUICK))
        return np.int64(len(candidates))
    by = np.uint64(64 - bits) if bits > 0 else np.uint64(0)
    count = np.uint64(0)
    for i in range(len(candidates)):
        slot = totals[i] >> by
        begin = slot_start[slot]
        end = slot_start[slot + np.uint64(1)]
        rows[count] = candidates[i]
        begins[count] = begin
        ends[count] = end
        tags[count] = np.int32(totals[i] & np.uint64(0xFFFFFFFF))
        count += np.uint64(begin < end)
    met = np.int64(count)
    if bits == 0:
        return met
    packed = len(attributes) <= PACKED
    for k in range(len(attributes)):
        packed &= index.shift[attributes[k]] == 0
    if packed:
        _pack(rows[:met], attributes, coarse, chunk_rows, tags)
    # may be negative: groups of earlier tables can have no codes
    at = index.group_code_at[table]
    return _groups_of(
        codes, first, coarse, chunk_rows, attributes, packed, index.groups, at, index.group_codes, scratch, met
    )


@bare
def _add_up(codes, first, rows, attributes, factors, shift, coarse, chunk_rows, totals):
    """Writes to `totals` [rows] uint64 the sum of each row's codes of the attributes, each times its factor."""
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


@bare
def _pack(rows, attributes, coarse, chunk_rows, tags):
    """Packs each row's coarse codes of at most three attributes into `tags` [rows] int32, a byte each."""
    for i in range(len(rows)):
        tags[i] = 0
    for k in range(len(attributes)):
        column = coarse[attributes[k] * chunk_rows : (attributes[k] + 1) * chunk_rows]
        for i in range(len(rows)):
            tags[i] = tags[i] << 8 | np.int32(column[np.uint64(rows[i])])


@bare
def _groups_of(codes, first, coarse, chunk_rows, attributes, packed, groups, at, group_codes, scratch, count):
    """Replaces the range of groups of each row in `scratch` by the range of entries of the group with the row's codes.
    Keeps the rows that have such a group; returns their number."""
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
                code = code_of(attributes[k], row, codes, first, coarse, chunk_rows)
                same &= code == group_codes[at + group * width + k]
            if same:
                rows[kept], begins[kept], ends[kept] = row, groups[group, 1], groups[group + 1, 1]
                kept += 1
                break
    return kept


@bare
def _entries(scratch, count):
    """The number of entries of the first `count` rows of `scratch`, in total."""
    total = np.int64(0)
    for i in range(count):
        total += scratch[2, i] - scratch[1, i]
    return total


@bare
def _copy_entries(scratch, count, plain, hit_rows, hit_rules, hits):
    """Appends all entries of each row of `scratch` as hits; the arrays have room for `SPILLED` more."""
    rows, begins, ends = scratch[0], scratch[1], scratch[2]
    to = np.uint64(hits)
    for i in range(count):
        length = np.uint64(ends[i] - begins[i])
        for at in range(np.uint64(0), length, np.uint64(LOOKED_UP)):
            copy_numbers(plain, np.uint64(begins[i]) + at, hit_rules, to + at)
            spread_number(rows[i], hit_rows, to + at)
        to += length
    return np.int64(to)


@bare
def _list_entries(scratch, count, plain, first, done, offsets, ordinals):
    """Copies the entries of each row of `scratch` as its list, and writes the offsets up to the last of these rows.
    `done` is the row behind the last one whose offsets are written; returns the new one."""
    rows, begins, ends = scratch[0], scratch[1], scratch[2]
    to = np.uint64(offsets[done])
    for i in range(count):
        row = first + rows[i]
        for between in range(done, row):
            offsets[between + 1] = to
        length = np.uint64(ends[i] - begins[i])
        for at in range(np.uint64(0), length, np.uint64(LOOKED_UP)):
            copy_numbers(plain, np.uint64(begins[i]) + at, ordinals, to + at)
        to += length
        done = row + 1
        offsets[done] = to
    return done


@inner
def _check_entries(
    codes, first, chunk_words, disjunction_bits, posted, coarse, chunk_rows, check_start, checks, set_start,
    set_intervals, target, scratch, count, kept, hit_rows, hit_rules, hits,
):  # fmt: skip
    """Appends the hits among the entries of each row of `scratch`; each row has at least one entry. `kept` [2, AT_ONCE]
    int32 is scratch."""
    rows, begins, ends = scratch[0], scratch[1], scratch[2]
    before = hits
    if hits + count > len(hit_rows):
        hit_rows, hit_rules = grown(hit_rows, hits + count), grown(hit_rules, hits + count)
    # most rows have one entry: the first entry of each row is tested without writing pairs
    hits = _keep_quick(posted, coarse, chunk_rows, rows, begins, count, hit_rows, hit_rules, hits)
    if _entries(scratch, count) > count:
        at = entry = 0
        while at < count:
            pairs, at, entry = _further_entries(rows, begins, ends, count, at, entry, kept)
            if hits + pairs > len(hit_rows):
                hit_rows, hit_rules = grown(hit_rows, hits + pairs), grown(hit_rules, hits + pairs)
            hits = _keep_quick(posted, coarse, chunk_rows, kept[0], kept[1], pairs, hit_rows, hit_rules, hits)
    hits = _check_rest(
        codes, first, chunk_words, disjunction_bits, coarse, check_start, checks, set_start, set_intervals, target,
        hit_rows, hit_rules, before, hits,
    )  # fmt: skip
    return hit_rows, hit_rules, hits


@bare
def _further_entries(rows, begins, ends, count, at, entry, kept):
    """Writes pairs of a row and one of its entries, but not its first, to `kept`, as many as fit. It continues with the
    row at index `at`, of which `entry` pairs are written already. Returns the number of pairs and the next `at` and
    `entry`."""
    pairs = 0
    while at < count:
        begin = begins[at] + 1 + entry
        stop = min(ends[at], begin + AT_ONCE - pairs)
        for place in range(begin, stop):
            kept[0, pairs] = rows[at]
            kept[1, pairs] = place
            pairs += 1
        if stop < ends[at]:
            return pairs, at, entry + stop - begin
        at += 1
        entry = 0
    return pairs, at, entry


@bare
def _keep_quick(posted, coarse, chunk_rows, rows, entries, pairs, hit_rows, hit_rules, hits):
    """Appends the pairs of a row and an entry that pass the entry's quick checks: the row to `hit_rows`, the first
    column of `posted` to `hit_rules`. Returns the number of hits."""
    to = np.uint64(hits)
    for i in range(pairs):
        row = rows[i]
        entry = np.uint64(entries[i])
        passed = (
            _quick(posted[entry, 1], row, coarse, chunk_rows)
            & _quick(posted[entry, 2], row, coarse, chunk_rows)
            & _quick(posted[entry, 3], row, coarse, chunk_rows)
        )
        hit_rows[to] = row
        hit_rules[to] = posted[entry, 0]
        to += np.uint64(passed)
    return np.int64(to)


@bare
def _check_rest(
    codes, first, chunk_words, disjunction_bits, coarse, check_start, checks, set_start, set_intervals, target,
    hit_rows, hit_rules, begin, end,
):  # fmt: skip
    """Applies the other checks to the hits [begin, end), which `_keep_quick` wrote. Keeps those that pass, with the
    rule in place of the conjunction. Returns the number of hits."""
    hits = begin
    for i in range(begin, end):
        conjunction = hit_rules[i]
        hit_rows[hits] = hit_rows[i]
        if conjunction < 0:
            hit_rules[hits] = -1 - conjunction
            hits += 1
        elif passes(
            conjunction, hit_rows[i], codes, first, coarse, chunk_words, disjunction_bits, check_start, checks,
            set_start, set_intervals,
        ):  # fmt: skip
            hit_rules[hits] = target[conjunction]
            hits += 1
    return hits


@bare
def _quick(check, row, coarse, chunk_rows):
    """Whether a row passes a quick check."""
    code = coarse[np.uint64(check >> 16) * np.uint64(chunk_rows) + np.uint64(row)]
    return ((np.int32(code) - (check >> 8)) & 255) <= (check & 255)
