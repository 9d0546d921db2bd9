"""Guesses values of a text, date or timestamp column for which functions of it have the values in a rule, as in
`upper(c) = 'ECOM'`.

Guesses are enough, because a change is only shown after it has been matched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from typing import Any

import pyarrow as pa

from rules_index.domains.values import Key, ValueSet
from rules_index.explaining.keys import DAY, fraction
from rules_index.language.coercion import BOOLEAN, DATE, is_integer, is_number
from rules_index.language.evaluation.constant_values import constant_scalar
from rules_index.language.formula import Predicate
from rules_index.language.patterns.like import text_like
from rules_index.language.typed import Constant, Expression, Leaf, Operation, leaves_of, operations_of

MOST_GOALS = 64
"""The most values of an expression that inputs are sought for."""
_MOST_LETTERS = 1_000
_EPOCH = date(1970, 1, 1)
_LENGTHS = frozenset(("length", "char_length", "character_length", "len"))
_CASTS = frozenset(("cast", "try_cast"))


def texts_for(predicate: Predicate, leaf: Leaf, now: str) -> Iterator[str]:
    """Yields texts that can replace the row's text `now`, so that functions of the column may decide the predicate
    otherwise."""
    yield from (now.upper(), now.lower(), now.strip())
    for expression, goal in _goals(predicate):
        yield from _through(expression, goal, leaf, now)


def moments_near(leaf: Leaf, now: int, predicates: Iterable[Predicate]) -> Iterator[int]:
    """Yields keys of dates or timestamps near the row's: each hour of the weeks around it, each day of the months
    around it, each month of its year, and the years that predicates name.

    now: days or microseconds since 1970, by UTC for TIMESTAMP: a change by an hour reaches all hours of any zone.
    """
    unit = 1 if leaf.type == DATE else DAY
    days, of_day = divmod(now, unit)
    if unit == DAY:  # each hour of each weekday
        hour = 3_600_000_000
        yield from (now - now % hour + hour * hours for hours in range(-7 * 24, 7 * 24 + 1))
    yield from (now + unit * moved for moved in range(-31, 32))
    try:
        day = _EPOCH + timedelta(days)
    except OverflowError:
        return
    named = {goal for each in predicates for _, goal in _goals(each) if isinstance(goal, int)}
    years = sorted(year for year in named if date.min.year <= year <= date.max.year)
    months = [(day.year, month) for month in range(1, 13)] + [(year, day.month) for year in years]
    for year, month in months:
        for of_month in (day.day, 1):
            try:
                yield (date(year, month, of_month) - _EPOCH).days * unit + of_day
            except ValueError:  # there is no such day
                continue


def _goals(predicate: Predicate) -> Iterator[tuple[Expression, Any]]:
    """Yields expressions within a predicate, each with a value, a text or a whole number, that may decide the
    predicate."""
    for goal in _of_cuts((predicate.true, predicate.false), predicate.attribute.type):
        yield predicate.attribute, goal
    for operation in operations_of(predicate.attribute):
        if operation.name in ("like", "rlike"):
            escape = str(operation.parameters[1]) if operation.name == "like" else "\\"
            yield operation.operands[0], text_like(str(operation.parameters[0]), escape)
        elif operation.name in _CASTS and operation.type == BOOLEAN:
            yield from ((operation.operands[0], spelled) for spelled in ("true", "false"))
        constants = [each for each in operation.operands if isinstance(each, Constant)]
        for constant in constants[:MOST_GOALS]:
            goal = None if constant.value is None else constant_scalar(constant).as_py()
            for other in operation.operands:
                if isinstance(goal, str) and other.type == constant.type and other is not constant:
                    yield other, goal


def _of_cuts(sets: Iterable[ValueSet], kind: pa.DataType) -> Iterator[Any]:
    """Yields a value on each side of each cut of the sets."""
    cuts: list[Key] = sorted({cut for each in sets for cut in each.cuts})[:MOST_GOALS]
    for cut in cuts:
        if isinstance(cut, bytes):
            text = cut.removesuffix(b"\0").decode(errors="ignore")
            yield from (text, f"{text}a") if cut.endswith(b"\0") else (text, text[:-1])
        elif is_integer(kind) or kind == DATE:
            yield from (cut - 1, cut)
        elif is_number(kind):
            yield from _numbers_around(cut, kind)


def _numbers_around(cut: int, kind: pa.DataType) -> Iterator[int]:
    """Whole numbers around the cut of a decimal or a floating-point number."""
    found = fraction(cut, kind)
    if found is not None and abs(found) < 1 << 62:
        yield from (round(found) + step for step in (0, 1, -1))


def _through(expression: Expression, goal: Any, leaf: Leaf, now: str) -> Iterator[str]:
    """Yields texts of the column for which an expression may have the value `goal`.

    The expression is inverted depth by depth, with each pair of a part and a value once. Otherwise functions with
    several inputs for one value would multiply the work at each depth.
    """
    level: list[tuple[Expression, Any]] = [(expression, goal)]
    while level:
        inner: dict[tuple[Expression, Any], None] = {}
        for part, aim in level:
            if part != leaf:
                inner |= dict.fromkeys(_of_operands(part, aim, leaf, now))
            elif isinstance(aim, str):
                yield aim
        level = list(inner)[:MOST_GOALS]


def _of_operands(expression: Expression, goal: Any, leaf: Leaf, now: str) -> Iterator[tuple[Expression, Any]]:
    """Yields the operands that read the column, each with a value for which the expression may have the value
    `goal`."""
    if goal is None or not isinstance(expression, Operation):
        return
    name = expression.parameters[0] if expression.name == "call" else expression.name
    fixed = [each.value if isinstance(each, Constant) else None for each in expression.operands]
    for place, operand in enumerate(expression.operands):
        if leaf in leaves_of(operand):
            yield from ((operand, inner) for inner in _inner(name, goal, fixed, place, now, expression.type))


def _inner(name: str, goal: Any, fixed: list[Any], place: int, now: str, kind: pa.DataType) -> Iterator[Any]:
    """Yields values of the argument at `place` with which a function may return `goal`.

    fixed: the values of the constant arguments, None for others; kind: the function's type.
    """
    if isinstance(goal, int):
        if name in _LENGTHS and 0 <= goal <= _MOST_LETTERS:
            yield now[:goal].ljust(goal, "a")
        elif name in ("instr", "locate", "position") and 0 < goal <= _MOST_LETTERS:
            sought = fixed[1 if name == "instr" else 0]
            yield "a" * (goal - 1) + sought if isinstance(sought, str) else None
        elif kind == DATE and name in _CASTS:
            yield _shown_day(goal)
        else:
            yield str(goal) if name in _CASTS else goal
    elif name in ("substring", "substr", "left", "right"):
        yield from _with_part(name, goal, fixed, now)
    elif name == "concat":
        before = "".join(each for each in fixed[:place] if isinstance(each, str))
        behind = "".join(each for each in fixed[place + 1 :] if isinstance(each, str))
        yield goal.removeprefix(before).removesuffix(behind)
    elif name == "split_part" and isinstance(fixed[2], int) and 0 < fixed[2] <= MOST_GOALS:
        parts = now.split(fixed[1]) if fixed[1] else [now]
        parts += [""] * (fixed[2] - len(parts))
        yield fixed[1].join([*parts[: fixed[2] - 1], goal, *parts[fixed[2] :]])
    else:
        yield goal[::-1] if name == "reverse" else goal


def _with_part(name: str, goal: str, fixed: list[Any], now: str) -> Iterator[str]:
    """Yields the row's text with `goal` at the place from which the function takes a part."""
    first = fixed[1] if isinstance(fixed[1], int) else 1
    if name == "right" or (name != "left" and first < 0):
        kept = -first if name != "right" else len(goal)
        yield now[: max(len(now) - kept, 0)] + goal
        return
    start = 0 if name == "left" else min(max(first - 1, 0), _MOST_LETTERS)
    yield now[:start].ljust(start, "a") + goal + now[start + len(goal) :]
    yield now[:start].ljust(start, "a") + goal


def _shown_day(days: int) -> str | None:
    try:
        return (_EPOCH + timedelta(days)).isoformat()
    except OverflowError:
        return None
