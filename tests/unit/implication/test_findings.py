"""What is found in a rule set: hand-made sets, planted findings, and small random sets against brute force."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.implication import containment, examples
from rules_index.implication.alternatives import always_true
from rules_index.implication.corner_matching import NamedAttributes
from rules_index.implication.findings import findings
from rules_index.implication.kinds import OF_RULE_SETS as KINDS
from rules_index.implication.region_boxes import boxes_of, conjunctions_of
from rules_index.index.registry import ENGINES
from tests import random_rows
from tests.random_expressions import Grammar
from tests.unit.implication.oracles import CASES, SCHEMA, assert_holds, matched, truth_of, with_derived
from tests.unit.implication.random_pairs import Pairs


def told(rules: list[str], schema: pa.Schema = SCHEMA, engine: str = "auto") -> list[dict[str, Any]]:
    compiled = ri.compile_rules(list(enumerate(rules)), schema, engine=engine)
    assert compiled.rejects.num_rows == 0, compiled.rejects.to_pylist()
    found = findings(compiled).to_pylist()
    for each in found:
        if each["example"] is not None:
            assert each["rule"] in matched(compiled, each["example"], schema), each
    return found


def short(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(each["rule"], each["kind"], each["others"], each["alternative"]) for each in found]


def test_each_kind_of_finding() -> None:
    rules = [
        "a > 3 AND a < 4",
        "a > 3 OR a <= 3 OR a IS NULL",
        "a > 3 AND b = 1",
        "b IN (1) AND a >= 4",
        "a BETWEEN 5 AND 8 AND b = 1",
        "a BETWEEN 100 AND 110",
        "a BETWEEN 105 AND 115",
        "a BETWEEN 103 AND 112",
        "s = 'x' OR (s = 'x' AND c)",
        "(f > 0.1 AND f < 0.100000001) OR c",
    ]
    found = told(rules)
    assert short(found) == [
        (0, "contradiction", [], None),
        (1, "tautology", [], None),
        (2, "duplicate", [3], None),
        (4, "implied", [2], None),
        (7, "implied_by_union", [5, 6], None),
        (8, "redundant_alternative", [], 1),
        (9, "unreachable_alternative", [], 0),
    ]
    examples = {each["rule"]: each["example"] for each in found}
    assert examples[4]["a"] == 5 and examples[4]["b"] == 1
    assert examples[8]["s"] == "x" and examples[8]["c"] is True
    assert [rule for rule, example in examples.items() if example is None] == [0, 1, 9]


def test_a_rule_set_without_findings_and_one_without_rules_have_none() -> None:
    for rules in ([], ["a > 3"], ["a > 3", "a < 3"], ["a > 3 OR b < 3", "a < 3 OR b > 3"]):
        assert told(rules) == []
    assert findings(ri.compile_rules([], SCHEMA)).schema.names == ["rule", "kind", "others", "alternative", "example"]


def test_rules_without_columns() -> None:
    assert short(told(["TRUE", "FALSE", "TRUE OR FALSE"])) == [
        (0, "tautology", [], None),
        (1, "contradiction", [], None),
        (2, "tautology", [], None),
    ]


def test_a_tautology_of_several_alternatives() -> None:
    whole = "(a > 3 AND b > 1) OR a <= 3 OR b <= 1 OR a IS NULL OR b IS NULL"
    assert short(told([whole, "a > 3"])) == [(0, "tautology", [], None)]
    assert told(["(a > 3 AND b > 1) OR a <= 3 OR b <= 1"]) == []


def test_rules_that_imply_each_other_in_other_words_are_told_both_ways() -> None:
    found = told(["(a > 3 AND b > 1) OR (a > 3 AND b <= 1) OR (a > 3 AND b IS NULL)", "a > 3"])
    assert short(found) == [(0, "implied", [1], None), (1, "implied", [0], None)]


def test_duplicates_come_in_groups_and_only_the_first_is_looked_at_further() -> None:
    found = told(["a = 1", "a > 0", "a IN (1)", "a >= 1", "a <=> 1"])
    assert short(found) == [
        (0, "duplicate", [2, 4], None),
        (0, "implied", [1], None),
        (1, "duplicate", [3], None),
    ]


def test_an_alternative_that_is_superfluous_does_not_make_a_rule_another() -> None:
    found = told(["a > 3 OR (a > 5 AND b = 1)", "a > 3"])
    assert short(found) == [(0, "duplicate", [1], None), (0, "redundant_alternative", [], 1)]


def test_what_cannot_be_told_apart_by_columns_is_told_apart_by_their_expressions() -> None:
    found = told(["a + 1 > 5 AND s LIKE '%x%'", "s LIKE '%x%'", "unix_seconds(t) > 5 AND c", "c", "n.x = 3 AND c"])
    assert short(found) == [
        (0, "implied", [1], None),
        (2, "implied", [3], None),
        (4, "implied", [3], None),
    ]
    assert [each["example"] is None for each in found] == [False, True, False]
    assert found[2]["example"]["n.x"] == 3 and "x" in found[0]["example"]["s"]


def test_rows_that_python_cannot_hold_are_no_examples() -> None:
    found = told(["t > TIMESTAMP'9999-12-31 23:59:59.999999Z' AND c", "c"])
    assert short(found) == [(0, "implied", [1], None)] and found[0]["example"] is None


def test_gates_are_compared_by_their_own_alternatives_only() -> None:
    many = "(a = 1 OR b = 1 OR f = 1 OR c) AND (a = 2 OR b = 2 OR f = 2) AND (a = 3 OR b = 3 OR s = 'y' OR n.x = 4)"
    found = told([f"{many} AND a > 0", many, "a = 1 OR b = 1 OR f = 1 OR c", many])
    kinds = {(each["rule"], each["kind"]): each["others"] for each in found}
    assert kinds[(1, "duplicate")] == [3] and kinds[(0, "implied")] in ([1], [2])
    assert all(each["kind"] in ("duplicate", "implied", "implied_by_union") for each in found)


@pytest.mark.parametrize("engine", [*ENGINES])
def test_all_engines_lead_to_the_same_findings(engine: str) -> None:
    rules = ["a > 3", "a > 4 AND b = 1", "a BETWEEN 0 AND 9", "a BETWEEN 2 AND 4", "a BETWEEN 3 AND 20", "b = 1"]
    assert told(rules, engine=engine) == told(rules)


@pytest.mark.slow
@pytest.mark.parametrize("terms", [0, 3, 40])
def test_rules_that_name_few_of_very_many_attributes_lead_to_the_same_findings(
    terms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = "(a = 1 OR b = 1 OR f = 1 OR c) AND (a = 2 OR b = 2 OR f = 2) AND (a = 3 OR b = 3 OR s = 'y' OR n.x = 4)"
    others = ["a > 0", "a > 4 AND b = 1", "a IS NULL", "s IS NULL OR c IS NULL", "NOT c AND s <> 'y'", "b = 1 OR b = 1"]
    hand_made = [
        ["a > 3", "s LIKE '%a%' AND a > 4", "s LIKE '%a%'", "a BETWEEN 2 AND 4", "a > 1 OR a < 9"],
        [f"{many} AND a > 0", many, "a = 1 OR b = 1 OR f = 1 OR c", many, *others],
        others,
    ]
    sets = [(rules, SCHEMA) for rules in hand_made] + [random_set(seed)[:2] for seed in range(CASES // 5)]
    for rules, schema in sets:
        expected = told(rules, schema)
        with monkeypatch.context() as patched:
            patched.setattr(containment, "corner_matching", lambda boxes, c, engine: NamedAttributes(boxes, c, terms))
            patched.setattr(examples, "_MANY_DIMENSIONS", 0)
            patched.setattr(examples, "_TERMS", 4)
            assert short(told(rules, schema)) == short(expected), rules


# Brute force


def random_set(seed: int) -> tuple[list[str], pa.Schema, pa.Table]:
    pairs = Pairs(seed)
    rules = [rule for _ in range(pairs.choice.choice((2, 4, 7))) for rule in pairs.rules()]
    return rules, pairs.schema, pairs.cells()


@pytest.mark.slow
def test_small_rule_sets_are_told_as_brute_force_does() -> None:
    seen: Counter[str] = Counter()
    for seed in range(CASES):
        rules, schema, cells = random_set(seed)
        compiled = ri.compile_rules(list(enumerate(rules)), schema)
        truth = truth_of(compiled, cells)
        found = findings(compiled).to_pylist()
        seen.update(each["kind"] for each in found)
        by_kind = {kind: {each["rule"]: each["others"] for each in found if each["kind"] == kind} for kind in KINDS}
        never, always = ~truth.any(axis=1), truth.all(axis=1)
        assert sorted(by_kind["contradiction"]) == np.flatnonzero(never).tolist(), seed
        assert sorted(by_kind["tautology"]) == np.flatnonzero(always).tolist(), seed
        later = {other for others in by_kind["duplicate"].values() for other in others}
        for first, others in by_kind["duplicate"].items():
            assert (truth[others] == truth[first]).all() and first < min(others), seed
        eligible = [rule for rule in range(len(rules)) if not (never[rule] or always[rule] or rule in later)]
        for rule in eligible:
            others = [other for other in eligible if other != rule]
            held_by = [other for other in others if (truth[rule] <= truth[other]).all()]
            together = bool((truth[rule] <= truth[others].any(axis=0)).all())
            assert (rule in by_kind["implied"]) == bool(held_by), (seed, rule)
            assert not held_by or by_kind["implied"][rule][0] in held_by, (seed, rule)
            assert (rule in by_kind["implied_by_union"]) == (together and not held_by), (seed, rule)
        assert set(by_kind["implied"]) | set(by_kind["implied_by_union"]) <= set(eligible), seed
        assert_unions_are_least(by_kind["implied_by_union"], truth, seed)
        assert_alternatives(compiled, found, truth, cells, seed)
        for each in found:
            has_rows = each["kind"] not in ("contradiction", "tautology", "unreachable_alternative")
            assert (each["example"] is not None) == has_rows, (seed, each)
            assert not has_rows or each["rule"] in matched(compiled, each["example"], schema), (seed, each)
    print(f"{CASES} rule sets: {dict(seen)}")
    assert CASES < 100 or min(seen[kind] for kind in KINDS if kind != "unreachable_alternative") > CASES / 20


def assert_unions_are_least(unions: dict[int, list[int]], truth: np.ndarray, seed: int) -> None:
    for rule, others in unions.items():
        assert len(others) > 1 and (truth[rule] <= truth[others].any(axis=0)).all(), (seed, rule)
        for other in others:
            rest = [each for each in others if each != other]
            assert not (truth[rule] <= truth[rest].any(axis=0)).all(), (seed, rule, other)


def assert_alternatives(
    compiled: ri.CompiledRules, found: list[dict[str, Any]], truth: np.ndarray, cells: pa.Table, seed: int
) -> None:
    """Without the alternatives that are told of a rule is the same, and needs all that are left."""
    conjunctions = conjunctions_of(compiled)
    alone = truth_of(compiled, cells, conjunctions)
    assert len(conjunctions.disjunction_start) == 1
    starts = np.searchsorted(conjunctions.target, np.arange(len(compiled) + 1))
    spoken = {(each["rule"], each["alternative"]): each["kind"] for each in found if each["alternative"] is not None}
    for rule, (begin, end) in enumerate(pairwise(starts.tolist())):
        if truth[rule].all() or not truth[rule].any():
            continue
        left = [at for at in range(begin, end) if (rule, at - begin) not in spoken]
        assert (alone[left].any(axis=0) == truth[rule]).all(), (seed, rule)
        for at in left if len(left) > 1 else []:
            rest = [each for each in left if each != at]
            assert not (alone[rest].any(axis=0) == truth[rule]).all(), (seed, rule, at - begin)
        dead = [at for at in range(begin, end) if not alone[at].any()]
        unreachable = [at for at in range(begin, end) if spoken.get((rule, at - begin)) == "unreachable_alternative"]
        assert dead == unreachable, (seed, rule)


@pytest.mark.slow
def test_rules_of_every_kind_are_never_told_what_does_not_hold() -> None:
    table = random_rows.rows(300, seed=3)
    seen: Counter[str] = Counter()
    for seed in range(CASES // 2):
        grammar = Grammar(seed, variety=0.1)
        texts = [grammar.rule() for _ in range(6)]
        texts += [f"({texts[0]}) OR ({texts[1]})", f"({texts[0]}) AND ({texts[1]})", f"NOT (NOT ({texts[2]}))"]
        compiled = ri.compile_rules(list(enumerate(texts)), table.schema)
        truth = truth_of(compiled, with_derived(table, compiled, table.schema, seed))
        for each in findings(compiled).to_pylist():
            seen[each["kind"]] += 1
            assert_holds(each["kind"], truth[each["rule"]], truth[each["others"]], (seed, each))
            if each["example"] is not None:
                for turn in range(3):
                    matches = matched(compiled, each["example"], table.schema, turn)
                    assert compiled.ids[each["rule"]].as_py() in matches
    print(f"{CASES // 2} rule sets: {dict(seen)}")
    assert seen["implied"] > CASES / 4 and seen["duplicate"] > CASES / 8


# Large sets


def test_planted_findings_are_found_among_many_rules() -> None:
    choice = np.random.default_rng(5)
    count = 6_000
    bounds = choice.integers(0, 1_000_000, (count, 2))
    rules = [f"a > {1_000_000 + x} AND b = {i} AND s = 'k{y % 97}'" for i, (x, y) in enumerate(bounds.tolist())]
    planted = {
        100: ("b = 100 AND s = 'only' AND a > 5 AND a < 5", "contradiction"),
        200: ("c OR c IS NOT TRUE", "tautology"),
        300: (rules[77].replace(" AND ", " and "), None),
        400: (f"{rules[88]} AND f > 1", "implied"),
        500: ("b = 500 AND a BETWEEN 10 AND 30", "implied_by_union"),
        501: ("b = 500 AND a BETWEEN 0 AND 20", None),
        502: ("b = 500 AND a BETWEEN 20 AND 40", None),
        600: ("(b = 600 AND s = 'x') OR (b IN (600, 601) AND s = 'x' AND c)", None),
        700: ("b = 700 OR (b = 700 AND s = 'x')", "redundant_alternative"),
    }
    for place, (text, _) in planted.items():
        rules[place] = text
    found = {(each["rule"], each["kind"]): each["others"] for each in told(rules)}
    expected = {(place, kind): [] for place, (_, kind) in planted.items() if kind is not None}
    expected |= {(77, "duplicate"): [300], (400, "implied"): [88], (500, "implied_by_union"): [501, 502]}
    assert found == expected


@pytest.mark.slow
def test_rules_that_very_many_others_hold_are_found_by_samples() -> None:
    count = 4_200
    values = np.random.default_rng(6).permutation(count).tolist()
    found = told([f"a > {value}" for value in values])
    assert Counter(each["kind"] for each in found) == {"implied": count - 1}
    assert all(values[each["others"][0]] < values[each["rule"]] for each in found)
    wide = told([f"a BETWEEN {value} AND {value + 1_700}" for value in values])
    assert Counter(each["kind"] for each in wide) == {"implied_by_union": count - 2}


@pytest.mark.slow
def test_samples_never_lead_to_what_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containment, "_LEAST_SAMPLED", 0)
    monkeypatch.setattr(containment, "_SAMPLES", (3, 2, 1))
    monkeypatch.setattr(containment, "MOST_COVERING", 2)
    seen: Counter[str] = Counter()
    for seed in range(CASES):
        rules, schema, cells = random_set(seed)
        compiled = ri.compile_rules(list(enumerate(rules)), schema)
        truth = truth_of(compiled, cells)
        found = findings(compiled).to_pylist()
        for each in found:
            assert_holds(each["kind"], truth[each["rule"]], truth[each["others"]], (seed, each))
        seen.update(each["kind"] for each in found)
        implied = [each["rule"] for each in found if each["kind"] in ("implied", "implied_by_union")]
        assert len(set(implied)) == len(implied), seed
    assert seen["implied"] > 0


def test_a_rule_with_thousands_of_disjunctions_takes_little_memory() -> None:
    """One rule must not use up the memory of the machine that lints the others: these took 600 MB."""
    pairs = ", ".join(f"({number}, {number})" for number in range(4_100))
    schema = pa.schema({"a": pa.int32(), "b": pa.int32()})
    boxes = boxes_of(
        ri.compile_rules([("many", f"(a, b) NOT IN ({pairs})"), ("all", "a = 1 OR a <> 1 OR a IS NULL")], schema)
    )
    always_true(boxes_of(ri.compile_rules([("one", "a = 1")], schema)))  # compiles the kernel
    tracemalloc.start()
    try:
        found = always_true(boxes).tolist()
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == [True, False]  # in the order of their ids
    assert most < 300 << 20
