"""Mistakes in the days that times are compared with, and in patterns of dates and times."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, timedelta

import pyarrow as pa

from rules_index.implication.kinds import MIDNIGHT, TIME_PATTERN
from rules_index.implication.messages import quoted
from rules_index.implication.mistakes.mistake import Mistake
from rules_index.implication.mistakes.parsed_rule import ConstantComparison, ParsedRule
from rules_index.language.coercion import DATE, STRING
from rules_index.language.tokens import words

_DAY = re.compile(r"\s*(\d{4})-(\d{1,2})-(\d{1,2})\s*")
_WITH_PATTERN = words("""
    to_date try_to_date to_timestamp to_timestamp_ltz to_timestamp_ntz try_to_timestamp date_format from_unixtime
    unix_timestamp to_unix_timestamp""")
"""The functions whose second argument is a pattern of dates and times."""
_QUOTED = re.compile(r"'[^']*'")
_FIRST = date(1970, 1, 1)
_LAST = date(9999, 12, 31)


def midnights(rule: ParsedRule) -> Iterator[Mistake]:
    """`seen_at <= DATE'2026-01-31'`: beside a time, a day is its first moment. Only for columns that are known to have
    times of day."""
    for each in rule.comparisons:
        leaf, known = rule.leaf(each.subject), rule.known(each.subject)
        if leaf is None or known is None or not (pa.types.is_timestamp(leaf.type) and known.has_times):
            continue
        day = _day_of(each)
        if day is None or day >= _LAST or each.operator not in ("<=", "=", "<=>", "<>"):
            continue
        shown, constant = rule.words(each.subject), rule.words(each.constant_node)
        if each.operator == "<=":
            left_out = "all later times of that day are left out. To include the day, write"
            instead = f"{shown} < DATE'{day + timedelta(days=1)}'"
        else:
            left_out = "no later time of that day is equal to it. To compare days, write"
            instead = f"CAST({shown} AS DATE)"
        message = f"{shown} has times of day, and {constant} is the midnight with which that day begins: {left_out} "
        yield rule.mistake(MIDNIGHT, each.node, f"{message}{quoted(instead)}.")


def patterns(rule: ParsedRule) -> Iterator[Mistake]:
    """`to_date(s, 'dd.mm.yyyy')`: a pattern with the minute in place of the month, the month in place of the minute, or
    hours that count to 12 without the half of the day."""
    for node in rule.of("call"):
        if node.value not in _WITH_PATTERN or len(node.children) < 2:
            continue
        pattern = node.children[1]
        constant = rule.constant(pattern)
        advice = _advice_on(_QUOTED.sub("", str(constant.value))) if constant is not None else None
        if advice is not None:
            yield rule.mistake(TIME_PATTERN, pattern, f"In the pattern {rule.words(pattern)}, {advice}")


def _advice_on(pattern: str) -> str | None:
    """What to write in place of a letter that means something else; None if the letters go together."""
    letters = set(pattern)
    if "m" in letters and not letters & set("HhKkM") and letters & set("yud"):
        return "mm is the minute: write MM for the month."
    if re.search(r"[HhKk]+[^A-Za-z]?MM?(?!M)", pattern):
        return "MM behind the hour is the month: write mm for the minute."
    if letters & set("hK") and "a" not in letters:
        return "hh counts to 12 only: write HH, or add a for AM and PM."
    return None


def _day_of(each: ConstantComparison) -> date | None:
    """The day that a constant names without a time of day; None for other constants."""
    if each.constant.type == DATE and each.constant_node.kind == "literal":
        number = int(each.constant.value)
        return _FIRST + timedelta(days=number) if 0 <= number <= (_LAST - _FIRST).days else None
    parts = _DAY.fullmatch(str(each.constant.value)) if each.constant.type == STRING else None
    try:
        return date(*map(int, parts.groups())) if parts is not None else None
    except ValueError:
        return None
