"""Random streams whose rows often meet, the joins and rules over them, and what plain loops say of the joined rows."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from pipelines.lake.folder_log import FolderLog

Row = dict[str, Any]
SECOND = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = datetime(2024, 3, 9, 23, 59, 50)
"""A few hours later New York sets its clocks forward."""
TIMES = {"timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"), "date": pa.date32()}
NAN, DAY = float("nan"), date(2024, 3, 10)
FAMILIES: dict[str, tuple[tuple[pa.DataType, ...], tuple[Any, ...]]] = {
    "integers": ((pa.int8(), pa.int16(), pa.int32(), pa.int64()), (1, -1, 100, 0)),
    "decimals": ((pa.decimal128(5, 2), pa.decimal128(7, 1), pa.int32(), pa.decimal128(25, 3)), (1, 2, Decimal("1.5"))),
    "doubles": ((pa.float64(), pa.float32(), pa.int32()), (NAN, -0.0, 0.0, 1.0, math.inf)),
    "texts": ((pa.string(),), ("", "a", "A", "ä", "a ")),
    "flags": ((pa.bool_(),), (True, False)),
    "bytes": ((pa.binary(),), (b"", b"a", b"\x00")),
    "dates": ((pa.date32(), pa.timestamp("us")), (DAY, date(1969, 1, 1), datetime(2024, 3, 10, 1))),
    "instants": ((pa.timestamp("us", "UTC"),), (datetime(2024, 3, 10, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC))),
}


@dataclass(frozen=True)
class Rule:
    """A rule's text, and its truth on a joined row: a row of each stream by its name."""

    text: str
    holds: Callable[[dict[str, Row]], bool | None]


class Scenario:
    """Streams, one or two joins over them, rules, and batches in which rows arrive."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = random.Random(seed)
        self.zone = draw.choice(("UTC", "UTC", "America/New_York", "Asia/Kolkata"))
        self.names = [f"s{number}" for number in range(draw.choice((2, 2, 3)))]
        kinds = ("timestamp", "timestamp", "timestamp_ntz", "date")
        self.times = {name: draw.choice(kinds) for name in self.names}
        self.unit = (86_400 if "date" in self.times.values() else draw.choice((1, 1800))) * SECOND
        self.families = [draw.choice(list(FAMILIES)) for _ in range(draw.choice((1, 1, 2)))]
        self.types = {name: [draw.choice(FAMILIES[f][0]) for f in self.families] for name in self.names}
        self.joins = {
            f"j{number}": {name: draw.choice((0, 1, 1, 2, 4)) * self.unit for name in self.names}
            for number in range(draw.choice((1, 1, 2)))
        }
        self.methods = {name: draw.choice(("batch", "batch", "pdfa")) for name in self.joins}
        self.rows: dict[str, list[Row]] = {name: [] for name in self.names}

    def streams(self, **settings: Any) -> dict[str, Any]:
        """The configuration's streams."""
        return {name: {"source": f"lake/{name}", "event_time": "T", **settings} for name in self.names}

    def settings(self, **settings: Any) -> dict[str, Any]:
        """The configuration's joins."""
        on = [f"K{place}" for place in range(len(self.families))]
        return {
            join: {
                "streams": self.names,
                "on": on,
                "window": {name: f"{size} us" for name, size in window.items()},
                "method": self.methods[join],
                **settings,
            }
            for join, window in self.joins.items()
        }

    def arriving(self, name: str, most: int) -> pa.Table:
        """Further rows of a stream, which it keeps in mind."""
        first = len(self.rows[name])
        rows = [self._row(name, first + number) for number in range(self.draw.randint(0, most))]
        self.rows[name] += rows
        columns = {"id": pa.array([row["id"] for row in rows], pa.int32())}
        columns["t"] = pa.array([row["t"] for row in rows], TIMES[self.times[name]])
        for place, kind in enumerate(self.types[name]):
            columns[f"k{place}"] = pa.array([row["keys"][place] for row in rows], kind)
        columns["v"] = pa.array([row["v"] for row in rows], pa.int32())
        columns["w"] = pa.array([row["w"] for row in rows], pa.string())
        columns["s"] = pa.array([{"x": row["v"]} for row in rows], pa.struct([("x", pa.int32())]))
        return pa.table(columns)

    def _row(self, name: str, number: int) -> Row:
        draw = self.draw
        keys = []
        for family, kind in zip(self.families, self.types[name], strict=True):
            value = draw.choice((None, *FAMILIES[family][1]) if draw.random() < 0.3 else FAMILIES[family][1][:2])
            keys.append(_as(value, kind))
        return {
            "id": number,
            "t": self._time(name),
            "keys": keys,
            "v": draw.choice((None, 0, 1, 2, 3, 5)),
            "w": draw.choice((None, "x", "y", "xyz")),
        }

    def _time(self, name: str) -> Any:
        if self.draw.random() < 0.06:
            return None
        steps = self.draw.randint(0, 12)
        if self.times[name] == "date":
            return date(2024, 3, 9) + timedelta(days=steps)
        moment = START + timedelta(microseconds=steps * self.unit + self.draw.choice((0, 0, 1)))
        return moment.replace(tzinfo=UTC) if self.times[name] == "timestamp" else moment

    def instant(self, row: Row) -> int | None:
        """Microseconds since 1970 of a row's time; a time in the hour that is left out is an hour later."""
        time = row["t"]
        if time is None:
            return None
        if not isinstance(time, datetime):
            time = datetime(time.year, time.month, time.day)
        if time.tzinfo is None:
            time = time.replace(tzinfo=ZoneInfo(self.zone))
        return round((time.astimezone(UTC) - EPOCH) / timedelta(microseconds=1))

    def joined(self, join: str, late: frozenset[tuple[str, int]] = frozenset()) -> Iterator[dict[str, Row]]:
        """All joined rows, of the rows that are not late."""
        window = self.joins[join]
        kept = {
            name: [row for row in rows if (name, row["id"]) not in late and _joins(row)]
            for name, rows in self.rows.items()
        }
        for rows in itertools.product(*(kept[name] for name in self.names)):
            times = [self.instant(row) for row in rows]
            latest = max(time for time in times if time is not None)
            if len({tuple(map(_same, row["keys"])) for row in rows}) == 1 and all(
                time is not None and time >= latest - window[name] for name, time in zip(self.names, times, strict=True)
            ):
                yield dict(zip(self.names, rows, strict=True))

    def rule(self) -> Rule:
        """A random rule."""
        parts = [self._predicate() for _ in range(self.draw.choice((1, 2, 3)))]
        word = self.draw.choice((" AND ", " OR "))
        text = word.join(f"({part.text})" for part in parts)

        def holds(rows: dict[str, Row]) -> bool | None:
            truths = [part.holds(rows) for part in parts]
            decides = word == " OR "
            if decides in truths:
                return decides
            return None if None in truths else not decides

        return Rule(text, holds)

    def _predicate(self) -> Rule:
        one, other = self.draw.sample(self.names, 2)
        least, letter = self.draw.randint(0, 4), self.draw.choice("xy")
        choices = (
            Rule("TRUE", lambda rows: True),
            Rule(f"{one}.v > {least}", lambda rows: _if(rows[one]["v"], lambda v: v > least)),
            Rule(f"{one}.s.x <= {least}", lambda rows: _if(rows[one]["v"], lambda v: v <= least)),
            Rule(f"{one}.v IS NULL", lambda rows: rows[one]["v"] is None),
            Rule(f"{one}.w = '{letter}'", lambda rows: _if(rows[one]["w"], lambda w: w == letter)),
            Rule(f"{one}.w LIKE 'x%'", lambda rows: _if(rows[one]["w"], lambda w: w.startswith("x"))),
            Rule(f"{one}.v < {other}.v", lambda rows: _both(rows[one]["v"], rows[other]["v"], lambda a, b: a < b)),
            Rule(
                f"{one}.v + {other}.v = 5",
                lambda rows: _both(rows[one]["v"], rows[other]["v"], lambda a, b: a + b == 5),
            ),
            Rule(f"{one}.w <=> {other}.w", lambda rows: rows[one]["w"] == rows[other]["w"]),
        )
        return self.draw.choice(choices)


