"""An explanation as a tree, and its text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

from rules_index.printable import escaped

MOST_TEXT = 160
"""The most letters of a text, or of a value, in a line."""
MOST_PARTS = 20
"""The most parts of one AND or OR that a text shows."""
_WORDS = {True: "true", False: "false", None: "NULL", "error": "error"}


@dataclass(frozen=True, slots=True)
class Change:
    """A column, the row's value in it, and one with which the rule would match."""

    column: str
    before: Any
    after: Any

    def as_dict(self) -> dict[str, Any]:
        """column, from and to."""
        return {"column": self.column, "from": self.before, "to": self.after}

    def __str__(self) -> str:
        return f"{self.column}: {shown(self.before)} -> {shown(self.after)}"


NearMiss = tuple[Change, ...]


@dataclass(frozen=True)
class Explanation:
    """A rule, or a part of one, on a row.

    text      the part as its author wrote it
    value     True, False, None for NULL, or "error" if evaluating it raised
    operator  "AND", "OR", "NOT", or "" for a predicate
    values    the row's values of the columns that a predicate reads, by column, without those that the row lacks
    computed  the values of the texts in a predicate that only Spark evaluates, formatted, by text
    stands_alone  whether the rule would match if this predicate alone had another truth value
    """

    text: str
    value: bool | str | None
    operator: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    computed: Mapping[str, str] = field(default_factory=dict)
    children: tuple[Explanation, ...] = ()
    stands_alone: bool = False
    rule_id: str | int | None = None
    seek: Callable[[], NearMiss | None] = field(default=lambda: None, repr=False, compare=False)

    @property
    def matched(self) -> bool:
        """Whether it is TRUE: of a whole rule, whether it matches the row."""
        return self.value is True

    @cached_property
    def near_miss(self) -> NearMiss | None:
        """The smallest change of one or two columns found with which the rule would have matched; it has been tried.
        None if the rule matches, or no such change was found. Computed on first use, and for whole rules only."""
        return self.seek()

    @property
    def predicates(self) -> list[Explanation]:
        """All predicates, in the order of the text."""
        found, waiting = [], [self]
        while waiting:
            part = waiting.pop()
            waiting += part.children[::-1]
            if not part.children:
                found.append(part)
        return found

    def as_dict(self) -> dict[str, Any]:
        """text, value, values and children."""
        return {
            "text": self.text,
            "value": self.value,
            "values": dict(self.values),
            "children": [child.as_dict() for child in self.children],
        }

    def __str__(self) -> str:
        lines = []
        if self.rule_id is not None:
            verdict = "matches" if self.matched else "does not match"
            lines.append(f"rule {escaped(self.rule_id)} {verdict}" + _reason(self.value))
        lines += _lines(self, "", "")
        if self.near_miss:
            lines.append("would match with " + ", and ".join(map(str, self.near_miss)))
        return "\n".join(lines)


def _reason(value: bool | str | None) -> str:
    return {None: ": it is NULL", "error": ": evaluating it raised an error"}.get(value, "")  # type: ignore[arg-type]


def _lines(part: Explanation, first: str, rest: str) -> list[str]:
    """Returns the lines of a part and, indented below it, of its children."""
    own = part.operator or _cut(" ".join(part.text.split()))
    line = f"{first}{_WORDS[part.value]:<5}  {own}"
    details = [f"{escaped(name)} = {shown(value)}" for name, value in part.values.items()]
    details += [f"{_cut(escaped(text))} = {escaped(value)}" for text, value in part.computed.items()]
    if details:
        line += f"   [{', '.join(details)}]"
    if part.stands_alone:
        line += "   <- to change this alone is enough"
    lines = [line]
    children, left_out = _parts_to_show(part)
    for number, child in enumerate(children, 1):
        is_last = number == len(children) and not left_out
        lines += _lines(child, rest + ("└─ " if is_last else "├─ "), rest + ("   " if is_last else "│  "))
    if left_out:
        counts = Counter(_WORDS[child.value] for child in left_out)
        listed = ", ".join(f"{count:,} {word}" for word, count in sorted(counts.items()))
        lines.append(f"{rest}└─ {len(left_out):,} more: {listed}")
    return lines


def _parts_to_show(part: Explanation) -> tuple[list[Explanation], list[Explanation]]:
    """The children that a text shows, and the others, both in the order of the text. Those that it is enough to change
    come before those that have the value of the whole, and these before others."""
    children = part.children
    if len(children) <= MOST_PARTS:
        return list(children), []

    def rank(number: int) -> tuple[bool, bool]:
        child = children[number]
        alone = child.stands_alone or any(each.stands_alone for each in child.predicates)
        return not alone, child.value != part.value

    chosen = set(sorted(range(len(children)), key=rank)[:MOST_PARTS])
    return (
        [child for number, child in enumerate(children) if number in chosen],
        [child for number, child in enumerate(children) if number not in chosen],
    )


def shown(value: Any) -> str:
    """Formats a value for a line, similar to SQL."""
    if value is None or isinstance(value, bool):
        return _WORDS[value].upper()
    if isinstance(value, str):
        return _cut(escaped("'" + value.replace("'", "''") + "'"))
    if isinstance(value, (bytes, bytearray)):
        return _cut(f"X'{value.hex()}'")
    if isinstance(value, (datetime, date, Decimal)):
        return str(value)
    if isinstance(value, Mapping):
        return _cut("{" + ", ".join(f"{name}: {shown(each)}" for name, each in value.items()) + "}")
    if isinstance(value, Sequence):
        return _cut("[" + ", ".join(map(shown, value)) + "]")
    return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"
