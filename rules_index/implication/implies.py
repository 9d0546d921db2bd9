"""Decides whether a rule p implies a rule q: whether q is TRUE on every row on which p is TRUE."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rules_index.compiling.compile import compile_rules
from rules_index.errors import RuleError
from rules_index.implication.cover import UNCOVERED, UNDECIDED, cover_boxes, rows_held
from rules_index.implication.example_rows import ExampleRows
from rules_index.implication.impossible import impossible
from rules_index.implication.region_boxes import BoxArrays, RegionBoxes, boxes_of
from rules_index.implication.search_limits import Budget
from rules_index.language.scope import Scope

_MOST_CONJUNCTIONS = 1 << 12
"""The most conjunctions that two rules may become by expanding their shared disjunctions; if there are more, they
stay."""
_TRIES = 1 << 11
"""About how many rows are made in search of a counterexample if expressions must be hit by chance."""
_FIRST_SPLITS, _GROWTH = 1 << 12, 8
"""The most comparisons in the first attempt of a search, and the factor by which each further attempt allows more."""
_P, _Q = 0, 1


@dataclass(frozen=True)
class Decision:
    """Whether p implies q.

    implied: None if unknown. row: if `implied` is False, one row of the columns that the rules read, on which p is TRUE
    and q is FALSE or NULL.
    """

    implied: bool | None
    row: pa.Table | None = None


def implies(p: str, q: str, schema: pa.Schema, time_zone: str = "UTC", budget: Budget | None = None) -> bool | None:
    """Whether a rule implies another: whether each row that matches `p` matches `q` too.

        >>> import pyarrow as pa
        >>> schema = pa.schema([("origin", pa.string()), ("delay", pa.int32())])
        >>> implies("origin = 'JFK' AND delay > 90", "delay > 60", schema)
        True
        >>> implies("delay > 60", "origin = 'JFK' AND delay > 90", schema)
        False

    It decides as SQL does, including NULL: `delay > 60 OR delay <= 60` is not TRUE where `delay` is NULL.

        >>> implies("origin = 'JFK'", "delay > 60 OR delay <= 60", schema)
        False
        >>> implies("delay IS NOT NULL", "delay > 60 OR delay <= 60", schema)
        True

    True: there is no row on which p is TRUE and q is FALSE or NULL. False: there is one. None: neither was shown within
    the budget, or the answer depends on which values make a function TRUE (`hour(t) > 5`, or any that only Spark
    evaluates), or on how computations (`a + 1 > 5`) depend on columns and each other. Two dependencies are known:
    comparisons of the same values (`a < b AND b < c` implies `a <= c`), and that functions of NULL are NULL. schema: of
    the rows; time_zone: of timestamp literals. Raises `RuleError` for a text that does not compile.
    """
    return decide(p, q, schema, time_zone, budget).implied


def decide(p: str, q: str, schema: pa.Schema, time_zone: str = "UTC", budget: Budget | None = None) -> Decision:
    """`implies`, with the row that refutes it. Raises `RuleError` as `implies` does."""
    compiled = compile_rules([(_P, p), (_Q, q)], schema, engine="scan", time_zone=time_zone)
    for reject in compiled.rejects.to_pylist():
        which = "first" if reject["rule_id"] == _P else "second"
        raise RuleError(reject["error"], f"The {which} rule: {reject['message']}", reject["position"])
    boxes = boxes_of(compiled, _MOST_CONJUNCTIONS)
    scope = Scope(schema, time_zone)
    boxes = boxes.with_boxes(impossible(compiled.attributes, compiled.regions, boxes.codes, scope))
    search = _Search(budget or Budget())
    others = np.concatenate([boxes.of_rule(_Q), boxes.added])
    uncovered, decided = search.uncovered(boxes.of_rule(_P), others, boxes.arrays)
    if not len(uncovered):
        return Decision(True if decided else None)
    rows = ExampleRows(compiled, boxes.codes, scope)
    if not rows.is_plain:
        # first come rows that are in p and outside of q whatever their values in unknown dimensions are
        unknown = np.ones(len(boxes.arrays.sizes), bool)
        unknown[: len(rows.computable)] = ~rows.computable
        depends = boxes.naming(unknown)
        certain, others = (which[~depends[which]] for which in (boxes.of_rule(_P), boxes.added))
        others = np.concatenate([boxes.of_rule(_Q), others])
        uncovered = np.concatenate([search.uncovered(certain, others, boxes.without(unknown))[0], uncovered])
    row = _counterexample(rows, boxes, uncovered)
    return Decision(None if row is None else False, row)


class _Search:
    """Searches boxes for rows that other boxes do not contain, within a budget."""

    def __init__(self, budget: Budget) -> None:
        self._splits = budget.splits
        self._ends = time.monotonic() + budget.seconds

    def uncovered(self, boxes: np.ndarray, others: np.ndarray, arrays: BoxArrays) -> tuple[np.ndarray, bool]:
        """Returns a row of each of `boxes` [.] int64 that the `others` [.] int64 do not cover, outside of all of these,
        as codes [rows, dimensions] int32; and whether all boxes were decided.

        Undecided boxes are tried again with more and more comparisons, as long as the next attempt is expected to end
        in time.
        """
        found = [np.empty((0, len(arrays.sizes)), np.int32)]
        most = _FIRST_SPLITS
        start = np.array([0, len(others)], np.int64)
        while len(boxes):
            began = time.monotonic()
            rows = np.empty((len(boxes), len(arrays.sizes)), np.int32)
            group = np.zeros(len(boxes), np.int64)
            how = cover_boxes(boxes, group, start, others, min(most, self._splits), arrays, rows)
            found.append(rows[how == UNCOVERED])
            boxes = boxes[how == UNDECIDED]
            now = time.monotonic()
            if most >= self._splits or now + _GROWTH * (now - began) > self._ends:
                break
            most *= _GROWTH
        return np.concatenate(found), not len(boxes)


def _counterexample(rows: ExampleRows, boxes: RegionBoxes, uncovered: np.ndarray) -> pa.Table | None:
    """Returns a row on which p is certainly TRUE and q certainly is not, whatever Spark would evaluate; None if none is
    found.

    uncovered: the codes [rows, dimensions] int32 of rows to aim at.
    """
    tries = 1 if rows.is_plain else max(1, _TRIES // len(uncovered))
    wanted = np.repeat(uncovered.T[rows.column_attributes], tries, axis=1)
    free = None if rows.is_plain else np.arange(wanted.shape[1]) % 2 == 1
    table = rows.table(wanted, free)
    found = rows.read(table, np.arange(len(boxes.arrays.sizes)))
    shown = rows_held(boxes.of_rule(_P), found, False, boxes.arrays)
    shown &= ~rows_held(boxes.of_rule(_Q), found, True, boxes.arrays)
    places = np.flatnonzero(shown)
    return table.slice(places[0], 1) if len(places) else None
