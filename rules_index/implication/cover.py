"""Exact matching over sets of regions: is a box covered by the union of others?

Kuntschke and Kemper, algorithms 9 and 11, with sets in place of intervals. In each dimension, what is inside another
box is an intersection of two sets, and what is outside is their difference: a single part, where an interval would
leave two. Codes of a dimension that no other box distinguishes form one class, so that a part is a few words, with one
bit for each class.
"""

from __future__ import annotations

import numpy as np

from rules_index.implication.region_boxes import BoxArrays
from rules_index.kernels.bisection import first_at_least, first_reaching, in_intervals
from rules_index.kernels.jit import inner, jit

COVERED, UNCOVERED, UNDECIDED = 1, 0, -1
_MOST_WAITING = 1 << 14
"""The most parts on the stack; a depth-first search has few."""
_MOST_WORDS = 1 << 25
"""The most words of all parts on the stack, or of all boxes: 256 MiB."""


@inner
def _first_reaching(code: int, which: int, a: BoxArrays) -> int:
    """The first interval of a set that ends at a code or above."""
    return first_reaching(code, a.set_start[which], a.set_start[which + 1], a.intervals)


@inner
def in_set(code: int, which: int, a: BoxArrays) -> bool:
    """Whether a code is in a set."""
    return in_intervals(code, a.set_start[which], a.set_start[which + 1], a.intervals)


@inner
def relation_of_sets(part: int, box: int, a: BoxArrays) -> tuple[bool, bool]:
    """Whether two sets share a code, and whether the first is a subset of the second."""
    if part == box:
        return True, True
    share, within = False, True
    for i in range(a.set_start[part], a.set_start[part + 1]):
        low, high = a.intervals[i, 0], a.intervals[i, 1]
        at = _first_reaching(low, box, a)
        meets = at < a.set_start[box + 1] and a.intervals[at, 0] <= high
        share |= meets
        within &= meets and a.intervals[at, 0] <= low and a.intervals[at, 1] >= high
        if share and not within:
            break
    return share, within


@inner
def relation(part: int, box: int, a: BoxArrays) -> int:
    """`COVERED` if the box `part` is inside `box`, else `UNDECIDED` if they share a row, else `UNCOVERED`."""
    within = True
    at, last = a.start[part], a.start[part + 1]
    for term in range(a.start[box], a.start[box + 1]):
        dimension = a.dimensions[term]
        while at < last and a.dimensions[at] < dimension:
            at += 1
        if at == last or a.dimensions[at] > dimension:
            within = False
            continue
        shares, inside = relation_of_sets(a.sets[at], a.sets[term], a)
        if not shares:
            return UNCOVERED
        within &= inside
    return COVERED if within else UNDECIDED


@inner
def _set_of(box: int, dimension: int, a: BoxArrays) -> int:
    """The set of a box in a dimension, -1 if the box does not name it."""
    at = first_at_least(dimension, a.start[box], a.start[box + 1], a.dimensions)
    found = at < a.start[box + 1] and a.dimensions[at] == dimension
    return a.sets[at] if found else -1


@inner
def _distinct(values: np.ndarray, count: int) -> int:
    """Sorts the first `count` values (shell sort, because they are few) and removes repeats; returns their number."""
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, count):
            value, to = values[i], i
            while to >= gap and values[to - gap] > value:
                values[to] = values[to - gap]
                to -= gap
            values[to] = value
        gap //= 3
    kept = 0
    for i in range(count):
        if kept == 0 or values[kept - 1] != values[i]:
            values[kept] = values[i]
            kept += 1
    return kept


@inner
def _edges(dimension: int, others: np.ndarray, count: int, a: BoxArrays, edges: np.ndarray) -> int:
    """Writes to `edges`, ascending, 0 and the codes at which the first `count` others begin, or behind which they end;
    returns their number."""
    edges[0] = 0
    found = 1
    for i in range(count):
        which = _set_of(others[i], dimension, a)
        if which >= 0:
            for at in range(a.set_start[which], a.set_start[which + 1]):
                edges[found], edges[found + 1] = a.intervals[at, 0], a.intervals[at, 1] + 1
                found += 2
    found = _distinct(edges, found)
    return found - 1 if edges[found - 1] == a.sizes[dimension] else found


