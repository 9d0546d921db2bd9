"""Random streams and rules for the tests of joins, and the join that compares every combination of rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from rules_index.index.compiled import CompiledRules
from rules_index.join.joined_batches import Piece
from rules_index.join.window_partners import Side

STREAMS = ("alpha", "Beta", "c.d", "delta", "e", "f")
COLUMNS = [
    ("x", pa.int32()),
    ("y", pa.int64()),
    ("f", pa.float64()),
    ("s", pa.string()),
    ("d", pa.decimal128(9, 2)),
    ("day", pa.date32()),
    ("flag", pa.bool_()),
    ("n", pa.struct([("z", pa.int32())])),
]
FIELDS = pa.struct(COLUMNS)

Joined = dict[tuple[int, ...], list[int]]


class Draw:
    """Random rules over random rows of some streams."""

    def __init__(self, seed: int, streams: int) -> None:
        self.random = np.random.default_rng(seed)
        self.streams = STREAMS[:streams]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, FIELDS) for name in self.streams])

    def side(self, rows: int, keys: int, span: int) -> Side:
        """Rows with few keys and times, some of them without."""
        numbers = self.random.integers(-2, 4, (len(COLUMNS), rows)).tolist()
        nulls = (self.random.random((len(COLUMNS), rows)) < 0.15).tolist()
        make: dict[str, Any] = {
            "f": lambda v: [0.0, -0.0, float("nan"), 1.5, 2.0, -1.0][v],
            "s": lambda v: ["", "a", "ab", "b%", "é", "B"][v],
            "d": lambda v: pa.scalar(v, pa.decimal128(9, 2)).as_py(),
            "flag": lambda v: v > 0,
            "n": lambda v: {"z": v},
        }
        columns = {
            name: pa.array([None if n else make.get(name, int)(v) for v, n in zip(*of, strict=True)], data_type)
            for (name, data_type), of in zip(COLUMNS, zip(numbers, nulls, strict=True), strict=True)
        }
        table = pa.table(columns)
        if self.random.random() < 0.3:
            keys = 1
        return Side(
            table,
            self.random.integers(-1 if self.random.random() < 0.5 else 0, keys, rows),
            self.random.integers(0, span, rows) - span // 2,
            self.random.random(rows) < self.random.choice([0.0, 0.3, 1.0, 1.0]),
            self.random.random(rows) < self.random.choice([0.6, 1.0, 1.0]),
        )

    def rule(self) -> str:
        kind = self.random.random()
        if kind < 0.05:
            return str(self.random.choice(["true", "1 = 1", "false"]))
        if kind < 0.15:
            # more conjunctions than are distributed: the ORs become shared disjunctions
            return " AND ".join(
                "(" + " OR ".join(self._and(self.random.integers(1, 3)) for _ in range(7)) + ")" for _ in range(2)
            )
        if kind < 0.4:
            return " OR ".join(self._and(self.random.integers(1, 4)) for _ in range(self.random.integers(2, 4)))
        if kind < 0.5:
            return f"NOT ({self._and(2)} OR {self._and(1)})"
        return self._and(self.random.integers(1, 5))

    def _and(self, count: int) -> str:
        return "(" + " AND ".join(self._predicate() for _ in range(count)) + ")"

    def _column(self, name: str) -> str:
        stream = str(self.random.choice(self.streams))
        return f"`{stream}`.{name}"

    def _predicate(self) -> str:
        choose, number = self.random.choice, lambda: int(self.random.integers(-2, 4))
        kind = self.random.random()
        if kind < 0.2:
            name = str(choose(["x", "y", "f", "s", "d", "day", "flag"]))
            return f"{self._column(name)} {choose(['<', '<=', '=', '<>', '<=>'])} {self._column(name)}"
        if kind < 0.25:
            return f"{self._column('x')} + {self._column('y')} > {number()}"
        return str(
            choose(
                [
                    f"{self._column('x')} {choose(['<', '>=', '=', '<>'])} {number()}",
                    f"{self._column('y')} BETWEEN {number()} AND {number()}",
                    f"{self._column('x')} IN ({number()}, {number()}, NULL)",
                    f"{self._column('y')} NOT IN ({number()}, {number()})",
                    f"{self._column('f')} {choose(['<', '>', '='])} {number()}.5",
                    f"{self._column('s')} {choose(['=', '<', '<>'])} '{choose(['', 'a', 'ab', 'é'])}'",
                    f"{self._column('s')} LIKE '{choose(['a%', '%b%', '_'])}'",
                    f"{self._column('d')} > {number()}.25",
                    f"{self._column('day')} > DATE'1970-01-02'",
                    f"{self._column('flag')}",
                    f"{self._column('n.z')} = {number()}",
                    f"{self._column(str(choose(['x', 's', 'f', 'n'])))} IS {choose(['', 'NOT '])}NULL",
                ]
            )
        )


def brute_force(compiled: CompiledRules, streams: Sequence[str], sides: Sequence[Side], windows: list[int]) -> Joined:
    """Every combination of rows that the contract joins, and the rules that match it; those without rules left out."""
    found = []
    for rows in product(*(np.flatnonzero(side.keys >= 0).tolist() for side in sides)):
        keys = [side.keys[row] for side, row in zip(sides, rows, strict=True)]
        times = [int(side.times[row]) for side, row in zip(sides, rows, strict=True)]
        t = max(times)
        if len(set(keys)) > 1 or any(not t - w <= time <= t for time, w in zip(times, windows, strict=True)):
            continue
        anchor = times.index(t)
        is_new = any(side.new[row] for side, row in zip(sides, rows, strict=True))
        if is_new and sides[anchor].owned[rows[anchor]]:
            found.append(rows)
    chosen = np.array(found, np.int64).reshape(-1, len(sides))
    table = pa.table(
        {name: structs(side.rows, chosen[:, i]) for i, (name, side) in enumerate(zip(streams, sides, strict=True))}
    )
    offsets, ordinals, _ = compiled.match_ordinals(table)
    return {
        rows: ordinals[offsets[i] : offsets[i + 1]].tolist()
        for i, rows in enumerate(found)
        if offsets[i + 1] > offsets[i]
    }


def structs(rows: pa.Table, chosen: np.ndarray) -> pa.Array:
    """Some rows as a STRUCT column."""
    columns = rows.take(pa.array(chosen)).combine_chunks()
    arrays = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in columns.columns]
    return pa.StructArray.from_arrays(arrays, fields=list(rows.schema))


def joined_of(pieces: Sequence[Piece]) -> Joined:
    """The joined rows of pieces, none of which stands twice."""
    found: Joined = {}
    for piece in pieces:
        for i, rows in enumerate(zip(*(each.tolist() for each in piece.rows), strict=True)):
            assert rows not in found
            found[rows] = piece.ordinals[piece.offsets[i] : piece.offsets[i + 1]].tolist()
    return found
