"""Index histories of rows, which rules differ, and what a row's ids become: against the plain definition of each."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import rules_index as ri
from pipelines.errors import TableError
from pipelines.lake.index_histories import ALL, NEW_RULES, index_histories, spans_after
from pipelines.lake.runs import DONE, PLANNED, MicroBatch
from pipelines.retagging.changes import _Meaning, changes_of
from rules_index.workers.retagged_rows import FILE, IN_RANGE, ReplacedIds, count_changes, new_ids

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STRINGS = pa.string()


def batch(number: int, fingerprint: str | None, rows: int | None = 5, state: str = DONE, **plan) -> MicroBatch:
    return MicroBatch("s", number, state, plan, 1, fingerprint, 1, NOW, rows)


def retag(
    number: int, through: int, fingerprint: str, mode: str = ALL, since=None, state: str = DONE, **plan
) -> MicroBatch:
    plan |= {"through": through, "mode": mode, "since": since, "until": None}
    return MicroBatch("s/retag", number, state, plan, 1, fingerprint, None, NOW)


def histories(batches, retags, through: int):
    return index_histories(reversed(batches), reversed(retags), through)


def test_rows_are_tagged_by_the_index_of_their_micro_batch() -> None:
    found = histories(
        [batch(0, "a"), batch(1, "b", rows=0), batch(2, "c"), batch(3, "d", state=PLANNED, rows=None)], [], 2
    )
    assert dict(found.by_batch) == {0: {("a",)}, 2: {("c",)}}
    assert found.distinct == {("a",), ("c",)}


def test_a_whole_retag_makes_all_rows_before_it_alike() -> None:
    batches = [batch(0, "a"), batch(1, "b"), batch(2, "a")]
    found = histories(batches, [retag(0, 1, "r")], 2)
    assert (dict(found.by_batch), found.earlier) == ({2: {("a",)}}, ((1, {("r",)}),))
    assert found.of_batch(batch(0, "a")) == {("r",)}
    # one that has not ended says nothing
    assert histories(batches, [retag(0, 1, "r", state=PLANNED)], 2).distinct == {("a",), ("b",)}


def test_no_row_that_a_retag_made_alike_is_looked_at_again() -> None:
    def batches():
        yield batch(9, "b")
        yield batch(8, "a")
        raise AssertionError("history is not read")

    def retags():
        yield retag(1, 8, "r")
        raise AssertionError("history is not read")

    assert index_histories(batches(), retags(), 9).distinct == {("r",), ("b",)}


def test_added_rules_come_on_top() -> None:
    batches = [batch(0, "a"), batch(1, "b")]
    retags = [retag(0, 0, "b", NEW_RULES), retag(1, 1, "c", NEW_RULES)]
    assert dict(histories(batches, retags, 1).by_batch) == {0: {("a", "b", "c")}, 1: {("b", "c")}}
    later = [retag(0, 1, "r"), retag(1, 1, "b", NEW_RULES), retag(2, 1, "c", NEW_RULES)]
    assert histories(batches, later, 1).earlier == ((1, {("r", "b", "c")}),)


def test_a_retag_by_added_rules_says_what_all_histories_are_after_it() -> None:
    batches = [batch(3, "a", folded=0), batch(4, "b"), batch(5, "c"), batch(6, "c")]
    after = [[1, [["a", "c"]]], [5, [["c"]]]]
    retags = [retag(0, 5, "c", NEW_RULES, after=after), retag(1, 6, "d", NEW_RULES)]
    found = histories(batches, retags, 6)
    assert (found.earlier, dict(found.by_batch)) == (((1, {("a", "c", "d")}), (5, {("c", "d")})), {6: {("c", "d")}})
    assert found.of_batch(batches[0]) == {("a", "c", "d"), ("c", "d")}
    assert found.of_batch(batches[1]) == {("c", "d")}
    # micro-batches on both sides of it are folded into one
    both = histories([batch(4, "a", folded=0), batch(7, "c", folded=5)], retags, 7)
    assert both.of_batch(batch(7, "c", folded=5)) == {("c", "d"), ("c",)}
    shorter = spans_after(found, "e", (), lambda history: history[-1:])
    assert shorter == [(6, {("e",)})]


def test_a_range_leaves_rows_of_both_kinds() -> None:
    batches = [batch(0, "a"), batch(1, "b")]
    found = histories(batches, [retag(0, 0, "r", since="2024-01-01")], 1)
    assert dict(found.by_batch) == {0: {("a",), ("r",)}, 1: {("b",)}}


def test_micro_batches_that_are_folded_stand_in_all_ways_of_theirs() -> None:
    batches = [batch(9, "a", folded=0), batch(10, "b")]
    found = histories(batches, [retag(0, 4, "r"), retag(1, 6, "n", NEW_RULES)], 10)
    assert found.distinct == {("r", "n"), ("a", "n"), ("a",), ("b",)}
    assert histories(batches, [], 10).distinct == {("a",), ("b",)}


def test_a_restart_forgets_what_came_before() -> None:
    batches = [batch(0, "a"), batch(1, None, reset=True), batch(2, "c")]
    assert histories(batches, [retag(0, 0, "r")], 2).distinct == {("c",)}
    assert histories(batches[:2], [retag(0, 0, "r")], 1).distinct == frozenset()


def rules(**texts: str) -> pl.DataFrame:
    schema = {"rule_id": pl.String, "expression": pl.String, "valid_from": pl.Datetime, "valid_to": pl.Datetime}
    return pl.DataFrame([{"rule_id": rule, "expression": text} for rule, text in texts.items()], schema=schema)


def test_rules_that_differ_from_any_base_are_tried() -> None:
    now = rules(same="a", changed="b2", new="c", later="d")
    found = changes_of([rules(same="a", changed="b1", gone="g"), rules(same="a", changed="b2", later="d")], now, False)
    assert sorted(found.rules["rule_id"]) == ["changed", "later", "new"]
    assert found.ids_in_rows == ("changed", "gone", "later")
    assert sorted(found.ids) == ["changed", "gone", "later", "new"]
    assert changes_of([now, now], now, False).is_empty
    bound = now.with_columns(valid_to=pl.when(pl.col("rule_id") == "same").then(NOW.replace(tzinfo=None)))
    assert list(changes_of([now], bound.cast(now.schema), False).rules["rule_id"]) == ["same"]


def test_only_added_rules_where_only_they_are_asked_for() -> None:
    found = changes_of([rules(same="a", changed="b1", gone="g")], rules(same="a", changed="b2", new="c"), True)
    assert (list(found.rules["rule_id"]), found.ids_in_rows) == (["new"], ())
    with pytest.raises(TableError, match="deltatag retag"):
        changes_of([None], rules(same="a"), True)


def test_rules_mean_something_else_by_an_event_time_of_another_type() -> None:
    """Bounds of rules refer to it without naming it, so that no text tells."""
    before = _Meaning("At", "UTC", {"at": "date", "n": "int"})
    assert before.agrees(_Meaning("at", "UTC", {"at": "date", "n": "bigint"}))
    assert not before.agrees(_Meaning("at", "UTC", {"at": "timestamp", "n": "int"}))


def test_everything_where_a_base_is_not_known() -> None:
    found = changes_of([rules(a="x"), None], rules(a="x", b="y"), False)
    assert (found.everything, found.rules.height) == (True, 2)


@pytest.mark.parametrize("seed", range(40))
def test_ids_of_rows_that_are_tried_again(seed: int) -> None:
    draw = random.Random(seed)
    ids = ["a", "é", "b", "z", "𝒳", "zz", "Z"]
    numbers = draw.random() < 0.3
    tried = draw.sample(ids, draw.randint(0, 4))
    held = draw.sample(ids, draw.randint(0, 4))
    everything = draw.random() < 0.2
    limits = {rule: draw.randint(0, 10) for rule in tried}
    name = {rule: ids.index(rule) if numbers else rule for rule in ids}
    kind = pa.int64() if numbers else STRINGS
    compiled = None
    if tried:
        compiled = ri.compile_rules(
            [(name[r], f"x >= {limit}") for r, limit in limits.items()], pa.schema({"x": pa.int64()})
        )
    rows = draw.choice([0, 1, 50])
    values = [draw.choice([None, *range(11)]) for _ in range(rows)]
    # a rule that differs, and that rows had not, they cannot have now
    possible = [rule for rule in ids if rule in held or rule not in tried or everything]
    before = [sorted(name[r] for r in draw.sample(possible, draw.randint(0, len(possible)))) for _ in range(rows)]
    in_range = [draw.choice([True, True, False, None]) for _ in range(rows)]
    files = [draw.randint(0, 3) for _ in range(rows)]
    columns = {
        "x": pa.array(values, pa.int64()),
        "rule_ids": pa.array(before, pa.list_(kind)),
        FILE: pa.array(files, pa.int64()),
    }
    if draw.random() < 0.5:
        columns[IN_RANGE] = pa.array(in_range, pa.bool_())
    else:
        in_range = [True] * rows
    replaced = ReplacedIds(kind, pa.array([name[r] for r in held], kind), everything)
    table = pa.RecordBatch.from_pydict(columns)
    start = draw.randint(0, rows)  # a slice, whose lists do not begin at 0
    expected, changes = [], []
    for x, old, inside in list(zip(values, before, in_range, strict=True))[start:]:
        lost = set(old) if everything else {name[r] for r in held}
        found = {name[r] for r, limit in limits.items() if x is not None and x >= limit}
        new = sorted((set(old) - lost) | found) if inside else old
        expected.append(new)
        changes.append(new != old)
    found_ids, changed = new_ids(compiled, replaced, table.slice(start))
    assert found_ids.to_pylist() == expected
    assert changed.tolist() == changes
    counted = {}
    for part in count_changes(compiled, replaced, iter([table.slice(start)])):
        for row in part.to_pylist():
            counted[row["file"]] = (row["changed"], row["emptied"])
    for file in range(4):
        mine = [i for i, change in enumerate(changes) if change and files[start + i] == file]
        if replaced.reads_ids:
            assert counted.get(file, (0, 0)) == (len(mine), sum(not expected[i] for i in mine))
        else:
            assert counted.get(file, (0, 0))[0] == len(mine)
    assert np.asarray(changed).dtype == bool