@inner
def _classes(box: int, dimension: int, edges: np.ndarray, count: int, a: BoxArrays, codes: np.ndarray, at: int) -> int:
    """Writes to `codes[at:]` one code of `box` for each class of its codes that `edges` distinguish; returns the end.

    In a dimension that the box does not name, the last code of each class is chosen: in the last class it most often
    stands for NULL.
    """
    own_set = _set_of(box, dimension, a)
    for i in range(count):
        last = edges[i + 1] - 1 if i + 1 < count else np.int64(a.sizes[dimension]) - 1
        if own_set < 0:
            codes[at] = last
            at += 1
            continue
        reached = _first_reaching(edges[i], own_set, a)
        if reached < a.set_start[own_set + 1] and a.intervals[reached, 0] <= last:
            codes[at] = max(np.int64(a.intervals[reached, 0]), edges[i])
            at += 1
    return at


@inner
def _mask(
    box: int, dimensions: np.ndarray, code_start: np.ndarray, word_start: np.ndarray, codes: np.ndarray, a: BoxArrays,
    mask: np.ndarray,
) -> None:  # fmt: skip
    """Sets the bits of the classes that are inside a box, and all bits of a dimension that it does not name."""
    for word in range(len(mask)):
        mask[word] = 0
    for d in range(len(word_start) - 1):
        which = _set_of(box, dimensions[d], a)
        for i in range(code_start[d + 1] - code_start[d]):
            if which < 0 or in_set(codes[code_start[d] + i], which, a):
                mask[word_start[d] + (i >> 6)] |= np.uint64(1) << np.uint64(i & 63)


@inner
def _cuts(part: np.ndarray, mask: np.ndarray, word_start: np.ndarray) -> int:
    """The number of dimensions in which a part extends beyond a box; -1 if they share no row."""
    cuts = 0
    for d in range(len(word_start) - 1):
        shares = stands_out = np.uint64(0)
        for word in range(word_start[d], word_start[d + 1]):
            shares |= part[word] & mask[word]
            stands_out |= part[word] & ~mask[word]
        if shares == 0:
            return -1
        cuts += stands_out != 0
    return cuts


@inner
def _cut(part: np.ndarray, mask: np.ndarray, word_start: np.ndarray, stack: np.ndarray, waiting: int) -> int:
    """Algorithm 9: cuts a part. Pushes the parts outside of a box onto the stack, and leaves in `part` what is inside;
    returns the new height of the stack."""
    for d in range(len(word_start) - 1):
        begin, end = word_start[d], word_start[d + 1]
        stands_out = False
        for word in range(begin, end):
            stands_out |= part[word] & ~mask[word] != 0
        if stands_out:
            for word in range(len(part)):
                stack[waiting, word] = part[word]
            for word in range(begin, end):
                stack[waiting, word] &= ~mask[word]
                part[word] &= mask[word]
            waiting += 1
    return waiting


@inner
def _room(others: int, each: int) -> int:
    """The height of the stack for parts that are cut by so many others in `each` dimensions."""
    return min(others * each, _MOST_WAITING) + each + 1


