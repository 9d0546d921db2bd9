"""Splits the texts of rules at their connectives and interns the parts: one pass over bytes, without Python code per
rule.

A rule `a > 1 AND (b = 'x' OR NOT c IN (1, 2))` is split into its *clauses* `a > 1`, `b = 'x'`, `c IN (1, 2)` and its
*skeleton*, called frame here, which has a mark for each clause: `#&(#|!#)`. The *shape* of a clause has a mark in place
of each literal. A text is not split if it has anything that this scanner does not understand for certain: comments,
backslashes, double quotes, CASE, ...
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rules_index.kernels.encode import hash_of
from rules_index.kernels.jit import jit

CLAUSE, AND, OR, NOT, OPENING, CLOSING = b"#&|!()"
"""The bytes of frames."""
INTEGER, DECIMAL, DOUBLE, TEXT = 1, 2, 3, 4
"""The bytes that stand for literals in shapes: `12`, `1.2`, `1.2e3` or `12D`, and `'text'`."""
DEEPEST = 40
"""A text is not split if its brackets are nested more deeply, or if it has more NOTs."""
LONGEST_NUMBER = 38
"""A literal with more characters is not taken for a number."""
MOST_EXACT = 18
"""A number with more digits is not read as an integer."""

_SPACE, _LETTER, _DIGIT, _QUOTE, _BACK_QUOTE, _OPEN, _CLOSE, _OPERATOR = range(1, 9)


def _classes() -> np.ndarray:
    """The class of each byte [256] uint8. A text with a byte of class 0 outside of a string is not split."""
    classes = np.zeros(256, np.uint8)
    for kind, members in (
        (_SPACE, b" \t\n\r\x0b\x0c"),
        (_LETTER, b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"),
        (_DIGIT, b"0123456789"),
        (_QUOTE, b"'"),
        (_BACK_QUOTE, b"`"),
        (_OPEN, b"(["),
        (_CLOSE, b")]"),
        (_OPERATOR, b"<>=!+-*/%~&|^,.:"),
    ):
        classes[list(members)] = kind
    return classes


def _packed(word: str) -> int:
    """A word of up to eight letters as an integer, packed like `_word` does."""
    return int.from_bytes(word.encode(), "big")


_CLASS = _classes()
_AND, _OR, _NOT, _BETWEEN, _RAW = (_packed(word) for word in ("AND", "OR", "NOT", "BETWEEN", "R"))
# Keywords that join comparisons, or open something else; a column with such a name is in backticks.
_REFUSED = np.array(
    [_packed(word) for word in ("CASE", "WHEN", "THEN", "ELSE", "END", "SELECT", "WITH", "VALUES", "TABLE")], np.int64
)


class Pool(NamedTuple):
    """Interned byte strings: string i is `data[offsets[i]:offsets[i + 1]]`.

    data     uint8
    offsets  int64
    table    [a power of two] int32, a hash table of the strings' numbers, -1 for an empty slot
    used     [1] int64, the number of strings
    """

    data: np.ndarray
    offsets: np.ndarray
    table: np.ndarray
    used: np.ndarray


@jit
def _intern(data, start, end, pool):
    """The number of the string `data[start:end]` in the pool. It is added if it is new; the pool must have room for
    it."""
    mask = np.uint64(len(pool.table) - 1)
    slot = hash_of(data, start, end) & mask
    while pool.table[slot] >= 0:
        number = pool.table[slot]
        begin = pool.offsets[number]
        if pool.offsets[number + 1] - begin == end - start:
            same = True
            for i in range(end - start):
                if pool.data[begin + i] != data[start + i]:
                    same = False
                    break
            if same:
                return number
        slot = (slot + np.uint64(1)) & mask
    number = pool.used[0]
    pool.table[slot] = number
    begin = pool.offsets[number]
    for i in range(end - start):
        pool.data[begin + i] = data[start + i]
    pool.offsets[number + 1] = begin + end - start
    pool.used[0] = number + 1
    return number


@jit
def _word(data, at, end):
    """The word at `at` in capitals, packed into an integer (0 if it has more than eight letters); and the offset behind
    it."""
    packed = np.int64(0)
    start = at
    while at < end and (_CLASS[data[at]] == _LETTER or _CLASS[data[at]] == _DIGIT):
        packed = packed << 8 | np.int64(data[at] & 0xDF)
        at += 1
    return (packed if at - start <= 8 else np.int64(0)), at


@jit
def _behind_quoted(data, at, end):
    """The offset behind the string or name whose opening quote is at `at`; -1 if it has an escape or no end."""
    quote = data[at]
    at += 1
    while at < end and data[at] != quote:
        if data[at] == 0x5C and quote == 0x27:
            return -1
        at += 1
    return at + 1 if at < end else -1


@jit
def _end_of_clause(data, at, end):
    """The offset of the AND, OR or bracket that ends the clause at `at`, or of the text's end; -1 if the clause is not
    understood."""
    nested = between = 0
    before = _SPACE
    word = last_word = np.int64(0)
    while at < end:
        kind = _CLASS[data[at]]
        start = at
        if kind == _LETTER:
            word, at = _word(data, at, end)
            if word == _RAW and at < end and data[at] == 0x27:
                return -1
            if nested == 0:
                if word == _AND and between > 0:
                    between -= 1
                elif word in (_AND, _OR):
                    # 1.AND is a field of a number, not a connective; after NOT, AND and OR are not connectives either
                    apart = before in (_SPACE, _QUOTE, _BACK_QUOTE, _CLOSE) and last_word != _NOT
                    return start if apart and between == 0 else -1
                elif word == _BETWEEN:
                    between += 1
                else:
                    for refused in _REFUSED:
                        if word == refused:
                            return -1
        elif kind == _DIGIT:
            _, at = _word(data, at, end)
        elif kind in (_QUOTE, _BACK_QUOTE):
            at = _behind_quoted(data, at, end)
            if at < 0:
                return -1
        elif kind == _CLOSE and nested == 0:
            return at if data[at] == 0x29 and between == 0 else -1
        elif kind == 0 or _is_foreign(data, at, end, nested):
            return -1
        else:
            nested += (kind == _OPEN) - (kind == _CLOSE)
            at += 1
        if kind != _SPACE:
            last_word = word if kind == _LETTER else np.int64(0)
        before = kind
    return end if nested == 0 and between == 0 else -1


@jit
def _is_foreign(data, at, end, nested):
    """Whether at `at` a comment begins, or there is a comma or the arrow of a lambda outside of brackets."""
    byte = data[at]
    following = data[at + 1] if at + 1 < end else np.uint8(0)
    if byte == 0x2D:
        return following == 0x2D or (following == 0x3E and nested == 0)
    return (byte == 0x2C and nested == 0) or (byte == 0x2F and following == 0x2A)


@jit
def _cut(data, at, end, spans, frame):
    """Splits one text: writes the `spans` [clauses, 2] of its clauses and its `frame`. Returns the number of clauses
    and the length of the frame; (-1, 0) if the text is not split."""
    clauses = length = np.int64(0)
    depth = nots = 0
    due = True
    while True:
        while at < end and _CLASS[data[at]] == _SPACE:
            at += 1
        if at == end:
            return (-1, 0) if due or depth else (clauses, length)
        kind = _CLASS[data[at]]
        word, behind = _word(data, at, end)
        if due and data[at] == OPENING:
            depth += 1
            frame[length] = OPENING
            at += 1
        elif due and word == _NOT:
            nots += 1
            frame[length] = NOT
            at = behind
        elif due:
            if kind not in (_LETTER, _DIGIT, _QUOTE, _BACK_QUOTE):
                return -1, 0
            spans[clauses, 0] = at
            at = _end_of_clause(data, at, end)
            if at <= spans[clauses, 0]:
                return -1, 0
            last = at
            while _CLASS[data[last - 1]] == _SPACE:
                last -= 1
            spans[clauses, 1] = last
            clauses += 1
            frame[length] = CLAUSE
            due = False
        elif data[at] == CLOSING:
            depth -= 1
            frame[length] = CLOSING
            at += 1
        elif word in (_AND, _OR):
            frame[length] = AND if word == _AND else OR
            at = behind
            due = True
        else:
            return -1, 0
        length += 1
        if depth < 0 or depth > DEEPEST or nots > DEEPEST:
            return -1, 0


@jit
def cut_rules(data, offsets, first, last, spans, frame, frames, clauses, frame_of, start, numbers):
    """Splits the rules [first, last); rule i is `data[offsets[i]:offsets[i + 1]]`. Returns the number of their clauses.

    spans [., 2] int64 and frame uint8 are scratch, as long as the longest text. frames and clauses are pools with room
    for all. frame_of [rules] int32 receives the number of each rule's frame, -1 for a text that is not split; start
    [rules + 1] int64, from start[first] on, where each rule's clauses begin; numbers, from numbers[0] on, the numbers
    of the clauses.
    """
    count = 0
    for rule in range(first, last):
        found, length = _cut(data, offsets[rule], offsets[rule + 1], spans, frame)
        frame_of[rule] = -1
        if found > 0:
            frame_of[rule] = _intern(frame, np.int64(0), length, frames)
            for i in range(found):
                numbers[count + i] = _intern(data, spans[i, 0], spans[i, 1], clauses)
            count += found
        start[rule + 1] = start[rule] + max(found, 0)
    return count


@jit
def _number(data, at, end):
    """Reads the number at `at`, which may begin with a minus sign.

    Returns its kind, 0 if it is not a plain number; the offset behind it; its digits as an integer; and how many of
    them are behind the point, -1 if there are too many digits for that integer.
    """
    start = at
    negative = data[at] == 0x2D
    at += negative
    value = np.int64(0)
    digits = scale = 0
    kind = INTEGER
    while at < end and (_CLASS[data[at]] == _DIGIT or (data[at] == 0x2E and kind == INTEGER)):
        if data[at] == 0x2E:
            kind = DECIMAL
        else:
            digits += 1
            scale += kind == DECIMAL
            if digits <= MOST_EXACT:
                value = value * 10 + np.int64(data[at] - 0x30)
        at += 1
    if digits == 0 or data[start + negative] == 0x2E or data[at - 1] == 0x2E:
        return 0, at, value, -1
    if at < end and data[at] | 0x20 == 0x65:
        kind = DOUBLE
        at += 1
        at += at < end and (data[at] == 0x2B or data[at] == 0x2D)
        exponent = at
        while at < end and _CLASS[data[at]] == _DIGIT:
            at += 1
        if at == exponent:
            return 0, at, value, -1
    if at - start > LONGEST_NUMBER:
        return 0, at, value, -1
    return kind, at, (-value if negative else value), (scale if digits <= MOST_EXACT else -1)


@jit
def _shape(data, at, end, shape, spans, kinds, values, scales, count):
    """Writes the shape of the clause `data[at:end]`, and its literals from `count` on. Returns the shape's length and
    the new count."""
    length = 0
    due = False
    while at < end:
        kind = _CLASS[data[at]]
        start, first = at, count
        if kind == _DIGIT or (due and data[at] == 0x2D and at + 1 < end and _CLASS[data[at + 1]] == _DIGIT):
            found, at, values[count], scales[count] = _number(data, at, end)
            spans[count, 0], spans[count, 1], kinds[count] = start, at, found
            if found > 0 and at < end and data[at] | 0x20 == 0x64:
                kinds[count] = DOUBLE
                at += 1
            if found > 0 and (at == end or _CLASS[data[at]] == _SPACE or data[at] == 0x29 or data[at] == 0x2C):
                count += 1
            else:
                _, at = _word(data, max(at, start + 1), end)
        elif kind == _QUOTE:
            at = _behind_quoted(data, at, end)
            spans[count, 0], spans[count, 1], kinds[count] = start + 1, at - 1, TEXT
            count += at == end or data[at] != 0x27
        elif kind == _BACK_QUOTE:
            at = _behind_quoted(data, at, end)
        elif kind == _SPACE:
            while at < end and _CLASS[data[at]] == _SPACE:
                at += 1
            shape[length] = 0x20
            length += 1
            continue
        elif kind == _LETTER:
            word, at = _word(data, at, end)
            due = word in (_AND, _BETWEEN)
        else:
            at += 1
            due = data[start] == 0x28 or data[start] == 0x2C or (0x3C <= data[start] <= 0x3E)
        if count > first:
            due = False
            length = _with_mark(shape, length, kinds[first])
        else:
            for i in range(start, at):
                shape[length] = data[i]
                length += 1
    return length, count


@jit
def _with_mark(shape, length, mark):
    """Appends a literal's mark to a shape. In a list, consecutive literals of one kind have only one mark. Returns the
    new length."""
    behind = length - 1 if length > 0 and shape[length - 1] == 0x20 else length
    if behind > 1 and shape[behind - 1] == 0x2C and shape[behind - 2] == mark:
        return behind - 1
    shape[length] = mark
    return length + 1


@jit
def shape_clauses(pool, first, last, shape, shapes, shape_of, start, spans, kinds, values, scales):
    """Writes the shapes of the clauses [first, last) of a pool, and their literals. Returns the number of literals.

    shape is scratch, as long as the longest clause. shapes is a pool with room for all. shape_of receives the number of
    each clause's shape, start where each clause's literals begin, and where the last ends; both from 0 on. For each
    literal it writes its span in the pool's data (for a TEXT without the quotes, for a DOUBLE without its D), its kind,
    its digits and sign as an integer, and the number of digits behind the point, -1 if the integer is not the literal's
    value.
    """
    count = np.int64(0)
    for clause in range(first, last):
        length, count = _shape(
            pool.data, pool.offsets[clause], pool.offsets[clause + 1], shape, spans, kinds, values, scales, count
        )
        shape_of[clause - first] = _intern(shape, 0, length, shapes)
        start[clause - first + 1] = count
    return count
