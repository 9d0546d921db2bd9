"""Expressions over a column of strings are evaluated once for each distinct value: same matches, same errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.index import computed_codes, distinct_values
from rules_index.language.evaluation.evaluated import Evaluated

RULES = [
    ("like", "s LIKE '%1%'"),
    ("not_like", "s NOT LIKE 'a%' AND n > 3"),
    ("rlike", "s RLIKE '[02468]$'"),
    ("lower", "lower(s) IN ('a12', 'é', '')"),
    ("null", "upper(s) IS NULL"),
    ("unknown", "(lower(s) = 'a12') IS NULL OR trim(s) <=> ''"),
    ("number", "CAST(s AS INT) > 20"),
    ("two", "concat(s, t) = 'a1x' OR length(concat(s, s)) = 4"),
    ("item", "s LIKE concat('%', '7') OR reverse(s) = '03'"),
]


def rows(count: int, different: int) -> pa.Table:
    """Rows with so many different strings, some of which are numbers, empty, NULL or in other letters."""
    draw = np.random.default_rng(7)
    values = [*("", "é", " ", "12", "30", "-4", "x" * 300, None), *(f"{'aA'[n % 2]}{n}" for n in range(different))]
    picked = draw.integers(0, len(values), count)
    picked[: len(values)] = np.arange(len(values))[:count]
    columns = {"s": pa.array([values[n] for n in picked], pa.string()), "t": [f"{'xyz'[n % 3]}" for n in picked]}
    return pa.table(columns | {"n": draw.integers(0, 9, count)})


@pytest.mark.parametrize("different", [1, 40, 900])
@pytest.mark.parametrize("batch", [1_024, 3_000])
def test_matches_and_errors_are_those_of_every_row(monkeypatch: pytest.MonkeyPatch, batch: int, different: int) -> None:
    table = rows(batch, different)
    by_value = ri.compile_rules(RULES, table.schema)
    found, errors = by_value.match(table).to_pylist(), by_value.errors
    monkeypatch.setattr(distinct_values, "LEAST_ROWS", batch + 1)
    by_row = ri.compile_rules(RULES, table.schema)
    assert by_row.match(table).to_pylist() == found
    assert by_row.errors == errors and errors["number"]
    assert {rule for each in found for rule in each} == {name for name, _ in RULES}


def test_few_values_are_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is before and after them in the array, and where they are repeated only in the first rows."""
    evaluated = []
    evaluate = computed_codes.evaluate

    def counted(*given: Any, **named: Any) -> Evaluated:
        evaluated.append(given[2])
        return evaluate(*given, **named)

    monkeypatch.setattr(computed_codes, "evaluate", counted)
    few, many = pa.array(["ab", None, "b"] * 2_000), pa.array([f"b{number}" for number in range(5_000)])
    compiled = ri.compile_rules([("a", "s LIKE '%b' AND length(s) > 0")], pa.schema({"s": pa.string()}))

    def sizes(strings: pa.Array) -> set[int]:
        evaluated.clear()
        found = compiled.match(pa.table({"s": strings})).to_pylist()
        assert found == [["a"] if text is not None and text.endswith("b") else [] for text in strings.to_pylist()]
        return set(evaluated)

    assert sizes(few) == {3}
    assert sizes(few.slice(1, 4_000)) == {3}
    assert sizes(many) == {5_000}
    assert sizes(pa.concat_arrays([few.slice(0, 1_500), many])) == {6_500}
    assert sizes(pa.nulls(2_000, pa.string())) == {1}
    assert sizes(few.dictionary_encode()) == {3}
    assert sizes(few.slice(0, 1_000)) == {1_000}
