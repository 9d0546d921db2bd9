"""What lint tells of rules' texts: every kind with the part that is meant, and nothing that does not hold."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.implication import alternatives
from rules_index.implication import lint as lint_module
from rules_index.implication.kinds import LINT_KINDS, MISTAKES
from rules_index.implication.lint import lint
from rules_index.implication.messages import example_texts, named, quoted
from rules_index.implication.text_spans import alternatives_of
from tests import random_rows
from tests.cases import QUICK
from tests.random_expressions import Grammar
from tests.unit.implication.oracles import CASES, SCHEMA, assert_holds, truth_of, with_derived
from tests.unit.implication.random_pairs import Pairs


def told(*rules: str) -> list[tuple[Any, ...]]:
    found = lint(list(enumerate(rules)), SCHEMA).to_pylist()
    return [(each["rule_id"], each["kind"], each["other_ids"], each["text"]) for each in found]


@pytest.mark.parametrize(
    ("rule", "kind", "text"),
    [
        ("a >", "rejected", None),
        ("nowhere = 1", "rejected", None),
        ("a > 3 AND a < 4", "contradiction", None),
        ("a > 3 OR a <= 3 OR a IS NULL", "tautology", None),
        ("a <> NULL OR c", "null_comparison", "a <> NULL"),
        ("c OR null > a", "null_comparison", "null > a"),
        ("c OR s NOT IN ('x', NULL)", "null_comparison", "s NOT IN ('x', NULL)"),
        ("c OR NOT (s IN ('x', NULL))", "null_comparison", "s IN ('x', NULL)"),
        ("c OR NOT (a > 5 OR s IN ('x', NULL))", "null_comparison", "s IN ('x', NULL)"),
        ("c OR a BETWEEN NULL AND 9", "null_comparison", "a BETWEEN NULL AND 9"),
        ("c OR a = CAST(NULL AS INT)", "null_comparison", "a = CAST(NULL AS INT)"),
        ("a > 5 OR b = 1 OR a > 7", "redundant_alternative", "a > 7"),
        ("((a > 5 AND b = 1) OR (b = 1))", "redundant_alternative", "(a > 5 AND b = 1)"),
        ("a = 1 OR b = 2 OR a = 1", "redundant_alternative", "a = 1"),
        ("unix_seconds(t) > 5 OR unix_seconds(t) > 5 AND c", "redundant_alternative", "unix_seconds(t) > 5 AND c"),
        ("s = 'a or b' OR s LIKE 'a%'", "redundant_alternative", "s = 'a or b'"),
        ("a > 5 AND a < 3 OR b = 1", "unreachable_alternative", "a > 5 AND a < 3"),
        ("(f > 0.1 AND f < 0.100000001) OR c", "unreachable_alternative", "(f > 0.1 AND f < 0.100000001)"),
        ("c /* or */ OR a > 5 AND a < 3 -- or", "unreachable_alternative", "a > 5 AND a < 3"),
        ("a > 5 AND (c OR a > 3)", "redundant_alternative", "c"),
        ("(a < b OR c) AND a >= b", "unreachable_alternative", "a < b"),
    ],
)
def test_each_kind_alone(rule: str, kind: str, text: str | None) -> None:
    (found,) = lint([("r", rule)], SCHEMA).to_pylist()
    assert (found["rule_id"], found["kind"], found["text"]) == ("r", kind, text)
    if text is not None:
        assert rule[found["position"] :].startswith(text) and quoted(text) in found["message"]
    if kind == "redundant_alternative" and found["example"] is not None and "hour" not in rule:
        assert ri.compile_rules([(0, text), (1, rule)], SCHEMA).match(row_of(found["example"])).to_pylist() == [[0, 1]]


def test_rules_of_very_many_alternatives_are_not_searched_for_redundant_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternatives, "MOST_ALTERNATIVES", 20)
    rules = [" OR ".join(f"a = {i % (count - 1)} AND b > 1" for i in range(count)) for count in (20, 21)]
    assert [each[:2] for each in told(*rules) if each[1] == "redundant_alternative"] == [(0, "redundant_alternative")]


@pytest.mark.parametrize(
    ("rule", "instead"),
    [
        ("a = NULL", "`a IS NULL`"),
        ("NULL == a", "`a IS NULL`"),
        ("a != NULL", "`a IS NOT NULL`"),
        ("a <= NULL", "IS NULL or IS NOT NULL"),
        ("a + 1 >=NULL", "IS NULL or IS NOT NULL"),
    ],
)
def test_a_comparison_with_null_is_told_what_to_write(rule: str, instead: str) -> None:
    (found,) = lint([("r", rule)], SCHEMA).to_pylist()
    assert found["message"].endswith(f"Write {instead}.")


def row_of(example: dict[str, Any]) -> pa.Table:
    return pa.table({name: pa.array([example.get(name)], SCHEMA.field(name).type) for name in SCHEMA.names})


@pytest.mark.parametrize(
    "rule",
    [
        "(a < b OR c) AND (a >= b OR s = 'x')",
        "(a = 1 OR b = 2) AND (b = 2 OR c) AND (a = 1 OR c)",
        "(s LIKE '%x' OR c) AND (s IS NULL OR a = 1)",
        "(a < 5 OR a < b) AND (a > 7 OR a >= b)",
        "s LIKE '%x%' AND (s IS NULL OR s NOT LIKE '%y')",
        "a IS NULL",
        "a <=> NULL",
        "a IN (1, NULL)",
        "NOT (a NOT IN (1, NULL))",
        "a IS NOT DISTINCT FROM NULL",
        "coalesce(a, NULL, 3) = 3",
        "nullif(a, 3) = 4",
        "a > 5 OR b > 5 OR unix_seconds(t) = 1",
        "CASE WHEN a = 1 OR a = 1 THEN c ELSE NULL END",
        "a + 1 > 5 OR a > 4",
        " True ",
    ],
)
def test_what_is_in_order_is_not_told(rule: str) -> None:
    assert told(rule) == []


def test_rules_beside_each_other() -> None:
    rules = ["a = 1 AND c", "a = 1", "b > 1", "1 < b", "b BETWEEN 2 AND 9", "f > 1", "f <= 1", "f < 9 AND f > 0"]
    assert told(*rules) == [
        (0, "implied", [1], None),
        (2, "duplicate", [3], None),
        (4, "implied", [2], None),
        (7, "implied_by_union", [5, 6], None),
    ]


def test_the_table_and_its_messages() -> None:
    rules = pl.DataFrame({"rule_id": ["late", "hub", "off", "odd"], "enabled": [True, True, False, None],
                          "expression": ["a > 60", "s = 'JFK' AND a > 90", "a >", "a = 1 AND a = 2"]})  # fmt: skip
    found = lint(rules, SCHEMA)
    assert found.schema.names == ["rule_id", "kind", "other_ids", "message", "position", "text", "example"]
    assert found.select(["rule_id", "kind", "other_ids"]).to_pylist() == [
        {"rule_id": "hub", "kind": "implied", "other_ids": ["late"]},
        {"rule_id": "odd", "kind": "contradiction", "other_ids": []},
    ]
    assert found["example"].to_pylist() == [{"a": 91, "s": "JFK"}, None]
    implied, contradiction = found["message"].to_pylist()
    assert implied == (
        "Every row that matches this rule matches rule late too (for instance, a row with a = 91, s = 'JFK'). If one "
        "id is enough, remove this rule; if the rows should have this id alone, narrow the other one."
    )
    assert contradiction == (
        "The rule is never TRUE: `a = 1` and `a = 2` exclude each other. Change one of them, write OR if either will "
        "do, or remove the rule."
    )
    assert lint([], SCHEMA).num_rows == 0 and lint(iter([(1, "c")]), SCHEMA).num_rows == 0


def test_comparisons_with_null_explain_what_they_spoil() -> None:
    found = lint([("r", "a = NULL AND c"), ("q", "(b = NULL AND c) OR a = 1")], SCHEMA).to_pylist()
    assert [(each["rule_id"], each["kind"]) for each in found] == [
        ("q", "null_comparison"),
        ("r", "contradiction"),
    ]
    assert "`a = NULL`" in found[1]["message"] and "Write `a IS NULL`." in found[1]["message"]
    assert (found[1]["position"], found[1]["text"]) == (0, "a = NULL")


def test_a_rule_that_raises_on_every_row_is_told_for_that_alone() -> None:
    schema = pa.schema([("amount", pa.int64())])
    texts = {"high": "amount = 'high'", "large": "amount > 5 AND amount = 'high'", "some": "amount > 3"}
    found = [(each["rule_id"], each["kind"]) for each in lint(texts.items(), schema).to_pylist()]
    assert found == [("high", "always_raises"), ("large", "always_raises")]


def test_bounds_that_leave_no_time_are_told_as_such() -> None:
    rules = pa.table(
        {
            "rule_id": ["never", "at once", "both", "sound"],
            "expression": ["c", "c", "a = 1 AND a = 2", "c"],
            "valid_from": pa.array([3_000_000, 5_000_000, 9_000_000, 1_000_000], pa.timestamp("us", tz="UTC")),
            "valid_to": pa.array([1_000_000, 5_000_000, 8_000_000, None], pa.timestamp("us", tz="UTC")),
        }
    )
    found = lint(rules, SCHEMA, event_time="t", time_zone="Asia/Kolkata").to_pylist()
    assert [(each["rule_id"], each["kind"]) for each in found] == [
        ("at once", "contradiction"), ("both", "contradiction"), ("never", "contradiction"),
    ]  # fmt: skip
    assert found[2]["message"] == (
        "The rule never applies, whatever its expression says: its valid_to, 1970-01-01 05:30:01.000000+0530, is not "
        "after its valid_from, 1970-01-01 05:30:03.000000+0530. Correct one of them."
    )


def test_validity_bounds_count() -> None:
    day = pa.array([0, 1_000_000, 0], pa.timestamp("us", tz="UTC"))
    rules = pa.table({"rule_id": [1, 2, 3], "expression": ["c", "c", "c AND a = 1 OR c"], "valid_from": day})
    found = lint(rules, SCHEMA, event_time="t").to_pylist()
    assert [(each["rule_id"], each["kind"], each["other_ids"]) for each in found] == [
        (1, "duplicate", [3]),
        (2, "implied", [1]),
        (3, "redundant_alternative", []),
    ]


def test_an_example_satisfies_a_rule_with_bounds_or_is_none() -> None:
    since = pa.array([1_000_000], pa.timestamp("us", tz="UTC"))
    rules = pa.table({"rule_id": [0], "expression": ["a > 5 OR a > 6"], "valid_from": since})
    (found,) = lint(rules, SCHEMA, event_time="t").to_pylist()
    assert (found["kind"], found["text"], found["example"]) == ("redundant_alternative", "a > 6", None)
    assert "for instance" not in found["message"]
    rules = pa.table({"rule_id": [0, 1], "expression": ["a IS NULL"] * 2, "valid_from": [since[0], None]})
    (found,) = lint(rules, SCHEMA, event_time="t").to_pylist()
    assert found["kind"] == "implied" and found["example"]["t"] is not None
    assert "NULL in all columns" not in found["message"]


def test_alternatives_are_found_where_their_authors_wrote_them() -> None:
    cases = {
        "a": [],
        "a OR b": [["a", "b"]],
        "((a) OR (b))": [["(a)", "(b)"]],
        "(a OR b) AND c": [["a", "b"]],
        "(a) OR (b OR c)": [["b", "c"], ["(a)", "(b OR c)"]],
        "NOT a AND (NOT b OR c)": [["NOT b", "c"]],
        "x['or'] OR y.or": [["x['or']", "y.or"]],
        "CASE WHEN a OR b THEN c END OR d": [["CASE WHEN a OR b THEN c END", "d"]],
        "`or` or `a or b`": [["`or`", "`a or b`"]],
        "a BETWEEN 1 AND 2 OR c": [["a BETWEEN 1 AND 2", "c"]],
        "a BETWEEN 1 AND 2 AND (b OR c)": [["b", "c"]],
        "'x' 'or' or a": [["'x' 'or'", "a"]],
        # where less than TRUE counts, too
        "f(a OR b)": [],
        "NOT (a OR b)": [],
        "(a OR b) IS NULL": [],
        "c AND (a AND (b OR d)) IS NOT TRUE": [],
        "c BETWEEN FALSE AND (a OR b)": [],
        "(a OR b) = (c OR d)": [],
        "x IN (a OR b)": [],
    }
    texts = list(cases)
    found = alternatives_of(pa.array(texts, pa.large_string()))
    parts = found.texts.to_pylist()
    groups: dict[str, list[list[str]]] = {text: [] for text in texts}
    for rule, begin, end in zip(found.rule, found.start[:-1], found.start[1:], strict=True):
        text = texts[rule]
        groups[text].append(parts[begin:end])
        for part, position in zip(parts[begin:end], found.positions[begin:end], strict=True):
            assert text[position:].startswith(part)
    assert groups == cases
    whole = alternatives_of(pa.array(["((a OR b))", "a OR (b OR c) AND d", "(a OR b) AND (c OR d)"], pa.large_string()))
    assert whole.is_whole.tolist() == [True, False, True, False, False]


def test_ids_and_rows_are_named_shortly() -> None:
    assert named([1]) == "1" and named(["a", "b", "c"]) == "a, b and c"
    assert named(list(range(1_200))) == "0, 1, 2, 3, 4 and 1,195 more"
    assert quoted("a   >\n1") == "`a > 1`" and len(quoted("x" * 500)) == 122
    rows = pa.array([{"a": 1, "s": "it's", "d": 20_000}, {"a": None, "s": None, "d": None}, None],
                    pa.struct([("a", pa.int32()), ("s", pa.string()), ("d", pa.date32())]))  # fmt: skip
    rules = ["A > 0 AND s <> '' AND d IS NOT NULL", "a IS NULL", "s = ''"]
    assert example_texts(rows, rules) == ["a = 1, s = 'it\\'s', d = 2024-10-04", "NULL in all columns", None]
    assert example_texts(rows, ["a > 0", "a IS NULL", ""])[0] == "a = 1"


def without(rule: str, each: dict[str, Any]) -> str:
    """A rule with what a finding says of a part of it in place of that part: NULL, or what does not make it TRUE."""
    begin, end = each["position"], each["position"] + len(each["text"])
    of_null = "CAST(NULL AS BOOLEAN)" if each["kind"] == "null_comparison" else "FALSE"
    return rule[:begin] + ("TRUE" if "never FALSE, so" in each["message"] else of_null) + rule[end:]


@pytest.mark.slow
def test_random_rules_are_told_only_what_holds() -> None:
    table = random_rows.rows(300, seed=9)
    seen: Counter[str] = Counter()
    for seed in range(CASES // 2):
        if seed % 2:
            grammar = Grammar(seed, variety=0.1)
            rules, schema, rows = [grammar.rule() for _ in range(5)], table.schema, table
            rules += [f"({rules[0]}) OR ({rules[1]}) OR ({rules[0]})", f"({rules[2]}) AND ({rules[0]}) OR ({rules[0]})"]
        else:
            pairs = Pairs(seed)
            rules = [rule for _ in range(3) for rule in pairs.rules()]
            schema, rows = pairs.schema, pairs.cells()
        found = lint(list(enumerate(rules)), schema).to_pylist()
        seen.update(each["kind"] for each in found)
        of_texts = [each for each in found if each["kind"] in MISTAKES]
        found = [each for each in found if each["kind"] not in MISTAKES]
        changed = [without(rules[each["rule_id"]], each) for each in found if each["text"] is not None]
        changed += [text for each in of_texts for text in probes_of(each)]
        both = ri.compile_rules(list(enumerate([*rules, *changed])), schema)
        assert both.rejects.num_rows == sum(each["kind"] == "rejected" for each in found)
        rows = with_derived(rows, both, schema, seed)
        truth = np.zeros((len(rules) + len(changed), rows.num_rows), bool)
        truth[both.ids.to_numpy()] = truth_of(both, rows)
        replaced = iter(truth[len(rules) :])
        for each in found:
            rule, others = truth[each["rule_id"]], truth[each["other_ids"]]
            assert_holds(each["kind"], rule, others, (seed, each))
            if each["text"] is not None:
                assert (next(replaced) == rule).all(), (seed, rules[each["rule_id"]], each)
        for each in of_texts:
            holds = [next(replaced) for _ in probes_of(each)]
            assert not holds or any(not some.any() for some in holds), (seed, rules[each["rule_id"]], each)
    print(f"{CASES // 2} rule sets: {dict(seen)}")
    assert QUICK or min(seen[kind] for kind in LINT_KINDS if kind not in ("rejected", "null_comparison", *MISTAKES)) > 0


def probes_of(found: dict[str, Any]) -> list[str]:
    """Rules of which one must match no row for a finding of a text to hold."""
    text = f"({found['text']})"
    if found["kind"] in ("never_true", "always_raises") and "divides by 0" not in found["message"]:
        return [text, f"NOT {text}"]
    return [f"NOT {text}", text] if found["kind"] == "true_unless_null" else []


@pytest.mark.slow
def test_many_findings_are_told_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lint_module, "_MOST_EXPLAINED", 3)
    count = 3_000
    rules = [f"a = {i} AND b > 1 OR (a = {i} AND b > {1 + i % 7})" for i in range(count)]
    rules += [f"a = {i} AND a = {i + 1}" for i in range(5)]
    found = lint(list(enumerate(rules)), SCHEMA)
    assert Counter(found["kind"].to_pylist()) == {"redundant_alternative": count, "contradiction": 5}
    assert sum("`a = " in message for message in found["message"].to_pylist()[count:]) == 3
    assert found["rule_id"].to_pylist() == list(range(count + 5))
