"""Explains a rule on one row: which of its predicates are TRUE, and which keep it from matching."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from rules_index.errors import SchemaError
from rules_index.explaining.evaluation import inputs_of_row, truth_of_parts
from rules_index.explaining.near_misses import near_miss
from rules_index.explaining.rule import Part, rule_of
from rules_index.explaining.tree import Explanation, shown
from rules_index.explaining.truth import FALSE, TRUE, VALUES, Truths
from rules_index.index.single_rows import value_in
from rules_index.language.evaluation.evaluated import Evaluated
from rules_index.language.typed import authors_text, leaves_of

if TYPE_CHECKING:
    from rules_index.index.compiled import CompiledRules, RuleId


def explain(
    compiled: CompiledRules, row: Mapping[str, Any], rule_id: RuleId, fixed: Collection[str] = ()
) -> Explanation:
    """See `CompiledRules.explain`."""
    rule = rule_of(compiled, rule_id)
    inputs = inputs_of_row(row, rule.leaves, compiled.time_zone)
    truths = truth_of_parts(rule, Truths(inputs, 1))
    known = {part: int(truth[0]) for part, truth in truths.items()}
    found = _explained(rule, row, inputs, known, None if known[rule] == TRUE else TRUE)

    def seek() -> Any:
        return None if found.matched else near_miss(compiled, rule, rule_id, row, fixed)

    return Explanation(
        found.text, found.value, found.operator, found.values, found.computed, found.children, found.stands_alone,
        rule_id, seek,
    )  # fmt: skip


def _explained(
    part: Part, row: Mapping[str, Any], inputs: Mapping[str, Evaluated], truth: Mapping[Part, int], wanted: int | None
) -> Explanation:
    """Returns the explanation of a part. `wanted` is the truth code that the part alone would need for the rule to
    match; None if no change of this part alone is enough, or the rule matches."""
    if not part.children:
        stands_alone = wanted is not None and truth[part] != wanted
        return Explanation(
            part.text, VALUES[truth[part]], "", _values(part, row), _computed(part, inputs),
            stands_alone=stands_alone,
        )  # fmt: skip
    unmet = sum(truth[child] != wanted for child in part.children)
    children = []
    for child in part.children:
        others = unmet - (truth[child] != wanted)
        children.append(_explained(child, row, inputs, truth, _wanted(part.operator, wanted, others)))
    return Explanation(part.text, VALUES[truth[part]], part.operator, children=tuple(children))


def _wanted(operator: str, wanted: int | None, others: int) -> int | None:
    """Returns the truth code that a child alone would need for its parent to have the truth `wanted`, or None. others:
    how many of its siblings have another truth than `wanted`."""
    if wanted is None:
        return None
    if operator == "NOT":
        return FALSE if wanted == TRUE else TRUE
    decisive = FALSE if operator == "AND" else TRUE
    return wanted if wanted == decisive or not others else None


def _values(part: Part, row: Mapping[str, Any]) -> dict[str, Any]:
    """The row's values of a predicate's columns, without those that the row lacks because only Spark reads them."""
    found = {}
    for leaf in part.columns:
        try:
            found[leaf.name] = value_in(row, leaf)
        except SchemaError:
            continue
    return found


def _computed(part: Part, inputs: Mapping[str, Evaluated]) -> dict[str, str]:
    """Returns the values, formatted, of the texts in a predicate that only Spark evaluates; not of the predicate
    itself."""
    found = {}
    for attribute in part.attributes:
        for leaf in leaves_of(attribute):
            text = authors_text(leaf)
            if leaf.text is None or text == part.text:
                continue
            result = inputs[leaf.name]
            raised = result.raised is not None and bool(result.raised[0])
            found[text] = "error" if raised else shown(result.values[0].as_py())
    return found
