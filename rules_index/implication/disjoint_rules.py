"""Finds rules that match no row on which a condition is TRUE, because their boxes are disjoint from the condition's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.compiling.compile import compile_rules
from rules_index.domains.value_lists import AnyList
from rules_index.errors import RuleError
from rules_index.implication.cover import relation_of_sets
from rules_index.implication.region_boxes import BoxArrays, boxes_of
from rules_index.kernels.jit import inner, jit
from rules_index.language.typed import Leaf


def disjoint_rules(
    rules: pl.DataFrame,
    schema: pa.Schema,
    condition: str,
    event_time: str | None = None,
    time_zone: str = "UTC",
    lists: Sequence[AnyList] = (),
) -> dict[str | int, str | None]:
    """Returns the ids of the rules that match no row on which `condition` is TRUE, each with the separating column.

    The rule and the condition allow different values of that column. It is None if several columns are needed, or a
    computation over columns separates the two. Rules that match no row at all are left out. rules: a frame with rule_id
    and expression, and validity as in `compile_rules`; the other arguments are as there, too. Raises `RuleError` if the
    condition does not compile.
    """
    ids = rules["rule_id"]
    extra: str | int = "" if ids.dtype == pl.String else 0
    while ids.is_in([extra]).any():
        extra = extra + "\0" if isinstance(extra, str) else extra - 1
    row = pl.DataFrame({"rule_id": [extra], "expression": [condition]}, schema_overrides={"rule_id": ids.dtype})
    both = pl.concat([rules, row], how="diagonal")
    compiled = compile_rules(both, schema, "scan", event_time, time_zone, lists=lists)
    boxes = boxes_of(compiled)
    for reject in compiled.rejects.filter(pc.equal(compiled.rejects["rule_id"], extra)).to_pylist():
        raise RuleError(reject["error"], reject["message"], reject["position"])
    places = compiled.ids.to_pylist()
    condition_boxes = boxes.of_rule(places.index(extra))
    found = separating_dimensions(boxes.rule_start, condition_boxes, boxes.arrays)
    attributes = compiled.attributes
    columns = [each.name if isinstance(each, Leaf) and each.text is None else None for each in attributes]
    return {
        places[rule]: columns[found[rule]] if 0 <= found[rule] < len(columns) else None
        for rule in np.flatnonzero(found != _MEETS).tolist()
        if boxes.rule_start[rule] < boxes.rule_start[rule + 1]
    }


_MEETS, _SEVERAL, _NO_PAIR = -1, -2, -3


@jit
def separating_dimensions(rule_start: np.ndarray, condition_boxes: np.ndarray, a: BoxArrays) -> np.ndarray:
    """Returns for each rule [rules] int64 the first dimension in which each of its boxes is disjoint from each of the
    `condition_boxes` [.] int64; -1 if two boxes may share a row, and -2 if there are no boxes, or no single dimension
    separates all pairs of boxes."""
    found = np.empty(len(rule_start) - 1, np.int64)
    separating = np.empty(len(a.sizes), np.int64)
    for rule in range(len(found)):
        count = _NO_PAIR
        for box in range(rule_start[rule], rule_start[rule + 1]):
            for other in condition_boxes:
                is_disjoint, count = _keep_separating(box, other, separating, count, a)
                if not is_disjoint:
                    count = _MEETS
                    break
            if count == _MEETS:
                break
        found[rule] = separating[0] if count > 0 else _MEETS if count == _MEETS else _SEVERAL
    return found


@inner
def _keep_separating(box: int, other: int, separating: np.ndarray, count: int, a: BoxArrays) -> tuple[bool, int]:
    """Returns whether two boxes are disjoint, and how many of the dimensions `separating[:count]`, ascending, separate
    them, too; only these are kept. For the first pair of boxes, all dimensions that separate them are put there."""
    at, place, kept, is_disjoint = a.start[box], 0, 0, False
    for term in range(a.start[other], a.start[other + 1]):
        dimension = a.dimensions[term]
        while at < a.start[box + 1] and a.dimensions[at] < dimension:
            at += 1
        if at == a.start[box + 1]:
            break
        if a.dimensions[at] > dimension or relation_of_sets(a.sets[at], a.sets[term], a)[0]:
            continue
        is_disjoint = True
        if count != _NO_PAIR:
            while place < count and separating[place] < dimension:
                place += 1
            if place == count:
                break
            if separating[place] > dimension:
                continue
        separating[kept] = dimension
        kept += 1
    return is_disjoint, kept
