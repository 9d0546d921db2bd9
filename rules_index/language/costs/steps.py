"""Upper bounds of the work of a call, in steps, from the sizes of its arguments and its result.

A step is about a nanosecond of one core.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pyarrow as pa

from rules_index.language.coercion import STRING, is_decimal
from rules_index.language.costs.forms import Form, Size, least, sum_of
from rules_index.language.costs.sizes import Call
from rules_index.language.patterns import java_degree

NODE = 100.0
"""Steps for evaluating any part."""
RAISING = 30_000.0
"""Steps for an error that is raised and caught inside a function."""


def _read(call: Call, result: Size) -> Form:
    return call.total + result.bytes + sum_of([size.items for size in call.sizes]) * 20


def _search(call: Call, result: Size) -> Form:
    """A search that, at each place of the text, compares letters of the searched text."""
    read = (call.total + result.bytes) * 5
    return read + (call.bytes(0) * call.bytes(1)) * 0.5 if len(call.sizes) > 1 else read


def _letters(call: Call, result: Size) -> Form:
    return (call.total + result.bytes) * 50


def _distance(call: Call, result: Size) -> Form:
    """A table of all pairs of letters; with a threshold only a band around its diagonal."""
    pairs = call.bytes(0) * call.bytes(1)
    if len(call.sizes) == 3:
        pairs = least(pairs, call.total * (2 * call.count(2, math.inf) + 1)) if call.count(2, math.inf) < 1e9 else pairs
    return pairs * 5 + call.total * 10


def _match(call: Call, result: Size) -> Form:
    """The bound of `java_degree` for the pattern; LIKE and RLIKE are linear in the value."""
    pattern = call.sizes[1].constant if len(call.sizes) > 1 else None
    letters = float(len(pattern)) if isinstance(pattern, str) else 1.0
    read = (call.total + result.bytes) * 50
    if call.name in ("rlike", "regexp", "regexp_like", "like", "ilike"):
        return read + call.bytes(0) * (10 * letters)
    degree, factor = java_degree(pattern) if isinstance(pattern, str) else (1, 1)
    steps = call.bytes(0) if degree < 2 else call.bytes(0) * call.bytes(0)
    return read + steps * float(5 * factor)


def _sort(call: Call, result: Size) -> Form:
    """Each item is compared about twenty times."""
    return (call.bytes(0) + call.first.items * 50) * 25


def _set(call: Call, result: Size) -> Form:
    """Hashing if the items are scalars; else each item is compared with each other one."""
    sizes = call.sizes
    other = sizes[1] if len(sizes) > 1 else sizes[0]
    kind = call.types[0] if call.types[0] is not None else call.types[-1]
    item = getattr(kind, "value_type", None)
    read = call.total * 5 + sum_of([size.items for size in sizes]) * 100
    if item is not None and (item == STRING or is_decimal(item) or _is_scalar(item)):
        return read
    first, second = sizes[0], other
    whole = Size(first.bytes + second.bytes, first.items + second.items)
    return read + (whole.items * whole.items) * 20 + whole.items * whole.bytes


def _is_scalar(item: object) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_date, pa.types.is_timestamp, pa.types.is_boolean)
    return any(kind(item) for kind in kinds)


WORK: dict[str, Callable[[Call, Size], Form]] = {
    "pass": lambda call, result: call.total * 5,
    "read": _read,
    "text": lambda call, result: (call.total + result.bytes) * 10,
    "letters": _letters,
    "search": _search,
    "raising": lambda call, result: call.total * 20 + RAISING,
    "parse": lambda call, result: (call.total + result.bytes) * 20 + RAISING,
    "print": lambda call, result: (call.total + result.bytes) * 10 + 2000.0,
    "words": lambda call, result: (call.total + result.bytes) * 100,
    "match": _match,
    "distance": _distance,
    "sort": _sort,
    "set": _set,
    "build": lambda call, result: (call.total + result.bytes) * 25,
    "lambda": lambda call, result: call.first.items * 30 + result.bytes,
}
"""The steps of a call, without those of its arguments, by the second word of a line of the table (`costs.table`)."""
