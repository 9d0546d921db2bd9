"""Random pairs of rules over plain columns of every type, and rows of all their cells, from a seed."""

from __future__ import annotations

import datetime
import itertools
import math
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tests.random_rows import ARROW, VALUES, WHOLE, quoted

KINDS = [name for name in VALUES if name in ARROW]


class Pairs:
    """Two rules that are often near to each other, over two or three columns of few constants each."""

    def __init__(self, seed: int) -> None:
        self.choice = random.Random(seed)
        self.kinds = {name: self.choice.choice(KINDS) for name in ("x", "y", "z")[: self.choice.choice((1, 2, 2, 3))]}
        self.constants = {name: self._constants(kind) for name, kind in self.kinds.items()}

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return pa.schema([(name, ARROW[kind]) for name, kind in self.kinds.items()])

    def rules(self) -> tuple[str, str]:
        """p and q; q is p loosened as often as not."""
        alternatives = [self._alternative() for _ in range(self.choice.choice((1, 1, 2, 3)))]
        if self.choice.random() < 0.35:
            others = [self._alternative() for _ in range(self.choice.choice((1, 2, 3)))]
        else:
            others = [self._loosened(each) for each in alternatives]
            others += [self._alternative() for _ in range(self.choice.choice((0, 1, 2)))]
            self.choice.shuffle(others)
        return self._text(alternatives), self._text(others)

    def cells(self) -> pa.Table:
        """Rows with every combination of values of all regions, NULL included."""
        pools = [[*dict.fromkeys(around(self.constants[name], kind), None), None] for name, kind in self.kinds.items()]
        columns = zip(*itertools.product(*pools), strict=True)
        return pa.table([pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=True)],
                        schema=self.schema)  # fmt: skip

    def _constants(self, kind: str) -> list[Any]:
        values = [value for value in VALUES[kind] if not isinstance(value, float) or abs(value) < 1e300]
        # Python has no day before the first and none after the last, Arrow has
        values = [value for value in values if getattr(value, "year", 2024) not in (1, 9999)]
        return sorted(self.choice.sample(values, min(len(values), self.choice.choice((1, 2, 3, 4)))))

    def _text(self, alternatives: list[list[str]]) -> str:
        parts = [" AND ".join(f"({predicate})" for predicate in each) for each in alternatives]
        text = " OR ".join(f"({part})" for part in parts)
        return f"NOT (NOT ({text}))" if self.choice.random() < 0.1 else text

    def _alternative(self) -> list[str]:
        return [self._predicate(self.choice.choice(list(self.kinds))) for _ in range(self.choice.choice((1, 2, 2, 3)))]

    def _loosened(self, predicates: list[str]) -> list[str]:
        found = [p if self.choice.random() < 0.6 else f"{p} OR {self._predicate(p[0])}" for p in predicates]
        if len(found) > 1 and self.choice.random() < 0.4:
            found.pop(self.choice.randrange(len(found)))
        return found

    def _predicate(self, name: str) -> str:
        kind = self.kinds[name]
        one, other = (literal(self.choice.choice(self.constants[name]), kind, self.choice) for _ in range(2))
        forms = ["{0} {op} {1}"] * 6 + ["{0} IN ({1}, {2})", "{0} NOT IN ({1}, {2})", "{0} BETWEEN {1} AND {2}"]
        forms += ["{0} IS NULL", "{0} IS NOT NULL", "{0} <=> {1}", "NOT ({0} <=> {1})", "{0} IN ({1}, NULL)"]
        forms += ["{0} {op} {1} IS NOT TRUE", "{0} <> {1}"]
        if kind == "string":
            forms += ["{0} LIKE {pattern}", "{0} NOT LIKE {pattern}"] * 2
        if kind == "boolean":
            forms += ["{0}", "NOT {0}"] * 2
        # x alone, so that the first letter names the column
        text = self.choice.choice(forms)
        prefix = self.choice.choice(self.constants[name]) if kind == "string" else ""
        pattern = quoted("".join("\\" + c if c in "%_\\" else c for c in prefix) + "%", self.choice)
        operator = self.choice.choice(("=", "<", "<=", ">", ">=", "<>"))
        text = text.replace("NOT (", f"{name} IS NULL AND NOT (") if text.startswith("NOT (") else text
        text = text.replace("NOT {0}", "{0} = FALSE")
        return text.format(name, one, other, op=operator, pattern=pattern)


def literal(value: Any, kind: str, choice: random.Random) -> str:
    """A literal of exactly this value."""
    if kind in WHOLE:
        return f"{value}L"
    if kind in ("float", "double"):
        return f"{value!r}D" if kind == "double" else f"float('{value!r}')"
    if kind.startswith("decimal"):
        return f"{value:f}BD"
    if kind == "string":
        return quoted(value, choice)
    if kind == "binary":
        return f"X'{value.hex()}'"
    if kind == "boolean":
        return str(value).upper()
    if kind == "date":
        return f"DATE'{value.isoformat()}'"
    plain = value.replace(tzinfo=None).isoformat(sep=" ")
    return f"TIMESTAMP'{plain}Z'" if kind == "timestamp" else f"TIMESTAMP_NTZ'{plain}'"


def around(values: list[Any], kind: str) -> Iterator[Any]:
    """The values, and of each region between, below and above them one."""
    yield from values
    for value in values:
        yield from next_to(value, kind)
    if kind in ("float", "double"):
        yield from (-math.inf, math.inf, math.nan)
    if kind in ("string", "binary"):
        yield "" if kind == "string" else b""


def next_to(value: Any, kind: str) -> Iterator[Any]:
    """The values of a type right below and right above one."""
    if kind in WHOLE:
        most = 2 ** (WHOLE[kind] - 1)
        yield from (each for each in (value - 1, value + 1) if -most <= each < most)
    elif kind in ("float", "double"):
        number = {"float": np.float32, "double": np.float64}[kind]
        with np.errstate(over="ignore"):
            yield from (float(np.nextafter(number(value), number(way))) for way in (-np.inf, np.inf))
    elif kind.startswith("decimal"):
        digits, scale = ARROW[kind].precision, ARROW[kind].scale
        sign, figures, _ = value.as_tuple()
        unit = (-1 if sign else 1) * int("".join(map(str, figures)))
        for each in (unit - 1, unit + 1):
            if abs(each) < 10**digits:
                yield Decimal((each < 0, tuple(map(int, str(abs(each)))), -scale))
    elif kind == "string":
        yield value + "\0"
        yield value + "\U0010ffff"
        if value and value[-1] != "\U0010ffff":
            # the first string behind those that begin with the value, and what comes right after
            yield value[:-1] + chr(ord(value[-1]) + 1)
            yield value[:-1] + chr(ord(value[-1]) + 1) + "\0"
    elif kind == "binary":
        yield value + b"\0"
    elif kind != "boolean":
        step = datetime.timedelta(days=1) if kind == "date" else datetime.timedelta(microseconds=1)
        yield from (value - step, value + step)
    else:
        yield from (False, True)
