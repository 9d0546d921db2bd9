"""The search for predicates that end the process finds them all and no others, in few questions."""

from __future__ import annotations

import json
import math
import random
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import rules_index as ri
from pipelines.errors import SparkEndedError
from pipelines.lake.runs import PLANNED, MicroBatch, last_batch, record_plan
from pipelines.recovery.attempts import Attempts
from pipelines.recovery.failing_predicates import MOST_ASKED, MOST_FAILING, Search
from tests.cases import cases


def found(search: Search, dies, chance: random.Random) -> tuple[Search, int]:
    """The search at its end, and its questions; now and then it goes on from its plan, after its process has ended."""
    questions = 0
    while search.state == "open":
        search = search.begun()
        assert search.asked <= MOST_ASKED
        if chance.random() < 0.3:
            search = Search.of(json.loads(json.dumps(search.to_plan())), search.candidates)
        evaluated = set(search.candidates) - search.without
        questions += 1
        search = search.answered(not dies(evaluated))
    return search, questions


@pytest.mark.parametrize("seen", [False, True])
def test_the_guilty_are_found(seen: bool) -> None:
    for seed in range(cases(800)):
        chance = random.Random(seed)
        names = [f"p{n}" for n in range(chance.choice((1, 2, 3, 7, 8, 64, 1000)))]
        failing = set(chance.sample(names, min(len(names), chance.randint(0 if not seen else 1, 4))))
        search, questions = found(
            Search.begin(names, seen), lambda tried, failing=failing: bool(tried & failing), chance
        )
        assert (search.state, set(search.left_out)) == ("done", failing), seed
        assert questions <= 2 + (len(failing)) * (math.ceil(math.log2(len(names))) + 1), seed


def test_of_those_that_only_die_together_one_is_left_out() -> None:
    names = [f"p{n}" for n in range(40)]
    for seed in range(cases(200)):
        chance = random.Random(seed)
        pair = set(chance.sample(names, 2))
        search, _ = found(Search.begin(names, True), lambda tried, pair=pair: pair <= tried, chance)
        assert search.state == "done" and len(search.left_out) == 1 and set(search.left_out) < pair, seed


def test_no_predicate_is_blamed_where_none_is_needed_to_die() -> None:
    search, questions = found(Search.begin(["a", "b"], False), lambda _: True, random.Random(1))
    assert (search.state, search.left_out, questions) == ("innocent", (), 2)
    assert Search.begin([], True).state == "innocent"


def test_many_guilty_ones_are_left_out_together() -> None:
    names = [f"p{n}" for n in range(500)]
    failing = set(names[100:])
    search, questions = found(Search.begin(names, True), lambda evaluated: bool(evaluated & failing), random.Random(1))
    assert search.state == "done" and set(search.left_out) == failing
    assert questions <= (MOST_FAILING + 1) * 11


@pytest.mark.slow
def test_a_micro_batch_that_has_ended_two_processes_is_searched(new_workspace) -> None:
    """Each attempt is one of another process, which finds in the plan what the ones before it came to."""
    lake = new_workspace(spark=False).lake
    record_plan(lake, MicroBatch("s", 0, PLANNED, {"series": "x"}, 3, "f", 7, datetime(2024, 1, 1, tzinfo=UTC)))
    rules = [(1, "hypot(i, 1) > 0"), (2, "hypot(i, 2) > 0"), (3, "hypot(i, 3) > 0"), (4, "i = 1")]
    compiled = ri.compile_rules(rules, pa.schema([("i", pa.int32())]))
    names = sorted(leaf.name for leaf in compiled.derived)
    assert len(names) == 3
    asked: list[set[str]] = []

    def match_without(without: frozenset[str]) -> None:
        asked.append(set(names) - without)
        if names[1] in asked[-1]:
            raise SparkEndedError("ended", True)

    def attempt(ended: bool) -> list[str]:
        batch = last_batch(lake, "s")
        assert batch is not None
        return Attempts(lake, batch, compiled, ended).begin(match_without)

    assert attempt(False) == [] and not asked
    while len(asked) < 10:
        try:
            found = attempt(True)
            break
        except SparkEndedError:
            continue
    assert found == [names[1]]
    assert set() in asked and len(asked) < 8
