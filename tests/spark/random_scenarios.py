"""Random streams, windows and orders of arrival, and what Spark's own join says of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from pipelines.compile import compile_scopes
from tests.lakes import write_rules

SECOND = 1_000_000
START = datetime(2024, 3, 9, 23, 59, 50)
TYPES = {
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "date": pa.date32(),
}
KEYS = (pa.int32(), pa.int64(), pa.decimal128(12, 1), pa.float64())


class Scenario:
    """Streams of a few rows whose keys and times often meet, rules over them, and batches in which they arrive."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = random.Random(seed)
        self.names = [f"s{number}" for number in range(draw.choice((2, 2, 2, 3, 3, 4, 6)))]
        kinds = ("timestamp", "timestamp", "timestamp_ntz", "date")
        self.times = {name: draw.choice(kinds) for name in self.names}
        days = "date" in self.times.values()
        unit = 86_400 * SECOND if days else SECOND
        self.span = draw.choice((2, 5, 12))
        self.windows = [{name: draw.choice((0, 1, 1, 2, 4)) * unit for name in self.names} for _ in range(2)]
        self.unit = unit
        self.texts = draw.random() < 0.4
        self.keys = {name: pa.string() if self.texts else draw.choice(KEYS) for name in self.names}
        self.rows = {name: draw.choice((0, 3, 8, 14) if len(self.names) > 3 else (3, 12, 30)) for name in self.names}
        self.rules = [
            {f"r{number}": self._rule() for number in range(draw.choice((1, 3, 8)))} for _ in range(draw.choice((1, 2)))
        ]

    def streams(self) -> dict[str, Any]:
        """The configuration's streams; some take a file at a time."""
        sizes = {name: self.draw.choice((1, "1g")) for name in self.names}
        return {
            name: {"source": f"lake/{name}", "event_time": "t", "max_bytes_per_batch": sizes[name]}
            for name in self.names
        }

    def joins(self, methods: Sequence[str] = ("batch", "batch")) -> dict[str, Any]:
        """The configuration's joins, one or two over the same streams and keys, by these methods."""
        windows = [{name: f"{size} us" for name, size in window.items()} for window in self.windows]
        return {
            f"j{number}": {"streams": self.names, "on": ["k"], "window": windows[number], "method": methods[number]}
            for number in range(len(self.rules))
        }

    def lake(self, new_workspace: Any, joins: Mapping[str, Any]) -> Any:
        """A lake with these joins, whose rules are compiled, and streams without a row."""
        workspace = new_workspace(self.streams(), joins=joins, rules={"time_zone": "America/New_York"})
        for name in self.names:
            write_deltalake(workspace.configuration.streams[name].source, self.table(name, 0))
        for name, rules in zip(joins, self.rules, strict=True):
            write_rules(workspace, [(f"{name} {rule}", name, text) for rule, text in rules.items()])
        found = compile_scopes(workspace, list(joins))
        assert [(each.error, each.rejects) for each in found] == [(None, 0)] * len(joins)
        return workspace

    def table(self, name: str, rows: int) -> pa.Table:
        """Rows of a stream, some of which repeat, or have no key or no time."""
        draw = self.draw
        keys = [None, 1, 1, 2, 3] if not self.texts else [None, "a", "a", "b", ""]
        times = [self._time(name) for _ in range(rows)]
        columns = {
            "k": pa.array([draw.choice(keys) for _ in range(rows)], pa.string()).cast(self.keys[name])
            if self.texts
            else pa.array([draw.choice(keys) for _ in range(rows)], pa.int32()).cast(self.keys[name]),
            "t": pa.array(times, TYPES[self.times[name]]),
            "v": pa.array([draw.choice((None, 0, 1, 2, 3, 5)) for _ in range(rows)], pa.int32()),
            "w": pa.array([draw.choice((None, "x", "y", "xyz")) for _ in range(rows)], pa.string()),
        }
        return pa.table(columns)

    def arrivals(self) -> Iterator[dict[str, pa.Table]]:
        """All rows, in batches of any sizes and order; each batch has some of some streams."""
        parts = [(name, self.table(name, self.draw.randint(0, rows))) for name, rows in self.rows.items() for _ in "12"]
        self.draw.shuffle(parts)
        while parts:
            taken, parts = parts[: self.draw.choice((1, 2, 4))], parts[self.draw.choice((1, 2, 4)) :]
            batch: dict[str, pa.Table] = {}
            for name, table in taken:
                batch[name] = pa.concat_tables([batch[name], table]) if name in batch else table
            yield batch

    def sql(self, lake: str, number: int, prefix: str) -> str:
        """Every row of one of the joins with the rules that it satisfies, of which there is one at least."""
        times = [f"unix_micros(CAST({name}.t AS TIMESTAMP))" for name in self.names]
        latest = f"greatest({', '.join(times)})"
        where = [f"{self.names[0]}.k = {name}.k" for name in self.names[1:]]
        window = self.windows[number]
        where += [f"{time} >= {latest} - {window[name]}" for name, time in zip(self.names, times, strict=True)]
        rules = ", ".join(f"IF({text}, '{prefix}{rule}', NULL)" for rule, text in self.rules[number].items())
        source = ", ".join(f"delta.`{lake}/{name}` {name}" for name in self.names)
        structs = ", ".join(f"struct({name}.*) AS {name}" for name in self.names)
        joined = f"SELECT {structs}, sort_array(array_compact(array({rules}))) AS rule_ids FROM {source}"
        return f"SELECT * FROM ({joined} WHERE {' AND '.join(where)}) WHERE size(rule_ids) > 0"

    def append(self, workspace: Any, batch: Any) -> None:
        """Append rows that arrive, by stream, to its source; now and then compact one of the sources."""
        for name, table in batch.items():
            write_deltalake(workspace.configuration.streams[name].source, table, mode="append")
        if self.draw.random() < 0.2:
            name = self.draw.choice(self.names)
            DeltaTable(workspace.configuration.streams[name].source).optimize.compact()

    def _time(self, name: str) -> Any:
        if self.draw.random() < 0.06:
            return None
        steps = self.draw.randint(0, self.span)
        if self.times[name] == "date":
            return date(2024, 3, 9) + timedelta(days=steps)
        moment = START + timedelta(microseconds=steps * self.unit + self.draw.choice((0, 0, 1)))
        return moment.replace(tzinfo=UTC) if self.times[name] == "timestamp" else moment

    def _rule(self) -> str:
        draw = self.draw
        parts = [self._predicate() for _ in range(draw.choice((1, 2, 2, 3)))]
        return draw.choice((" AND ", " AND ", " OR ")).join(f"({part})" for part in parts)

    def _predicate(self) -> str:
        draw = self.draw
        one, other = draw.sample(self.names, 2)
        choices = (
            "TRUE",
            f"{one}.v > {draw.randint(0, 4)}",
            f"{one}.v IS NULL",
            f"{one}.w = '{draw.choice(('x', 'y'))}'",
            f"{one}.w LIKE 'x%' AND {other}.v IN (1, 2)",
            f"{one}.v < {other}.v",
            f"{one}.v + {other}.v = 5",
            f"NOT ({one}.v = 1 OR {other}.w = 'x')",
            f"soundex({one}.w) = soundex('xyz')",
            f"concat({one}.w, {other}.w) = 'xy'",
            f"{one}.w <=> {other}.w",
        )
        return draw.choice(choices)


def counted(rows: Any) -> Counter[str]:
    """Rows of a frame with equal ones counted; by their text, for rows with lists and NaN."""
    return Counter(repr(row) for row in rows.collect())
