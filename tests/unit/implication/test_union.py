"""Rules that others imply together, against matching rows of all their cells, and against `implies`."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import rules_index as ri
from tests import random_rows
from tests.cases import quick_first
from tests.random_expressions import Grammar
from tests.unit.implication.oracles import CASES, SCHEMA, truth_of
from tests.unit.implication.random_pairs import Pairs

EVERY_TYPE = random_rows.rows(1, seed=0).schema


def told(rules: object, others: object, schema: pa.Schema = SCHEMA, **options: str) -> dict[str | int, bool | None]:
    found = ri.implied_by_union(rules, others, schema, **options)  # type: ignore[arg-type]
    return dict(zip(found["rule_id"].to_pylist(), found["implied"].to_pylist(), strict=True))


@pytest.mark.parametrize("seed", range(CASES))
def test_over_plain_columns_it_is_what_all_cells_say(seed: int) -> None:
    pairs = Pairs(seed)
    texts = [text for _ in range(random.Random(seed).choice((1, 2, 5))) for text in pairs.rules()]
    rules, others = list(enumerate(texts[0::2])), list(enumerate(texts[1::2]))
    compiled = ri.compile_rules(list(enumerate(texts)), pairs.schema, engine="scan")
    truth = truth_of(compiled, pairs.cells())
    union = truth[1::2].any(axis=0)
    expected = {number: bool((truth[2 * number] <= union).all()) for number in range(len(rules))}
    assert told(rules, others, pairs.schema) == expected, texts


@pytest.mark.parametrize("seed", range(CASES))
def test_it_never_says_otherwise_than_implies(seed: int) -> None:
    grammar = Grammar(seed, variety=0.3)
    p, q, weaker = grammar.boolean(2), grammar.boolean(2), grammar.boolean(1)
    for one, other in ((p, q), (p, f"({p}) OR ({q})"), (f"({p}) AND ({weaker})", p)):
        try:
            expected = ri.implies(one, other, EVERY_TYPE)
        except ri.RuleError:
            continue
        found = told([("p", one)], [("q", other)], EVERY_TYPE)["p"]
        assert found is None or expected is None or found == expected, (one, other)


def test_several_rules_cover_one_that_none_of_them_does() -> None:
    others = [("low", "a < 10"), ("high", "a >= 10 AND b > 0"), ("rest", "a >= 10 AND b <= 0"), ("null", "b IS NULL")]
    rules = [("sure", "a > 3"), ("gap", "a IS NULL"), ("some", "a IS NOT NULL AND b = 4")]
    assert told(rules, others) == {"gap": False, "some": True, "sure": True}
    assert told(rules, others[:3]) == {"gap": False, "some": True, "sure": False}
    assert told(rules, []) == {"gap": False, "some": False, "sure": False}
    assert told([], others) == {}


def test_rules_that_never_or_always_match() -> None:
    assert told([("never", "a > 3 AND a < 2"), ("any", "s = 'x'")], []) == {"any": False, "never": True}
    assert told([("any", "s = 'x'"), ("all", "TRUE")], [("all", "a IS NULL OR a = a")]) == {"all": True, "any": True}


def test_rules_that_do_not_compile_match_nothing() -> None:
    assert told([("bad", "nosuch = 1"), ("good", "a = 1")], [("bad", "a = "), ("good", "a > 0")]) == {"good": True}
    assert told([("good", "a = 1")], [("good", "a = ")]) == {"good": False}


def test_what_only_spark_evaluates_is_the_same_where_its_text_is() -> None:
    others = [("hour", "unix_seconds(t) > 5"), ("word", "soundex(s) = 'A100' AND a > 0")]
    rules = [
        ("narrower", "unix_seconds(t) > 5 AND a = 7"),
        ("within", "unix_seconds(t) > 6"),
        ("beyond", "unix_seconds(t) > 4"),
        ("plain", "a = 7"),
        ("union", "(soundex(s) = 'A100' OR unix_seconds(t) > 5) AND a > 3"),
    ]
    # a row whose t and s are NULL shows that the plain one is not implied
    expected = {"beyond": None, "narrower": True, "plain": False, "union": True, "within": True}
    assert told(rules, others) == expected


def test_comparisons_of_the_same_values_are_known_to_depend_on_each_other() -> None:
    assert told([("r", "a < b")], [("flipped", "b > a")]) == {"r": True}
    assert told([("r", "a < b")], [("weaker", "a <= b")]) == {"r": True}
    assert told([("r", "a <= b")], [("less", "a < b"), ("same", "a = b")]) == {"r": True}
    assert told([("r", "a <= b")], [("less", "a < b")]) == {"r": False}


def test_validity_counts() -> None:
    def rule(first: int | None, last: int | None) -> dict[str, object]:
        begin, end = (None if day is None else datetime(2024, 1, day, tzinfo=UTC) for day in (first, last))
        return {"rule_id": f"{first}-{last}", "expression": "a > 0", "valid_from": begin, "valid_to": end}

    def table(*rules: dict[str, object]) -> pl.DataFrame:
        kinds = {name: pl.Datetime("us", "UTC") for name in ("valid_from", "valid_to")}
        return pl.DataFrame(rules, schema_overrides=kinds)

    rules = table(rule(3, 6), rule(3, 8), rule(None, None), rule(5, 4))
    expected = {"3-6": True, "3-8": False, "5-4": True, "None-None": False}
    assert told(rules, table(rule(3, 5), rule(5, 7)), event_time="t") == expected
    # a row without an event time has only rules without bounds
    assert not told(rules, table(rule(None, 5), rule(5, None)), event_time="t")["None-None"]
    assert told(rules, table(rule(None, None)), event_time="t") == dict.fromkeys(expected, True)
    assert told(table(rule(None, None)), table(rule(3, 5)), SCHEMA) == {"None-None": False}


@pytest.mark.parametrize("width", quick_first(1, [40, 4_000]))
def test_among_thousands_of_rules(width: int) -> None:
    choice = np.random.default_rng(width)
    low = choice.integers(0, 10_000, (6_000, 2))
    high = low + choice.integers(0, width, (6_000, 2))
    texts = [f"a BETWEEN {a} AND {c} AND b BETWEEN {b} AND {d}" for (a, b), (c, d) in zip(low, high, strict=True)]
    # the first are shrunk copies of others, or of what two others leave no gap between, or anything
    rules = {n: texts[n] for n in range(500)}
    for n in range(500, 1_000):
        a, b, d = low[n, 0], low[n, 1], high[n, 1]
        rules[n] = f"a BETWEEN {a + 1} AND {high[n, 0] + 1} AND b BETWEEN {b} AND {d}"
    found = told(list(rules.items()), list(enumerate(texts)), SCHEMA)
    assert all(found[n] for n in range(500))
    for n in range(500, 1_000, 7):
        a, b, c, d = low[n, 0] + 1, low[n, 1], high[n, 0] + 1, high[n, 1]
        near = (low[:, 0] <= c) & (high[:, 0] >= a) & (low[:, 1] <= d) & (high[:, 1] >= b)
        xs, ys = _corners(a, c, low[near, 0], high[near, 0]), _corners(b, d, low[near, 1], high[near, 1])
        held = np.zeros((len(xs), len(ys)), bool)
        for place in np.flatnonzero(near):
            held |= np.outer(
                (low[place, 0] <= xs) & (xs <= high[place, 0]), (low[place, 1] <= ys) & (ys <= high[place, 1])
            )
        assert found[n] == held.all(), rules[n]


def _corners(first: int, last: int, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """A value of each stretch between first and last in which nothing begins or ends."""
    edges = np.unique(np.concatenate([[first], low, high + 1]))
    return edges[(first <= edges) & (edges <= last)]
