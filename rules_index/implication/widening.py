"""Widens a whole rule set to a few conjunctions over plain columns, satisfied by every row that some rule matches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from rules_index.arrays import gather_indices, segment_ids
from rules_index.compiling.compile import compile_rules
from rules_index.compiling.rule_columns import Rules
from rules_index.domains.region_codes import Regions
from rules_index.domains.value_lists import AnyList
from rules_index.domains.values import is_indexable
from rules_index.implication.grouping import Shares, grouped
from rules_index.implication.region_boxes import BoxArrays, Codes, RegionBoxes, boxes_of, distinct_lists
from rules_index.implication.sql import condition, has_end, lower_bound, upper_bound, value_of
from rules_index.implication.value_ranges import KeyRange, Pieces, pieces_of
from rules_index.index.compiled import CompiledRules
from rules_index.language.typed import Leaf
from rules_index.names import back_quoted_path

MOST_RANGES = 64
"""The most values and ranges of a column in a condition."""
_MOST_CONJUNCTIONS = 1 << 12
"""The most conjunctions that a rule set may become by expanding its shared disjunctions; if there are more, they are
left out."""


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """The values that a column may have: from `low` to `high`, both included, None for an unbounded end; NULL if
    `null`.

    `holds_values` is False if only NULL is left. Values are Python's, as PyArrow's `to_pylist` returns them.
    """

    column: str
    low: Any
    high: Any
    null: bool
    holds_values: bool = True


@dataclass(frozen=True, slots=True)
class WideConjunction:
    """An AND of conditions, at most one per column.

    sql: Spark SQL, "true" if it has no condition; ranges: the bounding ranges of the same conditions.
    """

    sql: str
    ranges: tuple[ColumnRange, ...]


@dataclass(frozen=True, slots=True)
class Widened:
    """An OR of conjunctions. There are none if no rule can match any row."""

    conjunctions: tuple[WideConjunction, ...]

    @property
    def sql(self) -> str:
        """The whole as Spark SQL: "true" if there is no restriction, "false" if no row can match."""
        if len(self.conjunctions) < 2:
            return self.conjunctions[0].sql if self.conjunctions else "false"
        return " OR ".join(f"({each.sql})" for each in self.conjunctions)


def widen(
    rules: Rules,
    schema: pa.Schema,
    k: int = 16,
    event_time: str | None = None,
    time_zone: str = "UTC",
    lists: Sequence[AnyList] = (),
) -> Widened:
    """A filter of at most `k` conjunctions that keeps every row that some rule matches, and few others.

    It can be pushed into a scan before rows are matched: it is over plain columns only, so that files are skipped by
    their statistics. Predicates on expressions (`hour(t) > 5`, `a < b`) and on lists are left out, which keeps more
    rows, never fewer; a rule that does not compile, also for want of its list, matches nothing. Rules, schema,
    event_time, time_zone and lists are those of `compile_rules`.

        >>> import pyarrow as pa
        >>> schema = pa.schema([("origin", pa.string()), ("delay", pa.int32())])
        >>> rules = [("late", "origin = 'JFK' AND delay > 60"), ("lost", "origin = 'EWR' AND delay > 120")]
        >>> found = widen(rules, schema, k=1)
        >>> print(found.sql)
        `origin` IN ('EWR', 'JFK') AND `delay` >= 61
        >>> for each in found.conjunctions[0].ranges:
        ...     print(each.column, each.low, each.high, each.null)
        origin EWR JFK False
        delay 61 None False

    With a larger k the filter is closer to the rules:

        >>> print(widen(rules, schema, k=2).sql)
        (`origin` = 'JFK' AND `delay` >= 61) OR (`origin` = 'EWR' AND `delay` >= 121)

    Where a rule restricts no column by itself, there is no restriction:

        >>> print(widen([*rules, ("odd", "delay % 2 = 1")], schema).sql)
        true

    Raises `RulesIndexError` as `compile_rules` does, `ValueError` for a k below 1.
    """
    return widen_compiled(compile_rules(rules, schema, "scan", event_time, time_zone, lists=lists), k)


def widen_compiled(compiled: CompiledRules, k: int = 16) -> Widened:
    """`widen` for compiled rules."""
    if k < 1:
        raise ValueError(f"k is {k}; it must be at least 1.")
    boxes = boxes_of(compiled, _MOST_CONJUNCTIONS)
    codes = boxes.codes
    if not len(boxes.rule):
        return Widened(())
    columns = np.array([isinstance(each, Leaf) and each.text is None for each in compiled.attributes], bool)
    restricted = _restricted(boxes, columns)
    if not np.diff(restricted.start).all():
        return Widened((WideConjunction("true", ()),))
    leaves = {at: each for at, each in enumerate(compiled.attributes) if isinstance(each, Leaf)}
    bounds = simplified(_group_bounds(restricted, grouped(_shares(restricted), k)))
    pieces = {dimension: _pieces(compiled.regions[dimension], codes, dimension) for dimension in set().union(*bounds)}
    return Widened(
        tuple(
            _conjunction(
                [_of_column(leaves[at], _regions(at, allowed, codes), pieces[at]) for at, allowed in each.items()]
            )
            for each in bounds
        )
    )


def _restricted(boxes: RegionBoxes, columns: np.ndarray) -> BoxArrays:
    """The distinct boxes of conjunctions, restricted to `columns` [attributes] bool."""
    others = np.ones(len(boxes.arrays.sizes), bool)
    others[: len(columns)] = ~columns
    a = boxes.without(others)
    start = a.start[:-1]
    terms = np.stack([a.dimensions, a.sets], axis=1)[: start[-1]].astype(np.int64)
    gather, start = gather_indices(start, distinct_lists(2 * start, terms.reshape(-1))[0])
    return a._replace(start=start, dimensions=a.dimensions[gather], sets=a.sets[gather])


def _shares(restricted: BoxArrays) -> Shares:
    """The bounding ranges of the sets of boxes."""
    low = restricted.intervals[restricted.set_start[restricted.sets], 0]
    high = restricted.intervals[restricted.set_start[restricted.sets + 1] - 1, 1]
    return Shares(restricted.sizes, restricted.start, restricted.dimensions, low, high)


GroupBounds: TypeAlias = dict[int, np.ndarray]
"""A conjunction: for each dimension that it names, which codes [codes] bool it has, some but not all."""


def _group_bounds(restricted: BoxArrays, group: np.ndarray) -> list[GroupBounds]:
    """The union of the boxes of each group, dimension by dimension."""
    groups = int(group.max()) + 1
    found: list[GroupBounds] = [{} for _ in range(groups)]
    box = segment_ids(restricted.start)
    members = np.bincount(group, minlength=groups)
    order = np.argsort(restricted.dimensions, kind="stable")
    bounds = np.searchsorted(restricted.dimensions[order], np.arange(len(restricted.sizes) + 1))
    for dimension in np.flatnonzero(np.diff(bounds)).tolist():
        terms = order[bounds[dimension] : bounds[dimension + 1]]
        term_group = group[box[terms]]
        whole = np.bincount(term_group, minlength=groups) == members
        chosen = whole[term_group]
        gather, start = gather_indices(restricted.set_start, restricted.sets[terms[chosen]])
        size = int(restricted.sizes[dimension]) + 1
        first = term_group[chosen][segment_ids(start)] * size
        change = np.bincount(first + restricted.intervals[gather, 0], minlength=groups * size)
        change -= np.bincount(first + restricted.intervals[gather, 1] + 1, minlength=groups * size)
        codes = np.cumsum(change.reshape(groups, size), axis=1)[:, :-1] > 0
        for number in np.flatnonzero(whole & ~codes.all(axis=1)).tolist():
            found[number][dimension] = codes[number]
    return found


def simplified(given: Sequence[GroupBounds]) -> list[GroupBounds]:
    """Returns the same rows as fewer conjunctions: leaves out a conjunction that another one contains, and merges
    conjunctions that differ in a single dimension."""
    found: list[GroupBounds] = []
    waiting = list(reversed(given))
    while waiting:
        one = waiting.pop()
        for place, other in enumerate(found):
            joined = _as_one(one, other)
            if joined is not None:
                # a merged one may contain, or be merged with, others
                del found[place]
                waiting.append(joined)
                break
        else:
            found.append(one)
    return found


def _as_one(one: GroupBounds, other: GroupBounds) -> GroupBounds | None:
    """Merges two conjunctions into one that has the same rows; None if there is no such conjunction."""
    for left, right in ((one, other), (other, one)):
        if all(at in left and not (left[at] & ~codes).any() for at, codes in right.items()):
            return right
    if one.keys() != other.keys():
        return None
    different = [at for at, codes in one.items() if not np.array_equal(codes, other[at])]
    if len(different) != 1:
        return None
    (at,) = different
    codes = one[at] | other[at]
    return {each: codes if each == at else one[each] for each in one if each != at or not codes.all()}


def _regions(dimension: int, allowed: np.ndarray, codes: Codes) -> np.ndarray:
    """Which region codes [region codes] bool of a dimension its allowed codes [codes] bool stand for."""
    found = np.zeros(codes.old_start[dimension + 1] - codes.old_start[dimension], bool)
    found[codes.region[codes.start[dimension] : codes.start[dimension + 1]][allowed]] = True
    return found


def _pieces(regions: Regions, codes: Codes, dimension: int) -> Pieces | None:
    """The pieces of a column; None if its type has no keys."""
    if not is_indexable(regions.type):
        return None
    return pieces_of(regions, codes.code[codes.old_start[dimension] :][: regions.count] >= 0)


def _of_column(leaf: Leaf, allowed: np.ndarray, pieces: Pieces | None) -> tuple[str, ColumnRange]:
    """The condition that a column is in its allowed regions [region codes] bool, not all of them: as Spark SQL, "true"
    if no literal can express a bound, and as the bounding range."""
    name = back_quoted_path(leaf.name)
    values, null = allowed[:-2], bool(allowed[-2])
    if pieces is None or not values.any():
        only = "IS NULL" if null else "IS NOT NULL"
        return f"{name} {only}", ColumnRange(leaf.name, None, None, null, bool(values.any()))
    ranges = pieces.ranges(values, MOST_RANGES)
    around = KeyRange(ranges[0].low, ranges[-1].high)
    if not all(has_end(each, leaf.type) for each in ranges):
        ranges = [around]
    ends = [
        each and value_of(each[0], leaf.type)
        for each in (lower_bound(around, leaf.type), upper_bound(around, leaf.type))
    ]
    if not has_end(ranges[0], leaf.type):
        sql = "true" if null else f"{name} IS NOT NULL"
    else:
        sql = condition(leaf.name, leaf.type, ranges)
        sql = f"({sql} OR {name} IS NULL)" if null else sql
    return sql, ColumnRange(leaf.name, ends[0], ends[1], null)


def _conjunction(parts: list[tuple[str, ColumnRange]]) -> WideConjunction:
    conditions = [part for part in parts if part[0] != "true"]
    return WideConjunction(" AND ".join(sql for sql, _ in conditions) or "true", tuple(each for _, each in conditions))
