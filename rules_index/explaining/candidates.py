"""Proposes values of one column that can change a predicate's truth: the nearest value of each region, and values for
which computations may give another result.

Predicates on the column itself divide its values into regions; in each region the value nearest to the row's is enough.
If a predicate compares a computation, inputs for it are estimated by a straight line through two of its values, and
taken from its constants and patterns.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pyarrow as pa

from rules_index.domains.values import NAN_KEY, Key, float_key
from rules_index.explaining.function_inputs import moments_near, texts_for
from rules_index.explaining.keys import (
    DAY,
    INFINITY_KEY,
    float32_keys,
    fraction,
    is_a_value,
    keys_around,
    values_of,
)
from rules_index.explaining.list_values import keys_near
from rules_index.explaining.readable_numbers import readable_near
from rules_index.explaining.truth import Truths, keys_of
from rules_index.implication.representatives import doubles, least_text
from rules_index.language import constants
from rules_index.language.coercion import is_decimal, is_float, is_integer, is_number
from rules_index.language.evaluation.constant_values import constant_scalar
from rules_index.language.evaluation.evaluated import Evaluated
from rules_index.language.formula import Formula, Predicate, predicates_of
from rules_index.language.patterns.like import text_like
from rules_index.language.typed import Constant, Expression, Leaf, Operation, leaves_of, lists_of, operations_of

MOST_VALUES = 4096
"""The most values of one column that are tried."""
TO_NULL, NOT_FINITE, TINY, FROM_NULL, OTHER_TEXT = 4.0, 2.0, 1.5, 0.75, 0.5
"""Distances of values whose difference cannot be measured or would mislead: that of the least numbers beside 0 is tiny,
but no row has such numbers. NULL is the last resort."""
_COMPARISONS = frozenset(("=", "<>", "<", "<=", ">", ">=", "<=>"))


def candidates(leaf: Leaf, formulas: Iterable[Formula], inputs: Mapping[str, Evaluated]) -> tuple[pa.Array, np.ndarray]:
    """Returns values [n] for a column other than the row's, nearest first, then NULL; and the distance [n] float64 of
    each.

    formulas: of the predicates that read the column. inputs: the row's values by name, one row.
    """
    now = keys_of(inputs[leaf.name].values)[0]
    found: dict[Key, None] = {}
    predicates = [predicate for formula in formulas for predicate in predicates_of(formula)]
    own = [predicate for predicate in predicates if predicate.attribute == leaf]
    if own:
        cuts = {cut for predicate in own for cut in (*predicate.true.cuts, *predicate.false.cuts)}
        found |= dict.fromkeys(_nearest_of_regions(cuts, now, leaf.type))
    computed = [each for each in predicates if each.attribute != leaf and leaf in leaves_of(each.attribute)]
    for predicate in computed:
        found |= dict.fromkeys(_keys_for_computation(leaf, predicate, now, inputs))
    if computed and isinstance(now, int) and _is_measured(leaf.type) and not is_number(leaf.type):
        found |= dict.fromkeys(moments_near(leaf, now, computed))
    keys = [key for key in found if key != now and is_a_value(key, leaf.type)]
    ordered = sorted(keys, key=lambda key: distance(now, key, leaf.type))[:MOST_VALUES]
    distances = [distance(now, key, leaf.type) for key in ordered]
    values = values_of(ordered, leaf.type)
    if now is None:
        return values, np.array(distances)
    return pa.concat_arrays([values, pa.nulls(1, leaf.type)]), np.array([*distances, TO_NULL])


def distance(now: Key | None, then: Key, data_type: pa.DataType) -> float:
    """Returns the distance of a value from the row's: for numbers their difference relative to the row's value, for
    times relative to a year, both from 0 to 1; a text is nearer the longer the prefix that it shares; other values have
    the constants above."""
    if is_float(data_type) and abs(then) >= INFINITY_KEY:
        return NOT_FINITE + (then == NAN_KEY)
    if now is None:
        return FROM_NULL
    if isinstance(now, bytes):
        differs_at = next((i for i, pair in enumerate(zip(now, then, strict=False)) if pair[0] != pair[1]), None)
        shared = min(len(now), len(then)) if differs_at is None else differs_at
        return OTHER_TEXT + OTHER_TEXT / 2 * (1 - shared / max(len(now), len(then), 1))
    if is_float(data_type):
        first, second = (float(each) for each in doubles(np.array([now, then], np.int64)))
        if not (math.isfinite(first) and math.isfinite(second)):
            return 1.0
        if 0 < abs(second) < sys.float_info.min:
            return TINY
        change = abs(second - first)
        return change / (change + abs(first) + 1) if math.isfinite(change + abs(first)) else 1.0
    if pa.types.is_boolean(data_type):
        return OTHER_TEXT
    if not is_number(data_type):
        unit = 1 if pa.types.is_date(data_type) else DAY
        return float(Fraction(abs(then - now), abs(then - now) + 365 * unit))
    unit = 10**data_type.scale if is_decimal(data_type) else 1
    return float(Fraction(abs(then - now), abs(then - now) + abs(now) + unit))


# Regions of the column's own


def _nearest_of_regions(cuts: Iterable[Key], now: Key | None, data_type: pa.DataType) -> Iterator[Key]:
    """Yields the key nearest to the row's value in each region that the cuts make, except the row's own region."""
    ordered = sorted(cuts)
    if not ordered:
        yield from _usual(data_type)
        return
    least, greatest = constants.domain(data_type)
    edges: list[Key | None] = [least, *(cut for cut in ordered if cut > least), None]
    for low, high in pairwise(edges):
        if low is None or (greatest is not None and low > greatest):
            continue
        if now is not None and low <= now and (high is None or now < high):
            continue
        if isinstance(low, bytes):
            yield from _texts_from(low, high, data_type)
            continue
        last = greatest if high is None else min(high - 1, greatest)
        is_below = now is not None and now > last
        nearest = last if is_below or (now is None and low == least) else low
        assert nearest is not None and last is not None
        for key in _representable_key(nearest, low, last, data_type):
            yield key
            if is_float(data_type):
                yield from _readable_key(key, low, last, now, data_type)


def _usual(data_type: pa.DataType) -> list[Key]:
    """Some value, for a column that is only tested for NULL."""
    return [b""] if data_type in (pa.string(), pa.binary()) else [0]


def _texts_from(low: bytes, high: bytes | None, data_type: pa.DataType) -> Iterator[bytes]:
    is_text = pa.types.is_string(data_type)
    least = least_text(low) if is_text else low
    readable = [low[:-1] + b"a"] if is_text and low.endswith(b"\0") else []
    for found in (*readable, least):
        if found is not None and (high is None or found < high):
            yield found
            return


def _representable_key(key: int, low: int, last: int, data_type: pa.DataType) -> Iterator[int]:
    """Yields a key in [low, last] at or next to `key` that belongs to a value: there is no DOUBLE between infinity and
    NaN, and most DOUBLEs are not FLOATs."""
    if not is_float(data_type):
        yield key
        return
    if last == NAN_KEY:
        yield NAN_KEY
    key = min(key, INFINITY_KEY)
    if data_type == pa.float64():
        if low <= key:
            yield key
        return
    for found in float32_keys(float(doubles(np.array([key], np.int64))[0])):
        if low <= found <= last:
            yield found


def _readable_key(key: int, low: int, last: int, now: Key | None, data_type: pa.DataType) -> Iterator[int]:
    """Yields, if there is one in [low, last], the key of the number with the fewest digits near the number of `key`."""
    value = _float_of(key)
    for found in readable_near(value, None if now is None else _float_of(int(now)), data_type):
        near = float_key(float(np.float32(found)) if data_type == pa.float32() else found)
        if low <= near <= last:
            yield near
            return


def _float_of(key: int) -> float:
    return float(doubles(np.array([min(key, NAN_KEY)], np.int64))[0])


# What is computed from the column


def _is_measured(kind: pa.DataType) -> bool:
    """Whether values of the type have differences: numbers, dates and timestamps."""
    return is_number(kind) or bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _keys_for_computation(
    leaf: Leaf, predicate: Predicate, now: Key | None, inputs: Mapping[str, Evaluated]
) -> Iterator[Key]:
    attribute = predicate.attribute
    if any(each.text is not None for each in leaves_of(attribute)):
        return
    yield from _keys_of_same_type(attribute, leaf, inputs)
    yield from _pattern_texts(attribute, leaf)
    if pa.types.is_string(leaf.type):
        text = now.decode() if isinstance(now, bytes) else ""
        yield from (each.encode() for each in texts_for(predicate, leaf, text))
    for each in lists_of(attribute):
        if each.type == leaf.type or (is_integer(each.type) and is_integer(leaf.type)):
            yield from keys_near(each, now)
    cuts = sorted({*predicate.true.cuts, *predicate.false.cuts})[:64]
    if attribute.type == leaf.type and _is_measured(leaf.type) and not is_number(leaf.type):
        yield from (key for cut in cuts for key in (cut - 1, cut))
    if now is None or not _is_measured(leaf.type):
        return
    if is_number(attribute.type):
        goals = [goal for cut in cuts for goal in (cut - 1, cut)]
        wanted = [found for goal in goals if (found := fraction(goal, attribute.type)) is not None]
        yield from _on_a_line(attribute, wanted, leaf, now, inputs)
    for operation in operations_of(attribute):
        if operation.name in _COMPARISONS:
            left, right = operation.operands
            if leaf in leaves_of(operation) and _is_measured(left.type) and _is_measured(right.type):
                yield from _where_equal(left, right, leaf, now, inputs)


def _keys_of_same_type(expression: Expression, leaf: Leaf, inputs: Mapping[str, Evaluated]) -> Iterator[Key]:
    """Constants and row values that have the column's type, and their neighbours."""
    if isinstance(expression, Operation):
        for operand in expression.operands:
            yield from _keys_of_same_type(operand, leaf, inputs)
    if isinstance(expression, Leaf) and expression != leaf and expression.type == leaf.type:
        values = inputs[expression.name].values
    elif isinstance(expression, Constant) and expression.type == leaf.type and expression.value is not None:
        values = pa.array([constant_scalar(expression).as_py()], leaf.type)
    else:
        return
    for key in keys_of(values):
        if key is not None:
            yield from (key, *_neighbours(key, leaf.type))


