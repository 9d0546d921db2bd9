"""Does one rule imply another: is every row on which the one is TRUE a row on which the other is?"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rules_index.compile import compile_rules
from rules_index.engines.flat import Conjunctions
from rules_index.errors import RuleError
from rules_index.implication.cover import UNCOVERED, UNDECIDED, cover_boxes, rows_held
from rules_index.implication.exact import Budget
from rules_index.implication.gates import without_gates
from rules_index.implication.region_boxes import BoxArrays, Codes, RegionBoxes, region_boxes
from rules_index.implication.rows import Rows

_MOST_CONJUNCTIONS = 1 << 12
"""So many conjunctions two rules may become by writing out their gates."""
_TRIES = 1 << 11
"""Rows that are made where expressions must be aimed at."""
_FIRST_SPLITS, _GROWTH = 1 << 12, 8
"""Comparisons of the first trial of a search, and how many times as many the next one has."""
_P, _Q = 0, 1


@dataclass(frozen=True)
class Decision:
    """implied: whether p implies q, None where that is not known; row: where it does not, a row of the columns that
    the rules read on which p is TRUE and q is not."""

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

    It decides as SQL does, NULL included: `delay > 60 OR delay <= 60` does not hold where `delay` is NULL.

        >>> implies("origin = 'JFK'", "delay > 60 OR delay <= 60", schema)
        False
        >>> implies("delay IS NOT NULL", "delay > 60 OR delay <= 60", schema)
        True

    True: there is no row on which p is TRUE and q is FALSE or NULL. False: there is one. None: neither was shown within
    the budget, or it hangs on what only Spark can evaluate (`hour(t) > 5`), or on how computations (`a + b > 5`) depend
    on each other. schema: of the rows; time_zone: of timestamp literals. Raises `RuleError` for a text that does not
    compile.
    """
    return decide(p, q, schema, time_zone, budget).implied


def decide(p: str, q: str, schema: pa.Schema, time_zone: str = "UTC", budget: Budget | None = None) -> Decision:
    """`implies` with the row that shows it."""
    compiled = compile_rules([(_P, p), (_Q, q)], schema, engine="scan", time_zone=time_zone)
    for reject in compiled.rejects.to_pylist():
        which = "first" if reject["rule_id"] == _P else "second"
        raise RuleError(reject["error"], f"The {which} rule: {reject['message']}", reject["position"])
    conjunctions = Conjunctions(**compiled.index.arrays)
    codes = Codes.of(compiled.attributes, compiled.regions)
    plain = without_gates(conjunctions, _MOST_CONJUNCTIONS)
    boxes = region_boxes(plain or conjunctions, codes, 2)
    search = _Search(boxes.of_rule(_Q), budget or Budget())
    uncovered, decided = search.uncovered(boxes.of_rule(_P), boxes.arrays)
    if not len(uncovered):
        return Decision(True if decided else None)
    rows = Rows(compiled, codes)
    if not rows.is_plain:
        # what stays uncovered whatever the rest is comes first
        unknown = np.ones(len(boxes.arrays.sizes), bool)
        unknown[: len(rows.known)] = ~rows.known
        certain = boxes.of_rule(_P)[~boxes.naming(unknown)[boxes.of_rule(_P)]]
        uncovered = np.concatenate([search.uncovered(certain, boxes.without(unknown))[0], uncovered])
    row = _counterexample(rows, boxes, uncovered)
    return Decision(None if row is None else False, row)


class _Search:
    """Looks for rows of boxes that no box of q holds, within a budget."""

    def __init__(self, others: np.ndarray, budget: Budget) -> None:
        self._others = others
        self._splits = budget.splits
        self._ends = time.monotonic() + budget.seconds

    def uncovered(self, boxes: np.ndarray, arrays: BoxArrays) -> tuple[np.ndarray, bool]:
        """Codes [rows, dimensions] of a row of each box [.] int64 that is not covered, and whether all were decided.

        Undecided boxes are tried anew with more and more comparisons as long as the next trial should end in time.
        """
        found = [np.empty((0, len(arrays.sizes)), np.int32)]
        most = _FIRST_SPLITS
        start = np.array([0, len(self._others)], np.int64)
        while len(boxes):
            began = time.monotonic()
            rows = np.empty((len(boxes), len(arrays.sizes)), np.int32)
            group = np.zeros(len(boxes), np.int64)
            how = cover_boxes(boxes, group, start, self._others, min(most, self._splits), arrays, rows)
            found.append(rows[how == UNCOVERED])
            boxes = boxes[how == UNDECIDED]
            now = time.monotonic()
            if most >= self._splits or now + _GROWTH * (now - began) > self._ends:
                break
            most *= _GROWTH
        return np.concatenate(found), not len(boxes)


def _counterexample(rows: Rows, boxes: RegionBoxes, uncovered: np.ndarray) -> pa.Table | None:
    """A row on which p is certain to be TRUE and q not to be, whatever Spark would evaluate; None where none is met.

    uncovered: codes [rows, dimensions] to aim at.
    """
    tries = 1 if rows.is_plain else max(1, _TRIES // len(uncovered))
    wanted = np.repeat(uncovered.T[: len(rows.known)], tries, axis=1)
    free = None if rows.is_plain else np.arange(wanted.shape[1]) % 2 == 1
    table = rows.table(wanted, free)
    found = rows.read(table, len(boxes.arrays.sizes))
    shown = rows_held(boxes.of_rule(_P), found, False, boxes.arrays)
    shown &= ~rows_held(boxes.of_rule(_Q), found, True, boxes.arrays)
    places = np.flatnonzero(shown)
    return table.slice(places[0], 1) if len(places) else None
