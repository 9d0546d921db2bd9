"""The record of micro-batches: one row each, whoever writes it and however often."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

from pipelines.runs import DONE, PLANNED, MicroBatch, batches, last_batch, record_done, record_plan


def planned(scope: str, number: int, **plan: object) -> MicroBatch:
    return MicroBatch(scope, number, PLANNED, plan, 3, "f", 7, datetime(2024, 1, 1, tzinfo=UTC))


def test_a_plan_then_its_figures(new_workspace) -> None:
    lake = new_workspace(spark=False).lake
    assert last_batch(lake, "s") is None
    batch = planned("s", 0, files=2)
    assert record_plan(lake, batch) == batch
    assert last_batch(lake, "s") == batch
    done = replace(batch, state=DONE, rows=5, matches=9, quarantined=1, errors={"r'1": 2}, seconds=1.5)
    record_done(lake, done)
    record_done(lake, done)
    assert batches(lake) == [done]


def test_scopes_are_apart_and_numbers_sorted(new_workspace) -> None:
    lake = new_workspace(spark=False).lake
    for scope, number in (("b", 0), ("a", 1), ("a", 0)):
        record_plan(lake, planned(scope, number))
    assert [(batch.scope, batch.batch) for batch in batches(lake)] == [("a", 0), ("a", 1), ("b", 0)]
    assert last_batch(lake, "a") == planned("a", 1)
    assert last_batch(lake, "it's") is None


def test_of_two_plans_for_one_number_the_first_stays(new_workspace) -> None:
    lake = new_workspace(spark=False).lake
    first = record_plan(lake, planned("s", 0, by="one"))
    assert record_plan(lake, planned("s", 0, by="two")) == first


def test_concurrent_plans_agree(new_workspace) -> None:
    lake = new_workspace(spark=False).lake
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: record_plan(lake, planned("s", 0, by=n)), range(4)))
    assert found == [found[0]] * 4
    assert len(batches(lake)) == 1