@inner
def _search(masks: np.ndarray, word_start: np.ndarray, most: int, part: np.ndarray) -> int:
    """Algorithm 11 over bits: whether the masks before the last one cover that one, `COVERED`, `UNCOVERED` or
    `UNDECIDED`. If it is uncovered, `part` receives a part of it that is outside of all of them."""
    others, each = len(masks) - 1, len(word_start) - 1
    room = _room(others, each)
    stack = np.empty((room, len(part)), np.uint64)
    for word in range(len(part)):
        stack[0, word] = masks[others, word]
    waiting = 1
    compared = 0
    while waiting > 0:
        waiting -= 1
        for word in range(len(part)):
            part[word] = stack[waiting, word]
        compared += others
        if compared > most or waiting + each > room:
            return UNDECIDED
        best, fewest = -1, each + 1
        for i in range(others):
            cuts = _cuts(part, masks[i], word_start)
            if 0 <= cuts < fewest:
                best, fewest = i, cuts
                if cuts == 0:
                    break
        if best < 0:
            return UNCOVERED
        if fewest > 0:
            waiting = _cut(part, masks[best], word_start, stack, waiting)
    return COVERED


@inner
def _near(box: int, others: np.ndarray, a: BoxArrays, near: np.ndarray) -> tuple[int, int, int]:
    """Writes the others that share rows with a box to `near`. Returns how many these are, and how many terms and
    intervals they have; (-1, 0, 0) if one of them covers the box."""
    count = terms = intervals = 0
    for i in range(len(others)):
        other = others[i]
        how = relation(box, other, a)
        if how == COVERED:
            return -1, 0, 0
        if how == UNDECIDED:
            near[count] = other
            count += 1
            terms += a.start[other + 1] - a.start[other]
            for term in range(a.start[other], a.start[other + 1]):
                intervals += a.set_start[a.sets[term] + 1] - a.set_start[a.sets[term]]
    return count, terms, intervals


@inner
def _cover(box: int, others: np.ndarray, most: int, a: BoxArrays, row: np.ndarray) -> int:
    """`cover_boxes` for one box."""
    near = np.empty(len(others), np.int64)
    count, terms, intervals = _near(box, others, a, near)
    if count <= 0:
        return COVERED if count < 0 else UNCOVERED
    if count > most:
        return UNDECIDED  # already the first part would be compared with more
    dimensions = np.empty(terms, np.int64)
    named = 0
    for i in range(count):
        for term in range(a.start[near[i]], a.start[near[i] + 1]):
            dimensions[named] = a.dimensions[term]
            named += 1
    named = _distinct(dimensions, named)
    code_start = np.zeros(named + 1, np.int64)
    word_start = np.zeros(named + 1, np.int64)
    edges = np.empty(2 * intervals + 1, np.int64)
    codes = np.empty(2 * intervals + named, np.int64)
    for d in range(named):
        found = _edges(dimensions[d], near, count, a, edges)
        code_start[d + 1] = _classes(box, dimensions[d], edges, found, a, codes, code_start[d])
        word_start[d + 1] = word_start[d] + ((code_start[d + 1] - code_start[d] + 63) >> 6)
    if max(count + 1, _room(count, named)) * word_start[named] > _MOST_WORDS:
        return UNDECIDED
    masks = np.empty((count + 1, word_start[named]), np.uint64)
    for i in range(count + 1):
        # the last mask is the box itself: all classes are its own, and the last box of all contains every row
        masked_box = near[i] if i < count else len(a.start) - 2
        _mask(masked_box, dimensions, code_start, word_start, codes, a, masks[i])
    part = np.empty(word_start[named], np.uint64)
    how = _search(masks, word_start, most, part)
    if how != UNCOVERED:
        return how
    for d in range(named):
        if dimensions[d] >= len(row):
            continue
        first = _set_of(box, dimensions[d], a) >= 0
        for i in range(code_start[d + 1] - code_start[d]):
            if part[word_start[d] + (i >> 6)] >> np.uint64(i & 63) & np.uint64(1):
                row[dimensions[d]] = codes[code_start[d] + i]
                if first:
                    break
    return how


@inner
def _write_lowest(box: int, a: BoxArrays, row: np.ndarray) -> None:
    """Writes the lowest codes of a row in a box; the last code of a dimension that the box does not name."""
    for dimension in range(len(row)):
        row[dimension] = a.sizes[dimension] - 1
    for term in range(a.start[box], a.start[box + 1]):
        if a.dimensions[term] < len(row):
            row[a.dimensions[term]] = a.intervals[a.set_start[a.sets[term]], 0]


