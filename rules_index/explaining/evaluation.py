"""Evaluates the parts of a rule on rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from rules_index.explaining.rule import Part
from rules_index.explaining.truth import Truths, all_of, any_of, negated
from rules_index.index.inputs import truth_values
from rules_index.index.single_rows import values_of_row
from rules_index.language.evaluation.evaluated import Evaluated
from rules_index.language.typed import Leaf


def inputs_of_row(row: Mapping[str, Any], leaves: Collection[Leaf], time_zone: str) -> dict[str, Evaluated]:
    """Returns the value of each leaf by name, as one row. Raises `SchemaError` for a value that is missing or of
    another type."""
    read = values_of_row(row, [*leaves], time_zone)
    return {name: truth_values(each) if isinstance(each, np.ndarray) else each for name, each in read.items()}


def truth_of_parts(rule: Part, truths: Truths) -> dict[Part, np.ndarray]:
    """The truth codes [rows] of each part."""
    found: dict[Part, np.ndarray] = {}

    def evaluate_part(part: Part) -> np.ndarray:
        """Returns the truth codes of a part, and adds them to `found`, with those of all parts below it."""
        inner = [evaluate_part(child) for child in part.children]
        if part.operator == "NOT":
            truth = negated(inner[0])
        elif part.operator:
            truth = (all_of if part.operator == "AND" else any_of)(inner, truths.rows)
        else:
            assert part.formula is not None
            truth = truths.of(part.formula)
        found[part] = truth
        return truth

    evaluate_part(rule)
    return found
