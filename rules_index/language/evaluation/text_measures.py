"""`levenshtein`, the distance of two texts, and `luhn_check`, the check digit of card numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.kernels.jit import jit
from rules_index.language.coercion import BOOLEAN, INT
from rules_index.language.evaluation import argument_types
from rules_index.language.evaluation.malformed_texts import SIZES, Texts
from rules_index.language.evaluation.scalar import Columns, Result, ScalarFunction, like, nulls_of
from rules_index.language.patterns.strings import buffers


def _levenshtein(columns: Columns, _: str) -> Result:
    """`levenshtein(a, b)`: how many characters must be inserted, deleted or replaced in `a` to get `b`. With a third
    argument, a limit, it is -1 if there are more."""
    limit = columns[2][0].as_py() if len(columns) > 2 else -1
    found = np.zeros(len(columns[0]), np.int32)
    (first, starts, known), (second, ends, also_known) = (buffers(column) for column in columns[:2])
    _distances(first, starts, second, ends, known & also_known, limit, found)
    return like(columns[0], found, INT, columns[1]), None


@jit
def _distances(first, starts, second, ends, valid, limit, found):  # type: ignore[no-untyped-def]
    """Writes the distance of each pair of valid texts into `found` [rows] int32; -1 if it exceeds a limit that is not
    negative."""
    for row in range(len(valid)):
        if valid[row]:
            a = _characters(first, starts[row], starts[row + 1])
            b = _characters(second, ends[row], ends[row + 1])
            start, same = 0, min(len(a), len(b))
            while start < same and a[start] == b[start]:
                start += 1
            behind = 0
            while behind < same - start and a[len(a) - 1 - behind] == b[len(b) - 1 - behind]:
                behind += 1
            found[row] = _distance(a[start : len(a) - behind], b[start : len(b) - behind], limit)


@jit
def _distance(a, b, limit):  # type: ignore[no-untyped-def]
    """The distance of two arrays of characters. One row of Wagner and Fischer's table is kept, and with a limit only
    the cells at most so far from its diagonal are computed."""
    most = len(a) + len(b)
    reach = most if limit < 0 else limit
    if abs(len(a) - len(b)) > reach:
        return -1
    costs = np.arange(len(b) + 1)
    costs[min(reach, len(b)) + 1 :] = most + 1
    for i in range(len(a)):
        first, last = max(0, i - reach), min(len(b), i + reach + 1)
        diagonal, costs[first] = costs[first], most + 1 if first else i + 1
        least = costs[first]
        for j in range(first, last):
            above = costs[j + 1]
            costs[j + 1] = min(diagonal + (a[i] != b[j]), above + 1, costs[j] + 1)
            diagonal, least = above, min(least, costs[j + 1])
        if least > reach:
            return -1
    return -1 if costs[len(b)] > reach else costs[len(b)]


@jit
def _characters(data, start, stop):  # type: ignore[no-untyped-def]
    """The characters of a text, each as the number that its bytes spell. Like Spark, it takes the number of bytes from
    the first one, so that malformed texts have characters, too."""
    found = np.empty(stop - start, np.uint32)
    count, at = 0, start
    while at < stop:
        behind = min(at + SIZES[data[at]], stop)
        word = np.uint32(0)
        for place in range(at, behind):
            word = (word << np.uint32(8)) | np.uint32(data[place])
        found[count] = word
        count, at = count + 1, behind
    return found[:count]


def _luhn_check(columns: Columns, _: str) -> Result:
    """Whether a text has digits only, and their sum is a multiple of 10, where every second digit from the end counts
    with the digit sum of its double."""
    text = columns[0]
    data, offsets, _valid = buffers(text)
    lengths = np.diff(offsets)
    values = data[offsets[0] : offsets[-1]].astype(np.int64) - ord("0")
    owner = np.repeat(np.arange(len(text)), lengths)
    from_end = offsets[owner + 1] - offsets[0] - np.arange(len(values)) - 1
    doubled = values << (from_end & 1)
    sums = np.bincount(owner, doubled - 9 * (doubled > 9), len(text))
    is_other = np.bincount(owner, (values < 0) | (values > 9), len(text)) > 0
    found = (lengths > 0) & (sums % 10 == 0) & ~is_other
    # Java's digits are those of all scripts
    others = np.flatnonzero(~pc.fill_null(pc.string_is_ascii(text), True).to_numpy(zero_copy_only=False))
    found[others] = [_is_checked(each) for each in text.take(pa.array(others)).to_pylist()]
    return pa.array(found, BOOLEAN, mask=nulls_of(text)), None


def _is_checked(text: str) -> bool:
    """`_luhn_check` of one text in which every digit is a UTF-16 unit, as Java looks at them."""
    if not all(letter.isdecimal() and letter <= "\uffff" for letter in text):
        return False
    doubled = [int(digit) << (place & 1) for place, digit in enumerate(reversed(text))]
    return sum(each - 9 * (each > 9) for each in doubled) % 10 == 0


MEASURES: dict[str, ScalarFunction] = {
    "levenshtein": ScalarFunction(
        argument_types.two_texts_and_perhaps_a_number,
        _levenshtein,
        constants=(2,),
        fits=lambda fixed: not fixed or fixed[0] >= 0,
    ),
    "luhn_check": ScalarFunction(argument_types.one_text, _luhn_check, texts=Texts.DECODED),
}
