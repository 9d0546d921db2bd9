"""Mistakes that were planted among rules in order: each is named in words that say what to change, and nothing else."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pytest

import rules_index as ri
from benchmarks.lint import SCHEMA as ACCOUNTS
from benchmarks.lint import is_false, missing, planted
from rules_index.implication.kinds import LINT_KINDS
from rules_index.implication.kinds import MISTAKES as OF_TEXTS
from tests.unit.implication.oracles import CASES

SCHEMA = pa.schema(
    [
        ("carrier", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("flight", pa.int32()),
        ("dep_delay", pa.int32()),
        ("arr_delay", pa.int32()),
        ("distance", pa.int32()),
        ("hour", pa.int8()),
        ("cancelled", pa.bool_()),
        ("sched", pa.timestamp("us", tz="UTC")),
    ]
)


class Mistake(NamedTuple):
    """A rule, the kind that is told of it, the other rules that are named, and words of the message."""

    text: str
    kind: str
    words: tuple[str, ...]
    others: tuple[str, ...] = ()


KINDS = set(LINT_KINDS) - set(OF_TEXTS)
"""Those that rules tell of each other; `test_mistakes.py` has the others."""
NEVER, EXCLUDE = "never TRUE", "exclude each other"
MISTAKES = {
    "column": Mistake("dep_dealy > 60", "rejected", ("did you mean 'dep_delay'?", "Correct it at `dep_dealy > 60`.")),
    "bracket": Mistake("flight = 1 AND (hour > 3", "rejected", ("bracket", "not closed", "Correct it at `(hour > 3`.")),
    "operator": Mistake("flight = 1 AND hour => 3", "rejected", ("Correct it at `=> 3`.",)),
    "unfinished": Mistake("flight = 1 AND", "rejected", ("Correct it at its end.",)),
    "function": Mistake("lenght(origin) > 3", "rejected", ("did you mean 'length'?",)),
    "number": Mistake("dep_delay + 4", "rejected", ("A rule must be a condition", "INT")),
    "and-for-or": Mistake(
        "origin = 'JFK' AND origin = 'LGA'",
        "contradiction",
        ("`origin = 'JFK'` and `origin = 'LGA'` " + EXCLUDE, "write OR"),
    ),
    "signs-swapped": Mistake(
        "distance > 2000 AND carrier = 'AA' AND distance < 500",
        "contradiction",
        ("`distance > 2000` and `distance < 500` " + EXCLUDE, "Change one of them"),
    ),
    "ends-swapped": Mistake(
        "carrier = 'UA' AND dep_delay BETWEEN 90 AND 30",
        "contradiction",
        ("`dep_delay BETWEEN 90 AND 30`", "BETWEEN are in the wrong order"),
    ),
    "no-such-hour": Mistake("hour = 2400", "contradiction", ("`hour = 2400`", "beyond what the column can hold")),
    "between-integers": Mistake("hour > 5 AND hour < 6", "contradiction", ("`hour > 5` and `hour < 6` " + EXCLUDE,)),
    "both-ways": Mistake("dep_delay > arr_delay AND dep_delay < arr_delay", "contradiction", (NEVER, EXCLUDE)),
    "three-together": Mistake(
        "(hour > 9 OR dest = 'SFO') AND hour < 5 AND dest = 'LAX'", "contradiction", (NEVER, EXCLUDE)
    ),
    "or-for-and": Mistake(
        "dest <> 'BOS' OR dest <> 'ORD' OR dest IS NULL",
        "tautology",
        ("every row gets its id", "an OR that should be an AND"),
    ),
    "all-ways": Mistake("dep_delay > 0 OR dep_delay <= 0 OR dep_delay IS NULL", "tautology", ("TRUE on every row",)),
    "copy": Mistake(
        "carrier = 'B6' AND dep_delay > 15",
        "duplicate",
        ("Rules copy-2 and copy-3 say the same", "Keep one"),
        ("copy-2", "copy-3"),
    ),
    "shadowed": Mistake(
        "flight = 22 AND dep_delay > 90",
        "implied",
        ("rule shadow too", "dep_delay = 91, flight = 22", "remove this rule", "narrow the other"),
        ("shadow",),
    ),
    "shadowed-by-function": Mistake(
        "flight = 23 AND unix_seconds(sched) > 5", "implied", ("matches rule flight-23 too",), ("flight-23",)
    ),
    "shadowed-by-two": Mistake(
        "flight = 33 AND distance BETWEEN 100 AND 700",
        "implied_by_union",
        ("at least one of the rules long and short too", "distance = 100, flight = 33", "remove this rule"),
        ("long", "short"),
    ),
    "said-twice": Mistake(
        "flight = 44 OR flight = 44 AND dep_delay > 30",
        "redundant_alternative",
        ("`flight = 44 AND dep_delay > 30` adds nothing", "Remove it, or correct it", "dep_delay = 31"),
    ),
    "said-twice-inside": Mistake(
        "flight = 45 AND (hour > 20 OR hour > 22)", "redundant_alternative", ("`hour > 22` adds nothing", "Remove it")
    ),
    "dead-branch": Mistake(
        "flight = 55 OR (hour > 20 AND hour < 4)",
        "unreachable_alternative",
        ("`(hour > 20 AND hour < 4)` is never TRUE", "Correct it, or remove it"),
    ),
    "dead-branch-inside": Mistake(
        "flight = 56 AND (hour = 3 OR hour > 22 AND hour < 1)",
        "unreachable_alternative",
        ("`hour > 22 AND hour < 1` is never TRUE",),
    ),
    "equals-null": Mistake("flight = 66 OR arr_delay = NULL", "null_comparison", ("Write `arr_delay IS NULL`.",)),
    "is-not-null": Mistake(
        "flight = 67 OR (flight = 68 AND NULL <> arr_delay)", "null_comparison", ("Write `arr_delay IS NOT NULL`.",)
    ),
    "null-in-a-list": Mistake(
        "flight = 69 OR origin NOT IN ('EWR', NULL)",
        "null_comparison",
        ("`origin NOT IN ('EWR', NULL)`", "Leave NULL out"),
    ),
}
BESIDE = {
    "copy-2": "15 < dep_delay AND carrier IN ('B6')",
    "copy-3": "NOT (dep_delay <= 15) AND carrier = 'B6'",
    "shadow": "flight = 22 AND dep_delay > 60",
    "flight-23": "flight = 23",
    "short": "flight = 33 AND distance < 400",
    "long": "flight = 33 AND distance >= 300",
}
IN_ORDER = (
    "flight = {0} AND dep_delay > 60",
    "flight = {0} AND (origin = 'JFK' OR dest = 'JFK')",
    "flight = {0} AND arr_delay IS NULL AND NOT cancelled",
    "flight = {0} AND (carrier IN ('AA', 'UA') OR carrier LIKE 'D%') AND hour BETWEEN 6 AND 22",
    "flight = {0} AND arr_delay - dep_delay > 30",
    "flight = {0} AND date_trunc('DAY', sched) = TIMESTAMP'2013-01-01 00:00:00'",
    "flight = {0} AND arr_delay > dep_delay AND distance <> 0",
)


def table(count: int = 500) -> list[tuple[str, str]]:
    """So many rules, the mistakes among them."""
    rules = {**{name: mistake.text for name, mistake in MISTAKES.items()}, **BESIDE}
    for flight in range(1_000, 1_000 + count - len(rules)):
        rules[f"flight-{flight}"] = IN_ORDER[flight % len(IN_ORDER)].format(flight)
    return sorted(rules.items())


@pytest.fixture(scope="module")
def told() -> list[dict[str, object]]:
    return ri.lint(table(), SCHEMA).to_pylist()


def test_every_mistake_is_told_and_nothing_else(told: list[dict[str, object]]) -> None:
    assert len(table()) == 500 and {mistake.kind for mistake in MISTAKES.values()} == KINDS
    found = {each["rule_id"]: (each["kind"], each["other_ids"]) for each in told}
    assert found == {name: (mistake.kind, list(mistake.others)) for name, mistake in MISTAKES.items()}
    assert len(told) == len(MISTAKES)


@pytest.mark.parametrize("name", MISTAKES)
def test_the_message_says_what_to_change(name: str, told: list[dict[str, object]]) -> None:
    (message,) = [str(each["message"]) for each in told if each["rule_id"] == name]
    for words in MISTAKES[name].words:
        assert words in message, message


def test_a_rule_that_null_alone_keeps_from_matching_is_told_why() -> None:
    (never,) = ri.lint([("r", "cancelled = NULL AND hour > 3")], SCHEMA).to_pylist()
    assert (never["kind"], never["text"]) == ("contradiction", "cancelled = NULL")
    assert "`cancelled = NULL` is NULL on every row" in never["message"]
    assert "Write `cancelled IS NULL`." in never["message"]


@pytest.mark.slow
def test_mistakes_are_found_among_many_rules_and_all_that_is_told_holds() -> None:
    given = planted(50 * CASES, CASES // 2, seed=17)
    found = ri.lint(given.rules, ACCOUNTS)
    assert missing(found, given) == []
    texts = dict(given.rules)
    chosen = found.to_pylist()[:: max(1, found.num_rows // (3 * CASES))]
    assert {each["kind"] for each in chosen} == KINDS
    assert not [each for each in chosen if is_false(each, texts)]
