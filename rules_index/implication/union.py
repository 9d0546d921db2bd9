"""Decides whether rules together imply another one: whether on each row on which that one is TRUE, one of them is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from rules_index.arrays import segment_counts
from rules_index.compiling.compile import compile_rules
from rules_index.compiling.rule_columns import RuleColumns, Rules, read_rules
from rules_index.domains.value_lists import AnyList
from rules_index.implication.containment import Containment
from rules_index.implication.cover import rows_held
from rules_index.implication.example_rows import ExampleRows
from rules_index.implication.impossible import impossible, possible
from rules_index.implication.region_boxes import RegionBoxes, boxes_of, conjunctions_of
from rules_index.index.compiled import CompiledRules
from rules_index.language.scope import Scope

_SPLITS = 1 << 16
"""The comparisons of a part with a box after which a rule is left undecided."""
_MOST_CONJUNCTIONS = 1 << 14
"""The most conjunctions that all rules may become by expanding their shared disjunctions; if there are more, they
stay."""
_MOST_IMPOSSIBLE = 1 << 9
"""The most boxes without rows that are compared with every rule; if there are more, none is."""
_TRIES = 1 << 12
"""About how many rows, and at least one per rule, are made to refute implications that depend on expressions."""


def implied_by_union(
    rules: Rules,
    others: Rules,
    schema: pa.Schema,
    event_time: str | None = None,
    time_zone: str = "UTC",
    lists: Sequence[AnyList] = (),
) -> pa.Table:
    """Whether `others` together imply each of `rules`: whether each row that matches the rule matches one of `others`.

        >>> import pyarrow as pa
        >>> schema = pa.schema([("origin", pa.string()), ("delay", pa.int32())])
        >>> others = [("early", "delay < 20"), ("late", "delay >= 20")]
        >>> rules = [("delayed", "delay BETWEEN 10 AND 40"), ("at-hub", "origin IN ('EWR', 'JFK')")]
        >>> implied_by_union(rules, others, schema).to_pylist()
        [{'rule_id': 'at-hub', 'implied': False}, {'rule_id': 'delayed', 'implied': True}]

    | column | |
    |---|---|
    | rule_id | the id of each of `rules` that compiles; the table is ordered by it |
    | implied | bool, as `implies` returns it: NULL if neither was shown |

    This is the question to ask where every row that a rule of `rules` can match must be among the rows that `others`
    matched. A rule that does not compile matches nothing: among `rules` it is left out, among `others` it has no
    effect. Validity counts, as bounds on `event_time`. The same id can be in both. Each of `rules` and `others` is as
    in `compile_rules`, and so are schema, event_time, time_zone and lists. Raises `RulesIndexError` as `compile_rules`
    does.
    """
    asked, _ = read_rules(rules, time_zone)
    given, _ = read_rules(others, time_zone)
    both = pa.concat_tables([_numbered(asked, 0), _numbered(given, len(asked))])
    compiled = compile_rules(both, schema, "scan", event_time, time_zone, lists=lists)
    numbers = compiled.ids.to_numpy()
    implied = _decided(compiled, numbers < len(asked), Scope(schema, time_zone, compiled.lists))
    ids = asked.ids.take(pa.array(numbers[numbers < len(asked)]))
    return pa.table({"rule_id": ids, "implied": pa.array(implied == 1, mask=implied < 0)})


def _numbered(rules: RuleColumns, first: int) -> pa.Table:
    """The rules as a table, with the integers from `first` on as their ids."""
    columns = {"rule_id": pa.array(np.arange(first, first + len(rules))), "expression": rules.expressions}
    for name, bounds in (("valid_from", rules.valid_from), ("valid_to", rules.valid_to)):
        known_bounds = pa.nulls(len(rules), pa.int64()) if bounds is None else bounds
        columns[name] = known_bounds.cast(pa.timestamp("us", "UTC"))
    return pa.table(columns)


def _decided(compiled: CompiledRules, asked: np.ndarray, scope: Scope) -> np.ndarray:
    """Returns for each asked rule whether the others imply it, [asked rules] int8: 1, 0, or -1 if unknown.

    asked: [rules] bool; the asked rules come first, and all further ones are the others.
    """
    boxes = possible(boxes_of(compiled, _MOST_CONJUNCTIONS), compiled.attributes, compiled.regions)
    rules = np.flatnonzero(asked & (np.diff(boxes.rule_start) > 0))
    implied = np.ones(int(asked.sum()), np.int8)
    implied[rules] = -1
    with_more, always = _with_impossible(boxes, compiled, scope)
    kept = np.arange(len(with_more.rule))
    containment = Containment(with_more, kept, conjunctions_of(compiled), compiled.index, _SPLITS)
    others = np.append(~asked, np.zeros(len(always), bool))
    covered, left, rows = containment.implied(rules, others, always)
    implied[covered] = 1
    implied[left[_shown(compiled, boxes, asked, left, rows, scope)]] = 0
    return implied


def _with_impossible(boxes: RegionBoxes, compiled: CompiledRules, scope: Scope) -> tuple[RegionBoxes, np.ndarray]:
    """Adds the impossible boxes, which contain no row, as a last rule. Returns all boxes and that rule's number [1]
    int32; or the boxes as they are, and no number, if there are no impossible boxes or too many."""
    found = impossible(compiled.attributes, compiled.regions, boxes.codes, scope)
    added = boxes.with_boxes(found)
    count = len(added.added)
    if not 0 < count <= _MOST_IMPOSSIBLE:
        return boxes, np.empty(0, np.int32)
    rule = np.append(boxes.rule, np.full(count, boxes.rules)).astype(np.int32)
    alternative = np.append(boxes.alternative, np.arange(count)).astype(np.int32)
    return replace(added, rule=rule, alternative=alternative, rules=boxes.rules + 1), np.array([boxes.rules], np.int32)


def _shown(
    compiled: CompiledRules, boxes: RegionBoxes, asked: np.ndarray, left: np.ndarray, codes: np.ndarray, scope: Scope
) -> np.ndarray:
    """Which of the remaining rules `left` [n] are shown not to be implied, [n] bool: by a row of real values, made from
    `codes` [n, attributes] int32, on which the rule is certainly TRUE and certainly none of the others is."""
    rows = ExampleRows(compiled, boxes.codes, scope)
    if rows.is_plain and len(boxes.arrays.sizes) == len(compiled.attributes):
        return np.ones(len(left), bool)
    tries = max(1, _TRIES // max(len(left), 1))
    wanted = np.repeat(codes.T[rows.column_attributes], tries, axis=1)
    table = rows.table(wanted, np.arange(wanted.shape[1]) % 2 == 1)
    found = rows.read(table, np.arange(len(boxes.arrays.sizes)))
    holds = np.concatenate(
        [
            np.empty(0, bool),
            *(
                rows_held(boxes.of_rule(rule), found[:, place * tries : (place + 1) * tries], False, boxes.arrays)
                for place, rule in enumerate(left.tolist())
            ),
        ]
    )
    given = np.flatnonzero(~asked[boxes.rule])
    holds[holds] = ~rows_held(given, found[:, holds], True, boxes.arrays)
    return segment_counts(holds, np.arange(len(left) + 1) * tries) > 0
