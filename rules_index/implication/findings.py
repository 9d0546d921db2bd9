"""Findings about a whole rule set that need no row: rules that are never or always TRUE, that are equal, that others
imply, and alternatives that are redundant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rules_index.arrays import gather_indices, offsets_of
from rules_index.engines.scan import Scan
from rules_index.implication.alternatives import SPLITS, always_true, redundant
from rules_index.implication.containment import Containment, RulesWithOthers
from rules_index.implication.example_rows import ExampleRows
from rules_index.implication.examples import examples
from rules_index.implication.impossible import possible
from rules_index.implication.kinds import (
    CONTRADICTION,
    DUPLICATE,
    IMPLIED,
    IMPLIED_BY_UNION,
    OF_RULE_SETS,
    REDUNDANT_ALTERNATIVE,
    TAUTOLOGY,
    UNREACHABLE_ALTERNATIVE,
)
from rules_index.implication.region_boxes import RegionBoxes, boxes_of, conjunctions_of, distinct_lists
from rules_index.index.compiled import CompiledRules
from rules_index.index.hybrid import Hybrid


def findings(compiled: CompiledRules) -> pa.Table:
    """The findings, ordered by rule, then by kind in the order of `OF_RULE_SETS`, then by alternative.

    | column | |
    |---|---|
    | rule | int32, the rule's ordinal |
    | kind | string |
    | others | list<int32>, ordinals of other rules |
    | alternative | int32, NULL except for the last two kinds: the conjunction's number within the rule |
    | example | struct of the columns that the rules read: a row on which the rule is TRUE; NULL where none was made |

    | kind | says |
    |---|---|
    | contradiction | the rule is TRUE on no row |
    | tautology | the rule is TRUE on every row |
    | duplicate | the rule and the others are TRUE on the same rows, box by box; reported for the first of them |
    | implied | wherever the rule is TRUE, the other one is |
    | implied_by_union | wherever the rule is TRUE, one of the others is; these are as few as were found |
    | redundant_alternative | where it is TRUE, another alternative of the rule is; the example is such a row |
    | unreachable_alternative | no row satisfies it |

    Of equal rules only the first is examined further, and tautologies are never among the others. Findings are certain,
    but not complete. Attributes are taken to be independent, and shared disjunctions and derived columns to have any
    value. A finding that depends on these, or takes more than `SPLITS` comparisons, may be missed. An alternative is a
    conjunction of the compiled rule: alternatives over the same attribute have been merged into one predicate, and
    contradictory ones have been removed; both can be found only from the rule's text.
    """
    conjunctions = conjunctions_of(compiled)
    boxes = possible(boxes_of(compiled), compiled.attributes, compiled.regions)
    engine = Hybrid.scanning(conjunctions) if isinstance(compiled.index, Scan) else compiled.index
    always = always_true(boxes)
    never = np.diff(boxes.rule_start) == 0
    more = redundant(boxes, np.arange(len(boxes.rule) + 1), boxes.rule_start) & ~always[boxes.rule]
    kept = np.flatnonzero(~more)
    containment = Containment(boxes, kept, conjunctions, engine, SPLITS)
    groups = _groups(boxes, kept, containment.box_start, never | always)
    eligible = ~(never | always)
    eligible[groups.others] = False
    single, together = containment.found(eligible)
    dead = boxes.unreachable[~never[boxes.unreachable[:, 0]]]
    first_box = np.append(kept, -1)[containment.box_start[:-1]]
    of_kinds = [
        _Findings.of(CONTRADICTION, np.flatnonzero(never)),
        _Findings.of(TAUTOLOGY, np.flatnonzero(always)),
        *(
            _Findings(OF_RULE_SETS.index(kind), given, np.full(len(given.rules), -1), first_box[given.rules])
            for kind, given in ((DUPLICATE, groups), (IMPLIED, single), (IMPLIED_BY_UNION, together))
        ),
        _Findings.of(REDUNDANT_ALTERNATIVE, boxes.rule[more], boxes.alternative[more], np.flatnonzero(more)),
        _Findings.of(UNREACHABLE_ALTERNATIVE, dead[:, 0], dead[:, 1]),
    ]
    return _table(of_kinds, ExampleRows(compiled, boxes.codes), boxes)


@dataclass
class _Findings:
    """Findings of one kind: rules [n] with others, alternatives [n] or -1, and boxes [n] for the example or -1."""

    kind: int
    given: RulesWithOthers
    alternatives: np.ndarray
    boxes: np.ndarray

    @classmethod
    def of(
        cls, kind: str, rules: np.ndarray, alternatives: np.ndarray | None = None, boxes: np.ndarray | None = None
    ) -> _Findings:
        """Findings for rules without others."""
        nothing = np.full(len(rules), -1)
        others = RulesWithOthers(rules, np.zeros(len(rules) + 1, np.int64), np.empty(0, np.int32))
        return cls(
            OF_RULE_SETS.index(kind),
            others,
            nothing if alternatives is None else alternatives,
            nothing if boxes is None else boxes,
        )


def _groups(boxes: RegionBoxes, kept: np.ndarray, box_start: np.ndarray, special: np.ndarray) -> RulesWithOthers:
    """Returns the first rule of each group of rules with the same boxes, and the rest of the group as its others.

    kept: [.] int64, the boxes of the rules; box_start: [rules + 1] int64, the first of each in `kept`; special: [rules]
    bool, rules that are in no group.
    """
    a = boxes.arrays
    terms, start = gather_indices(a.start, kept)
    pairs = np.stack([a.dimensions[terms], a.sets[terms]], axis=1).astype(np.int64).reshape(-1)
    _, number = distinct_lists(2 * start, pairs)
    _, group = distinct_lists(box_start, number[np.lexsort((number, boxes.rule[kept]))])
    rules = np.flatnonzero(~special)
    rules = rules[np.argsort(group[rules], kind="stable")]
    opens = np.ones(len(rules), bool)
    opens[1:] = group[rules[1:]] != group[rules[:-1]]
    begins = np.flatnonzero(opens)
    lengths = np.diff(np.append(begins, len(rules))) - 1
    several = lengths > 0
    return RulesWithOthers(rules[begins[several]], offsets_of(lengths[several]), rules[~opens].astype(np.int32))


def _table(of_kinds: list[_Findings], rows: ExampleRows, boxes: RegionBoxes) -> pa.Table:
    """All findings, ordered."""
    kind = np.concatenate([np.full(len(each.given.rules), each.kind) for each in of_kinds])
    rules = np.concatenate([each.given.rules for each in of_kinds]).astype(np.int32)
    alternatives = np.concatenate([each.alternatives for each in of_kinds]).astype(np.int32)
    order = np.lexsort((alternatives, kind, rules))
    start = offsets_of(np.concatenate([np.diff(each.given.start) for each in of_kinds]))
    gather, other_start = gather_indices(start, order)
    others = np.concatenate([each.given.others for each in of_kinds]).astype(np.int32)[gather]
    example_box = np.concatenate([each.boxes for each in of_kinds]).astype(np.int64)[order]
    alternative = alternatives[order]
    return pa.table(
        {
            "rule": pa.array(rules[order], pa.int32()),
            "kind": pa.array(OF_RULE_SETS).take(pa.array(kind[order])),
            "others": pa.ListArray.from_arrays(other_start.astype(np.int32), others),
            "alternative": pa.array(alternative, pa.int32(), mask=alternative < 0),
            "example": examples(example_box, rows, boxes),
        }
    )
