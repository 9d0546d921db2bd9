"""Which rules no row within given ranges can match."""

from __future__ import annotations

import polars as pl
import pytest

import rules_index as ri
from rules_index.implication.disjoint_rules import disjoint_rules
from tests.cases import cases
from tests.unit.implication.random_pairs import Pairs
from tests.unit.implication.test_findings import SCHEMA, truth_of

CONDITION = "a BETWEEN 0 AND 9 AND (b BETWEEN 5 AND 5 OR b IS NULL) AND s IS NULL"


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("a = 5", {}),
        ("a > 9", {"r": "a"}),
        ("a IS NULL", {"r": "a"}),
        ("b IS NULL OR b = 7", {}),
        ("b = 7 AND c", {"r": "b"}),
        ("a > 20 OR a = 15 AND c", {"r": "a"}),
        ("a > 20 OR b = 15", {"r": None}),
        ("a > 20 OR f = 15", {}),
        ("s LIKE 'x%'", {"r": "s"}),
        ("unix_seconds(t) = 1 AND a > 9", {"r": "a"}),
        ("a + 1 > 50", {}),
        ("a > 3 AND a < 3", {}),
        ("nonsense", {}),
    ],
)
def test_what_lies_apart(rule: str, expected: dict[str, str | None]) -> None:
    assert disjoint_rules(pl.DataFrame({"rule_id": ["r"], "expression": [rule]}), SCHEMA, CONDITION) == expected
    numbered = pl.DataFrame({"rule_id": [0, -1], "expression": [rule, "c"]})
    assert disjoint_rules(numbered, SCHEMA, CONDITION) == dict.fromkeys([0][: len(expected)], expected.get("r"))


@pytest.mark.parametrize(
    ("condition", "column"),
    [
        ("a = 1 AND b = 6 OR a = 2 AND b = 7", "b"),
        ("a = 2 AND b = 7 OR a = 1 AND b = 6", "b"),
        ("a = 1 AND b = 5 OR a = 2 AND b = 7", None),
        ("a = 1 AND b = 6 OR a = 3 AND b = 5", "a"),
    ],
)
def test_the_column_that_separates_all_alternatives(condition: str, column: str | None) -> None:
    rules = pl.DataFrame({"rule_id": ["r"], "expression": ["a = 2 AND b = 5"]})
    assert disjoint_rules(rules, SCHEMA, condition) == {"r": column}


def test_a_condition_that_does_not_compile_is_an_error() -> None:
    with pytest.raises(ri.RuleError):
        disjoint_rules(pl.DataFrame({"rule_id": ["r"], "expression": ["c"]}), SCHEMA, "nowhere = 1")


@pytest.mark.slow
def test_random_rules_as_brute_force_has_them() -> None:
    seen, seeds = 0, cases(400)
    for seed in range(seeds):
        pairs = Pairs(seed)
        rules = [rule for _ in range(3) for rule in pairs.rules()]
        condition = " AND ".join(f"({pairs._predicate(name)})" for name in pairs.kinds)
        frame = pl.DataFrame({"rule_id": range(len(rules)), "expression": rules})
        truth = truth_of(ri.compile_rules([*enumerate(rules), (len(rules), condition)], pairs.schema), pairs.cells())
        expected = [rule for rule in range(len(rules)) if truth[rule].any() and not (truth[rule] & truth[-1]).any()]
        assert sorted(disjoint_rules(frame, pairs.schema, condition)) == expected, seed
        seen += len(expected)
    assert seen > seeds / 5