def _neighbours(key: Key, data_type: pa.DataType) -> list[Key]:
    if isinstance(key, bytes):
        return [key + b"\x00"] if pa.types.is_binary(data_type) else [key + b"a", key[:-1]]
    if data_type == pa.float32():
        return float32_keys(float(doubles(np.array([key], np.int64))[0]))
    return [key - 1, key + 1]


def _pattern_texts(expression: Expression, leaf: Leaf) -> Iterator[Key]:
    """Yields texts that a pattern may match: that of `text_like` (for a regular expression, the pattern without
    backslashes and `%`, and with x for `_`), its letters and digits alone, the empty text and a."""
    if not isinstance(expression, Operation):
        return
    for operand in expression.operands:
        yield from _pattern_texts(operand, leaf)
    if expression.name in ("like", "rlike") and leaf.type == pa.string():
        escape = str(expression.parameters[1]) if expression.name == "like" else "\\"
        text = text_like(str(expression.parameters[0]), escape)
        yield text.encode()
        yield "".join(letter for letter in text if letter.isalnum()).encode()
        yield from (b"", b"a")


def _where_equal(
    left: Expression, right: Expression, leaf: Leaf, now: Key, inputs: Mapping[str, Evaluated]
) -> Iterator[Key]:
    """Yields values of the column for which two sides are equal, and their neighbours, if the sides' difference is
    linear."""
    points = _points(leaf, now)
    first, second = (_numbers_at(points, side, leaf, inputs) for side in (left, right))
    heights = [None if one is None or two is None else one - two for one, two in zip(first, second, strict=True)]
    yield from _solved(points, heights, [Fraction(0)], leaf)


