"""Matches the rules of a join with batches of its streams: joined rows are built only where a conjunction can hold.

The rows of each side are matched with the distinct parts (local conjuncts) that conjunctions have on its stream. The
rows on which a part holds form a list, ordered by key and time. A conjunction's joined rows are found by searching in
its lists, beginning with the shortest one, so that pairs of rows that satisfy no rule are never formed (Wang and
Kitsuregawa, section 3.2: the result of a search is the intersection of the streams' results; here rows are intersected
in place of rules).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import numpy as np
import pyarrow as pa

from rules_index.domains.region_codes import Regions
from rules_index.errors import RulesIndexError
from rules_index.index.build import SAMPLE_ROWS, build
from rules_index.index.code_matrix import CHUNK_ROWS, code_matrix
from rules_index.index.compiled import CompiledRules
from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.index.engine import Engine
from rules_index.join.candidates import Checks, part_checks
from rules_index.join.joined_batches import Matcher, Piece
from rules_index.join.local_conjuncts import NOTHING, Split, split
from rules_index.join.plan import Plan, make_plan
from rules_index.join.residual_predicates import AcrossTests, AcrossValues
from rules_index.join.streams import Owners, find_owners, side_columns
from rules_index.join.window_partners import OrderedRows, Side, order_rows, place_rows
from rules_index.language.typed import Expression, Leaf, leaves_of

if TYPE_CHECKING:
    from rules_index.join.pdfa.row_by_row import RowByRow

Method = Literal["batch", "pdfa"]
"""How joined rows are found: from lists of the rows on which each part holds, or row by row as in the paper."""
PIECE = 1 << 20
"""The most pairs of a joined row and a conjunction that a piece is made from, unless a single joined row has more."""
GROWTH = 8
"""A plan that was made from too few rows is made again for a batch with this many times more rows."""


@dataclass
class JoinIndex:
    """The rules of one join, divided by stream.

    compiled  the rules, over one STRUCT column per stream
    owners    the stream of each of their attributes
    """

    compiled: CompiledRules
    owners: Owners
    _split: Split
    _checks: Checks
    _tests: AcrossTests
    _coders: tuple[_Coder, ...]
    _plan: Plan | None = field(default=None)
    _row_by_row: RowByRow | None = field(default=None)
    _alone: dict[int, Engine] = field(default_factory=dict)

    @classmethod
    def of(cls, compiled: CompiledRules, streams: Sequence[str]) -> JoinIndex:
        """Makes an index of the rules of a join; the sides of `match` must come in the order of `streams`.

        compiled: over a schema with one STRUCT column per stream, named as the stream, and, if it was compiled with an
        event time, that of joined rows, a timestamp in microseconds. Raises `RulesIndexError` for fewer than two or
        more than six streams, and for rules that name a column of none of them, other than the event time that they
        were compiled with.
        """
        owners = find_owners(compiled, streams)
        arrays = compiled.index.arrays
        conjunctions = Conjunctions(**{name: arrays[name] for name in Conjunctions.__dataclass_fields__})
        parts = split(conjunctions, owners.stream_of, len(streams))
        coders = tuple(_Coder.of(compiled, each.attributes.tolist()) for each in parts.parts)
        return cls(compiled, owners, parts, part_checks(parts), AcrossTests(parts, owners), coders)

    def inputs(self, stream: str) -> tuple[Leaf, ...]:
        """The inputs that `match` needs of a stream's rows: the columns that rules read, by their names within the
        joined row (`stream.column`), and those that Spark derives from the stream's rows alone (`Leaf.text`)."""
        return self.owners.leaves[self.owners.streams.index(stream)]

    @property
    def exact(self) -> bool:
        """Whether `match` returns exactly the rules that each joined row satisfies, because none is `uncertain`."""
        return not bool(self._split.uncertain.any())

    @property
    def uncertain(self) -> np.ndarray:
        """The rules [.] int32, ascending, that read inputs that only Spark can evaluate from several streams.

        No side has them; `match` takes every test of them as satisfied. So if `match` returns one of these rules for a
        joined row, it is only a candidate; all others are exact.
        """
        return np.unique(self._split.target[self._split.uncertain])

    def can_filter(self, stream: str) -> bool:
        """Whether a stream's own columns can exclude rows (`useful`): every conjunction has terms on them."""
        place = self.owners.streams.index(stream)
        return bool(self.owners.leaves[place]) and not bool((self._split.parts[place].number == NOTHING).any())

    def useful(self, stream: str, rows: pa.Table) -> np.ndarray:
        """Returns which rows [rows] bool of a stream can be part of a joined row that satisfies a rule, as far as the
        stream's own columns tell. `rows` has at least what `inputs` names, as in `Side.rows`."""
        place = self.owners.streams.index(stream)
        parts = self._split.parts[place]
        if (parts.number == NOTHING).any():
            return np.ones(rows.num_rows, bool)
        if not len(parts):
            return np.zeros(rows.num_rows, bool)
        codes = self._coders[place].codes(side_columns(rows, self.owners.leaves[place]), rows.num_rows)
        if place not in self._alone:
            self._alone[place] = build(parts.rules, sample=codes[:, :SAMPLE_ROWS])[0]
        offsets, _ = self._alone[place].match(codes)
        return np.diff(offsets) > 0

    def match(
        self, sides: Sequence[Side], windows: Sequence[int], piece: int = PIECE, method: Method = "batch"
    ) -> Iterator[Piece]:
        """Yields the joined rows that satisfy a rule, contain a new row, and have an owned anchor; each once, with its
        rules.

        sides: for each stream its rows. windows: for each stream, microseconds, 0 or more: rows of equal keys join if,
        with t the latest of their times, the row of each stream i has its time in [t - windows[i], t]. method: both
        give the same joined rows, but may order those of one time differently.

        Pieces are not empty and are ordered by the anchors' time. Each is made from at most `piece` pairs of a joined
        row and a conjunction, unless one joined row alone has more. They are computed lazily, and so are errors:
        `SchemaError` for a column that is missing or of another type, `RulesIndexError` for sides or windows that do
        not fit the streams.
        """
        if len(sides) != len(self.owners.streams) or piece < 1:
            raise RulesIndexError(f"A join of {len(self.owners.streams)} streams has as many sides, not {len(sides)}.")
        tables = [
            side_columns(side.rows, leaves)
            for side, name, leaves in zip(sides, self.owners.streams, self.owners.leaves, strict=True)
        ]
        rows = place_rows(sides, windows) if method == "batch" else order_rows(sides, windows, by_key=False)
        if not len(rows) or not len(self._split.target):
            return
        codes = [
            coder.codes(table, side.rows.num_rows)[:, rows.row[rows.begin[stream] : rows.begin[stream + 1]]]
            for stream, (coder, table, side) in enumerate(zip(self._coders, tables, sides, strict=True))
        ]
        values = AcrossValues(self.compiled, self.owners, tables)
        if method == "pdfa":
            yield from self.row_by_row.pieces(rows, codes, self._tests, values, piece)
            return
        plan = self._planned(rows, codes)
        yield from Matcher(self._split, plan, self._checks, self._tests, values, piece).pieces(rows, codes)

    @property
    def row_by_row(self) -> RowByRow:
        """The paper's system over the rules, made on first use."""
        if self._row_by_row is None:
            from rules_index.join.pdfa.row_by_row import RowByRow

            self._row_by_row = RowByRow(self._split, self.compiled.index.name)
        return self._row_by_row

    def _planned(self, rows: OrderedRows, codes: Sequence[np.ndarray]) -> Plan:
        """Returns the current plan, or a new one if that was made from few rows, and far fewer than these."""
        plan = self._plan
        if plan is None or (plan.rows < SAMPLE_ROWS and len(rows) >= GROWTH * plan.rows):
            plan = self._plan = make_plan(self._split, rows, codes)
        return plan


class _Coder(NamedTuple):
    """Encodes rows of one stream: the attributes, the regions of each, and the leaves that they read."""

    attributes: tuple[Expression, ...]
    regions: tuple[Regions, ...]
    inputs: tuple[Leaf, ...]

    @classmethod
    def of(cls, compiled: CompiledRules, numbers: Sequence[int]) -> Self:
        """The coder for some of the attributes of a rule set."""
        attributes = tuple(compiled.attributes[number] for number in numbers)
        read = {leaf for attribute in attributes for leaf in leaves_of(attribute)}
        regions = tuple(compiled.regions[number] for number in numbers)
        return cls(attributes, regions, tuple(leaf for leaf in compiled.inputs if leaf in read))

    def codes(self, table: pa.Table, rows: int) -> np.ndarray:
        """The code matrix [attributes, rows] int32 of a table with these leaves and so many rows."""
        if not self.attributes or not rows:
            return np.empty((len(self.attributes), rows), np.int32)
        starts = range(0, rows, CHUNK_ROWS)
        parts = [code_matrix(*self, table.slice(start, CHUNK_ROWS))[0] for start in starts]
        return np.concatenate(parts, axis=1, dtype=np.int32)