@jit
def cover_boxes(
    boxes: np.ndarray,
    group: np.ndarray,
    start: np.ndarray,
    others: np.ndarray,
    most: int,
    a: BoxArrays,
    rows: np.ndarray,
) -> np.ndarray:
    """Whether each box [n] int64 is covered by the others [.] int64 of its group, others[start[g]:start[g + 1]].

    Returns `COVERED`, `UNCOVERED` or, after `most` comparisons of a part with a box, `UNDECIDED` [n] int8. rows: [n, d]
    int32, receives the codes of a row in each box, in the first d dimensions. If the box is `UNCOVERED`, the row is in
    none of the others.
    """
    found = np.empty(len(boxes), np.int8)
    for i in range(len(boxes)):
        _write_lowest(boxes[i], a, rows[i])
        found[i] = _cover(boxes[i], others[start[group[i]] : start[group[i] + 1]], most, a, rows[i])
    return found


@jit
def corners(boxes: np.ndarray, dimensions: np.ndarray, a: BoxArrays) -> np.ndarray:
    """Two rows in each box, codes [2 * boxes, n] int32 in some dimensions [n] int64: its lowest and its highest. A
    dimension that it does not name has the last code, most often NULL's, on which few rules are TRUE."""
    rows = np.empty((2 * len(boxes), len(dimensions)), np.int32)
    column = np.full(len(a.sizes), -1)
    for i in range(len(dimensions)):
        column[dimensions[i]] = i
        rows[:, i] = a.sizes[dimensions[i]] - 1
    for i in range(len(boxes)):
        for term in range(a.start[boxes[i]], a.start[boxes[i] + 1]):
            at = column[a.dimensions[term]]
            if at >= 0:
                begin, end = a.set_start[a.sets[term]], a.set_start[a.sets[term] + 1]
                rows[2 * i, at] = a.intervals[begin, 0]
                rows[2 * i + 1, at] = a.intervals[end - 1, 1]
    return rows


@jit
def rows_held(boxes: np.ndarray, codes: np.ndarray, unknown: bool, a: BoxArrays) -> np.ndarray:
    """Which rows [rows] bool of codes [dimensions, rows] int32 are in some box. A code of -1 is unknown, and -2 stands
    for one of the last two codes; a row for which such a code decides counts as inside if `unknown` is True."""
    held = np.zeros(codes.shape[1], np.bool_)
    for row in range(len(held)):
        for box in boxes:
            inside = True
            for term in range(a.start[box], a.start[box + 1]):
                dimension = a.dimensions[term]
                code = codes[dimension, row]
                if code == -1:
                    inside = unknown
                elif code >= 0:
                    inside = in_set(code, a.sets[term], a)
                else:
                    one = in_set(a.sizes[dimension] - 1, a.sets[term], a)
                    other = in_set(a.sizes[dimension] - 2, a.sets[term], a)
                    inside = one or other if unknown else one and other
                if not inside:
                    break
            if inside:
                held[row] = True
                break
    return held


@jit
def rows_within(boxes: np.ndarray, codes: np.ndarray, dimensions: np.ndarray, a: BoxArrays) -> np.ndarray:
    """Whether each row [rows] bool of codes [n, rows] int32 is in its own box [rows] int64. A row whose box names a
    dimension with an unknown code, which is negative, is not. dimensions: [n] int64, those of the codes, ascending;
    the boxes name no other one."""
    held = np.ones(len(boxes), np.bool_)
    for row in range(len(boxes)):
        for term in range(a.start[boxes[row]], a.start[boxes[row] + 1]):
            code = codes[np.searchsorted(dimensions, a.dimensions[term]), row]
            held[row] = held[row] and code >= 0 and in_set(code, a.sets[term], a)
    return held