def _on_a_line(
    expression: Expression, wanted: Sequence[Fraction], leaf: Leaf, now: Key, inputs: Mapping[str, Evaluated]
) -> Iterator[Key]:
    """Yields values of the column for which an expression has wanted values, if the expression or its reciprocal is
    linear."""
    points = _points(leaf, now)
    heights = _numbers_at(points, expression, leaf, inputs)
    yield from _solved(points, heights, wanted, leaf)
    yield from _solved(
        points, [1 / each if each else None for each in heights], [1 / each for each in wanted if each], leaf
    )


def _points(leaf: Leaf, now: Key) -> list[Key]:
    """Returns the row's value of a column, and further values, so that two are left to determine a straight line if
    some raise."""
    start = fraction(now, leaf.type)
    numbers = (
        [Fraction(0), Fraction(1)] if start is None else [start + 1, start - 1, start - 2, Fraction(0), Fraction(1)]
    )
    keys = [now, *(keys_around(number, leaf.type)[1] for number in numbers)]
    return [key for key in dict.fromkeys(keys) if is_a_value(key, leaf.type)]


def _numbers_at(
    points: Sequence[Key], expression: Expression, leaf: Leaf, inputs: Mapping[str, Evaluated]
) -> list[Fraction | None]:
    """Returns the values of an expression for given values of a column; None for a value that is not a number."""
    given = {each.name: repeated(inputs[each.name], len(points)) for each in leaves_of(expression)}
    given[leaf.name] = Evaluated(values_of(points, leaf.type))
    result = Truths(given, len(points)).value(expression).values
    result = result.combine_chunks() if isinstance(result, pa.ChunkedArray) else result
    return [None if key is None else fraction(key, result.type) for key in keys_of(result)]


def _solved(
    points: Sequence[Key], heights: Sequence[Fraction | None], goals: Iterable[Fraction], leaf: Leaf
) -> Iterator[Key]:
    """Yields keys around the places where the line through the first two points with a height reaches the wanted
    heights."""
    known = [
        (place, height)
        for key, height in zip(points, heights, strict=True)
        if height is not None and (place := fraction(key, leaf.type)) is not None
    ]
    if len(known) < 2 or known[0][1] == known[1][1]:
        return
    (place, height), (other_place, other_height) = known[:2]
    for goal in goals:
        yield from keys_around(place + (goal - height) * (other_place - place) / (other_height - height), leaf.type)


def repeated(given: Evaluated, rows: int) -> Evaluated:
    """One row's value, repeated for many rows."""
    values = given.values.take(pa.array(np.zeros(rows, np.int64)))
    return Evaluated(values, None if given.raised is None else np.repeat(given.raised, rows))
