"""One rule implies another: hand-made cases, and random pairs of every type against brute force."""

from __future__ import annotations

import numpy as np
import pytest

import rules_index as ri
from rules_index.implication.implies import decide, implies
from rules_index.implication.region_boxes import Codes, boxes_of
from rules_index.implication.search_limits import Budget
from tests import random_rows
from tests.random_expressions import Grammar
from tests.unit.implication.oracles import CASES, SCHEMA, shows
from tests.unit.implication.random_pairs import Pairs

ANY_OF = "a = 1 OR b = 1 OR f = 1 OR c"
MANY = f"({ANY_OF}) AND (a = 2 OR b = 2 OR f = 2 OR s = 'x') AND (a = 3 OR b = 3 OR s = 'y' OR n.x = 4)"
"""So many combinations that its ORs become shared disjunctions."""


@pytest.mark.parametrize(
    ("p", "q", "expected"),
    [
        ("a > 3", "a >= 4", True),
        ("a >= 4", "a > 3", True),
        ("a > 3 AND a < 5", "a = 4", True),
        ("a > 3 AND a < 4", "b = 7", True),
        ("f > 0.1 AND f < 0.100000001", "c", True),
        ("f = 0.5D", "f <= 0.5D", True),
        ("f > 0.5D", "f < double('Infinity')", False),
        ("a = 1 OR a = 2 AND b > 3", "a IN (1, 2)", True),
        ("a IN (1, 2)", "a = 1 OR a = 2 AND b > 3", False),
        ("a IS NOT NULL", "a > 3 OR a <= 3", True),
        ("TRUE", "a > 3 OR a <= 3", False),
        ("TRUE", "a > 3 OR a <= 3 OR a IS NULL", True),
        ("TRUE", "FALSE", False),
        ("FALSE", "TRUE", True),
        ("a = NULL", "FALSE", True),
        ("a = 1", "b = NULL", False),
        ("NOT (a > 3)", "a <= 3", True),
        ("a <> 3", "NOT (a <=> 3)", True),
        ("NOT (a <=> 3)", "a <> 3", False),
        ("a <=> NULL", "a IS NULL", True),
        ("c", "NOT c", False),
        ("c AND NOT c", "FALSE", True),
        ("s LIKE 'ab%'", "s LIKE 'a%'", True),
        ("s LIKE 'a%'", "s LIKE 'ab%'", False),
        ("n.x = 3", "n.x > 2", True),
        ("n.x = 3", "a = 3", False),
        ("(a > 1 AND b > 1) OR (a <= 1 AND b > 1)", "b > 1", True),
        ("b > 1", "(a > 1 AND b > 1) OR (a <= 1 AND b > 1)", False),
        ("b > 1 AND a IS NOT NULL", "(a > 1 AND b > 1) OR (a <= 1 AND b > 1)", True),
        (MANY, ANY_OF, True),
        (ANY_OF, MANY, False),
        (MANY, f"({ANY_OF}) AND (n.x IS NULL OR n.x IS NOT NULL)", True),
        (MANY, MANY, True),
        # expressions over columns: what is shown is shown by a row
        ("a + 1 > 5", "a + 1 > 4", True),
        ("a + 1 > 5", "a > 4", None),
        ("a > 4", "a + 1 > 5", False),
        ("a < b", "a < b OR c", True),
        ("a <= b", "a < b", False),
        ("a + 1 > 5", "a IS NOT NULL", True),
        ("s IS NOT NULL", "s LIKE '%a' OR s NOT LIKE '%a'", True),
        # comparisons of the same values
        ("a < b", "a <= b", True),
        ("a < b", "b > a", True),
        ("a < b OR a > b", "a <> b", True),
        ("a < b AND b < n.x", "a < n.x", True),
        ("a BETWEEN b AND n.x", "b <= n.x", True),
        ("a IS NOT NULL AND b IS NOT NULL", "a < b OR a >= b", True),
        ("TRUE", "a < b OR a >= b", False),
        ("a <> a", "c", True),
        ("TRUE", "a <=> a", True),
        ("TRUE", "a = a", False),
        ("a + b > n.x", "a + b >= n.x", True),
        ("a < b AND b < f", "a < f", None),
        ("s LIKE '%b'", "s LIKE '%ab'", False),
        ("s LIKE '%ab'", "s LIKE '%b'", None),
        ("octet_length(s) > 5", "s IS NOT NULL", True),
        ("s IS NULL", "octet_length(s) IS NULL", True),
        ("hash(s) > 5", "s IS NOT NULL", False),
        # what only Spark can evaluate
        ("length(soundex(s)) > 5 AND a > 3", "a > 3", True),
        ("length(soundex(s)) > 5", "length(soundex(s)) > 4", True),
        ("length(soundex(s)) > 5 AND a > 3", "a > 4", None),
        ("length(soundex(s)) > 5", "s IS NOT NULL", True),
        ("s IS NULL", "length(soundex(s)) IS NULL", None),
        ("a > 3", "a > 3 AND length(soundex(s)) > 5", False),
        ("a > 3 AND s IS NOT NULL", "a > 3 AND length(soundex(s)) > 5", None),
        ("a > 3", "a > 3 AND coalesce(length(soundex(s)), 6) > 5", None),
        ("n IS NOT NULL", "n.x IS NOT NULL", None),
        ("a > 3 OR length(soundex(s)) > 5", "a > 4 AND length(soundex(s)) > 5", False),
    ],
)
def test_what_implies_what(p: str, q: str, expected: bool | None) -> None:
    assert implies(p, q, SCHEMA) is expected
    found = decide(p, q, SCHEMA)
    assert found.implied is expected and (found.row is not None) == (expected is False)
    if found.row is not None:
        assert shows(p, q, SCHEMA, found.row)


