"""The alternatives of rules as their authors wrote them, each compiled alone: which are never TRUE, and which add
nothing beside the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rules_index.compile import compile_rules
from rules_index.csr import counts, owners
from rules_index.implication.alternatives import redundant
from rules_index.implication.examples import examples
from rules_index.implication.impossible import possible
from rules_index.implication.region_boxes import boxes_of
from rules_index.implication.rows import Rows
from rules_index.implication.texts import Alternatives


@dataclass(frozen=True)
class Superfluous:
    """Alternatives [n] that their rules do not need.

    alternative  [n] int64, their places among all alternatives, ascending
    rule         [n] int64
    unreachable  [n] bool, whether it is never TRUE; else, wherever it is TRUE, another alternative of its group is
    examples     struct [n], a row on which it and the rule are TRUE; NULL where there is none, or none was made
    """

    alternative: np.ndarray
    rule: np.ndarray
    unreachable: np.ndarray
    examples: pa.StructArray


def superfluous(given: Alternatives, chosen: np.ndarray, schema: pa.Schema, time_zone: str, splits: int) -> Superfluous:
    """Those of chosen rules [rules] bool, all of which compile. splits: as `most` of `cover_boxes`."""
    count = len(given.texts)
    table = pa.table({"rule_id": pa.array(np.arange(count)), "expression": given.texts})
    compiled = compile_rules(table, schema, "scan", time_zone=time_zone)
    boxes = possible(boxes_of(compiled), compiled.attributes, compiled.regions)
    ids = compiled.ids.to_numpy()
    accepted = np.zeros(count, bool)
    accepted[ids] = True
    box_start = np.searchsorted(ids[boxes.rule], np.arange(count + 1))
    group = owners(given.start)
    # what does not compile alone, though its rule does, is not understood
    known = chosen[given.rule] & (counts(~accepted, given.start) == 0)
    never = known[group] & (np.diff(box_start) == 0)
    more = known[group] & redundant(boxes, box_start, given.start, splits)
    found = np.flatnonzero(never | more)
    box = np.where(never[found] | ~given.is_whole[group[found]], -1, np.append(box_start, 0)[found])
    return Superfluous(found, given.rule[group[found]], never[found], examples(box, Rows(compiled, boxes.codes), boxes))
