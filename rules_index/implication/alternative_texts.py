"""Finds alternatives that are never TRUE, or redundant beside the others. Each is compiled by itself, as the rule's
author wrote it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rules_index.arrays import segment_counts, segment_ids
from rules_index.compiling.compile import compile_rules
from rules_index.implication.alternatives import redundant
from rules_index.implication.example_rows import ExampleRows
from rules_index.implication.examples import examples
from rules_index.implication.impossible import possible
from rules_index.implication.region_boxes import RegionBoxes, boxes_of
from rules_index.implication.text_spans import Alternatives
from rules_index.index.compiled import CompiledRules
from rules_index.language.scope import Scope

_MOST_CHARACTERS = 1 << 20
"""The most characters of a rule, times the number of its alternatives, up to which these are tested within the rule."""

_NULL_TEST = re.compile(r"(.*\S)\s+IS\s+NULL", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class SuperfluousAlternatives:
    """Alternatives [n] that their rules do not need.

    alternative  [n] int64, their numbers among all alternatives, ascending
    rule         [n] int64
    unreachable  [n] bool, whether it is never TRUE; if not, one of the others of its group is TRUE wherever it is
    examples     struct [n], a row on which it and the rule are TRUE; NULL where there is none, or none was made
    """

    alternative: np.ndarray
    rule: np.ndarray
    unreachable: np.ndarray
    examples: pa.StructArray


def superfluous(given: Alternatives, chosen: np.ndarray, scope: Scope) -> SuperfluousAlternatives:
    """The superfluous alternatives of the chosen rules [rules] bool, all of which compile."""
    compiled, boxes, accepted, box_start = _compiled(given.texts, scope)
    group = segment_ids(given.start)
    # if an alternative does not compile by itself, though its rule does, nothing is known about its group
    compiles = chosen[given.rule] & (segment_counts(~accepted, given.start) == 0)
    never = compiles[group] & (np.diff(box_start) == 0)
    more = compiles[group] & redundant(boxes, box_start, given.start)
    found = np.flatnonzero(never | more)
    box = np.where(never[found] | ~given.is_whole[group[found]], -1, np.append(box_start, 0)[found])
    return SuperfluousAlternatives(
        found, given.rule[group[found]], never[found], examples(box, ExampleRows(compiled, boxes.codes), boxes)
    )


def superfluous_in_rule(
    given: Alternatives, texts: Sequence[str], chosen: np.ndarray, scope: Scope
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the alternatives [n] int64 that the chosen rules [rules] bool do not need because of the rest of the
    rule, and whether each is never TRUE within it, [n] bool.

    An alternative is needed unless the rule with FALSE in its place means the same. Of alternatives of a rule that are
    redundant, but not unreachable, only the last is returned: without it, the others may be needed. `a IS NULL` beside
    another alternative about `a` is not returned: it says what NULL means there, whether the rest of the rule lets NULL
    through or not. texts: the rules'.
    """
    group = segment_ids(given.start)
    lengths = np.array([len(text) for text in texts], np.int64)
    chosen = chosen & (np.bincount(given.rule[group], minlength=len(texts)) * lengths <= _MOST_CHARACTERS)
    tried = np.array(
        [at for at in np.flatnonzero(chosen[given.rule[group]]).tolist() if not _is_guard(given, int(group[at]), at)],
        np.int64,
    )
    variants: list[str] = []
    for at in tried.tolist():
        rule = texts[given.rule[group[at]]]
        others = [each for each in range(given.start[group[at]], given.start[group[at] + 1]) if each != at]
        variants += [_with_false(rule, given, [at]), rule, _with_false(rule, given, others)]
    _, boxes, accepted, box_start = _compiled(pa.array(variants, pa.string()), scope)
    compiles = accepted.reshape(-1, 3).all(axis=1)
    # two groups for each alternative: the variant without it and the rule, of which the rule is tried first; and the
    # variant without the other alternatives
    start = np.stack([np.arange(0, len(variants), 3), np.arange(2, len(variants) + 1, 3)], axis=1).reshape(-1)
    spared = redundant(boxes, box_start, np.append(start, len(variants))).reshape(-1, 3)[:, 1] & compiles
    never = spared & (np.diff(box_start).reshape(-1, 3)[:, 2] == 0)
    last = np.zeros(len(tried), bool)
    rules = given.rule[group[tried]]
    extra = np.flatnonzero(spared & ~never)
    last[extra[np.append(rules[extra][1:] != rules[extra][:-1], True)[: len(extra)]]] = True
    found = never | last
    return tried[found], never[found]


def _is_guard(given: Alternatives, group: int, at: int) -> bool:
    """Whether an alternative is `x IS NULL`, and another one of its group is about x."""
    test = _NULL_TEST.fullmatch(given.texts[at].as_py())
    if test is None:
        return False
    tested = re.compile(rf"(?<!\w){re.escape(test[1])}(?!\w)", re.IGNORECASE)
    others = (each for each in range(given.start[group], given.start[group + 1]) if each != at)
    return any(tested.search(given.texts[each].as_py()) for each in others)


def _compiled(texts: pa.Array, scope: Scope) -> tuple[CompiledRules, RegionBoxes, np.ndarray, np.ndarray]:
    """Compiles texts as rules. Returns (compiled, boxes, accepted, start): which texts compile [texts] bool, and their
    boxes that a row can be inside; those of text i are start[i] to start[i + 1]."""
    numbers = pa.array(np.arange(len(texts)))
    table = pa.table({"rule_id": numbers, "expression": texts})
    compiled = compile_rules(table, scope.schema, "scan", time_zone=scope.time_zone, lists=[*scope.lists.values()])
    boxes = possible(boxes_of(compiled), compiled.attributes, compiled.regions)
    ids = compiled.ids.to_numpy()
    accepted = np.zeros(len(texts), bool)
    accepted[ids] = True
    return compiled, boxes, accepted, np.searchsorted(ids[boxes.rule], np.arange(len(texts) + 1))


def _with_false(text: str, given: Alternatives, replaced: Sequence[int]) -> str:
    """A rule's text with FALSE in place of some of its alternatives, which do not overlap."""
    for at in sorted(replaced, key=lambda at: -int(given.positions[at])):
        begin = int(given.positions[at])
        text = f"{text[:begin]}FALSE{text[begin + len(given.texts[at].as_py()) :]}"
    return text