def test_texts_that_do_not_compile_are_refused() -> None:
    for p, q, error, message in (
        ("a >", "a > 3", "SYNTAX", "first rule"),
        ("a > 3", "d > 3", "UNKNOWN_COLUMN", "second rule"),
        ("a + 1", "a > 3", "NOT_BOOLEAN", "first rule"),
    ):
        with pytest.raises(ri.RuleError, match=message) as refused:
            implies(p, q, SCHEMA)
        assert refused.value.error == error and refused.value.position is not None


def test_time_zones_decide_where_timestamps_lie() -> None:
    p, q = "t > TIMESTAMP'2024-06-01 00:00:00'", "t > TIMESTAMP'2024-06-01 00:00:00Z'"
    assert implies(p, q, SCHEMA) is True
    assert implies(p, q, SCHEMA, time_zone="America/New_York") is True
    assert implies(p, q, SCHEMA, time_zone="Asia/Tokyo") is False


def test_a_spent_budget_leaves_the_answer_open() -> None:
    # the diagonal of a cube, cut away cell by cell
    p = "a BETWEEN 0 AND 60 AND b BETWEEN 0 AND 60"
    q = " OR ".join(f"(a = {i} AND b <> {60 - i}) OR (b = {60 - i} AND a BETWEEN 0 AND 60)" for i in range(61))
    assert implies(p, q, SCHEMA, budget=Budget(splits=50)) is None
    assert implies(p, q, SCHEMA) is True


def test_two_rules_with_many_gates_are_not_written_out_for_ever() -> None:
    p = " AND ".join(f"(a > {i} OR b > {i} OR f > {i} OR n.x > {i})" for i in range(12))
    assert implies(p, f"({p}) OR c", SCHEMA) is True
    assert implies(p, "c", SCHEMA) is None


@pytest.mark.slow
def test_plain_columns_are_decided_as_brute_force_does() -> None:
    answers: dict[bool | None, int] = {True: 0, False: 0, None: 0}
    for seed in range(CASES):
        pairs = Pairs(seed)
        p, q = pairs.rules()
        found = decide(p, q, pairs.schema)
        assert found.implied is not shows(p, q, pairs.schema, pairs.cells()), (seed, p, q)
        if found.row is not None:
            assert shows(p, q, pairs.schema, found.row), (seed, p, q)
        answers[found.implied] += 1
    print(f"implied, not implied, undecided of {CASES} pairs: {answers}")
    assert answers[True] > CASES / 10 and answers[False] > CASES / 10 and answers[None] == 0


def test_all_cells_are_met_by_the_rows_of_brute_force() -> None:
    for seed in range(CASES // 5):
        pairs = Pairs(seed)
        compiled = ri.compile_rules(list(enumerate(pairs.rules())), pairs.schema, engine="scan")
        codes = Codes.of(compiled.attributes, compiled.regions)
        cells = pairs.cells()
        for number, (attribute, regions) in enumerate(zip(compiled.attributes, compiled.regions, strict=True)):
            met = np.empty(cells.num_rows, np.int32)
            regions.encode(cells.column(attribute.name).combine_chunks(), None, met)
            expected = codes.region[codes.start[number] : codes.start[number + 1]]
            assert np.array_equal(np.unique(met), expected), (seed, attribute)


@pytest.mark.slow
def test_rules_of_every_kind_are_never_answered_wrongly() -> None:
    table = random_rows.rows(400, seed=3)
    answers: dict[bool | None, int] = {True: 0, False: 0, None: 0}
    for seed in range(CASES):
        grammar = Grammar(seed, variety=0.1)
        one, other = grammar.rule(), grammar.rule()
        form = ("({0})", "({0}) OR ({1})", "{1}", "NOT (NOT ({0}))", "({0}) AND ({1})")[seed % 5]
        p, q = one, form.format(one, other)
        found = decide(p, q, table.schema)
        answers[found.implied] += 1
        if found.implied is True:
            assert not shows(p, q, table.schema, table, seed), (seed, p, q)
        if found.row is not None:
            for turn in range(5):
                assert shows(p, q, table.schema, found.row, turn), (seed, p, q)
    print(f"implied, not implied, undecided of {CASES} pairs: {answers}")
    assert answers[True] > CASES / 4 and answers[False] > CASES / 20


def test_the_same_rule_in_other_words_has_the_same_boxes() -> None:
    rules = ["a > 3 AND b = 1", "b IN (1) AND NOT (a <= 3)", "a >= 4 AND b = 1 AND (c OR c IS NOT TRUE)"]
    compiled = ri.compile_rules(list(enumerate(rules)), SCHEMA, engine="scan")
    boxes = boxes_of(compiled)
    a = boxes.arrays
    terms = [
        list(zip(a.dimensions[s:e], a.sets[s:e], strict=True)) for s, e in zip(a.start[:3], a.start[1:4], strict=True)
    ]
    assert terms[0] == terms[1] == terms[2]