def identified(rows: dict[str, Row], ids: list[str]) -> tuple[Any, ...]:
    """A joined row with its rules, to be counted."""
    return (*(rows[name]["id"] for name in sorted(rows)), *ids)


def counted(rows: list[Row], names: list[str]) -> Counter[tuple[Any, ...]]:
    """The joined rows of a table."""
    return Counter((*(row[name]["id"] for name in sorted(names)), *row["rule_ids"]) for row in rows)


def _joins(row: Row) -> bool:
    return row["t"] is not None and None not in row["keys"]


def _if(value: Any, holds: Callable[[Any], bool]) -> bool | None:
    return None if value is None else holds(value)


def _both(one: Any, other: Any, holds: Callable[[Any, Any], bool]) -> bool | None:
    return None if one is None or other is None else holds(one, other)


def _as(value: Any, kind: pa.DataType) -> Any:
    """A value as a column of some type may have it."""
    if value is None:
        return None
    if pa.types.is_integer(kind):
        return None if isinstance(value, float) and not math.isfinite(value) else int(value)
    if pa.types.is_decimal(kind):
        return Decimal(value).quantize(Decimal(1).scaleb(-kind.scale))
    if pa.types.is_date(kind):
        return value.date() if isinstance(value, datetime) else value
    if pa.types.is_timestamp(kind) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    return value


def _same(value: Any) -> Any:
    """One value for all that SQL finds equal."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    return value


class Killed(BaseException):
    """The process ends here."""


def let_die(patch: pytest.MonkeyPatch, deadly: list[int]) -> None:
    """Kill the process before or after the write whose number, counted down in `deadly`, is reached."""

    def dying(write: Any) -> Any:
        def written(*arguments: Any) -> Any:
            deadly[0] -= 1
            if deadly[0] == 0:
                raise Killed
            done = write(*arguments)
            if deadly[0] == 1:
                deadly[0] = 0
                raise Killed
            return done

        return written

    patch.setattr(FolderLog, "_put", dying(FolderLog._put))
