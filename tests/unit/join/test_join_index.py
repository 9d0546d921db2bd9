"""The batch join gives what forming every joined row and matching it gives, and each joined row once."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.index.compiled import CompiledRules
from rules_index.join import joined_batches
from rules_index.join.index import JoinIndex, Method
from rules_index.join.streams import ACROSS
from rules_index.join.window_partners import Side
from tests.cases import QUICK, cases, quick_first
from tests.unit.join.random_joins import STREAMS, Draw, Joined, brute_force, joined_of, structs

CASES = cases(20, "DELTATAG_JOIN_CASES")
"""Random joins for each number of streams and each way of cutting the work."""
SHAPES = {2: (0, 60, 2, 12), 3: (0, 18, 2, 6), 4: (0, 10, 2, 4), 6: (1, 5, 1, 2)}
"""For each number of streams, the least rows of a side and their bound, keys, and the span of their times."""


def draw_join(seed: int, streams: int) -> tuple[Draw, CompiledRules, list[Side], list[int]]:
    draw = Draw(1000 * streams + seed, streams)
    rules = [(number, draw.rule()) for number in range(draw.random.integers(1, 25))]
    compiled = ri.compile_rules(rules, draw.schema)
    assert compiled.rejects.num_rows == 0, compiled.rejects.to_pylist()
    return draw, compiled, draw_sides(draw), draw_windows(draw)


def draw_sides(draw: Draw) -> list[Side]:
    least, bound, keys, span = SHAPES[len(draw.streams)]
    return [draw.side(int(draw.random.integers(least, bound)), keys, span) for _ in draw.streams]


def draw_windows(draw: Draw) -> list[int]:
    return draw.random.choice([0, 1, 3, 100], len(draw.streams), p=[0.1, 0.2, 0.3, 0.4]).tolist()


@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize(("cut", "method"), [("whole", "batch"), ("finely", "batch"), ("finely", "pdfa")])
@pytest.mark.parametrize("streams", quick_first(2, [2, 3, 4, 6]))
def test_a_join_equals_matching_every_combination_of_rows(
    streams: int, cut: str, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = checked = gates = 0
    for seed in range(CASES):
        draw, compiled, sides, windows = draw_join(seed, streams)
        if cut == "finely":
            monkeypatch.setattr(joined_batches, "HITS", int(draw.random.integers(1, 100)))
            monkeypatch.setattr(joined_batches, "ENTRIES", int(draw.random.integers(1, 50)))
        index = JoinIndex.of(compiled, draw.streams)
        assert index.exact and len(index.uncertain) == 0
        for _ in range(2):
            most = int(draw.random.choice([1, 10, 1000] if cut == "finely" else [50, 1 << 20]))
            parts = list(index.match(sides, windows, most, method))
            assert all(len(part.ordinals) <= most or len(part) == 1 for part in parts)
            found = joined_of(parts)
            assert found == brute_force(compiled, draw.streams, sides, windows), seed
            times = [max(int(side.times[row]) for side, row in zip(sides, rows, strict=True)) for rows in found]
            assert times == sorted(times), seed
            total += len(found)
            if method == "batch":
                checked += index._plan is not None and bool((index._plan.checked >= 0).any())
            else:
                checked += index.row_by_row.counters["second"] > 0
            sides, windows = draw_sides(draw), draw_windows(draw)
        gates += compiled.stats["gates"] > 0
    assert QUICK or (total > CASES and checked > CASES // 4 and gates > CASES // 4)


def renamed(found: Joined, rows: list[np.ndarray]) -> Joined:
    """Joined rows of parts of sides by the numbers that their rows have in the whole."""
    return {tuple(int(of[row]) for of, row in zip(rows, joined, strict=True)): rules for joined, rules in found.items()}


def part_of(side: Side, chosen: np.ndarray, **flags: np.ndarray) -> Side:
    part = Side(side.rows.take(pa.array(chosen)), *(a[chosen] for a in (side.keys, side.times, side.new, side.owned)))
    return replace(part, **{name: flag[chosen] for name, flag in flags.items()})


@pytest.mark.parametrize("method", ["batch", "pdfa"])
@pytest.mark.parametrize("streams", [2, 3])
def test_slices_of_time_with_replicated_borders_and_batches_of_arrivals_give_each_joined_row_once(
    streams: int, method: Method
) -> None:
    for seed in range(CASES):
        draw, compiled, sides, windows = draw_join(seed, streams)
        sides = [replace(side, new=side.new | True, owned=side.owned | True) for side in sides]
        index = JoinIndex.of(compiled, draw.streams)
        whole = joined_of(list(index.match(sides, windows)))
        batch = [draw.random.integers(0, 3, len(side.keys)) for side in sides]
        cuts = [-100, *sorted(draw.random.integers(-6, 6, 2).tolist()), 100]
        found: Joined = {}
        for arriving in range(3):
            for low, high in pairwise(cuts):
                rows = [
                    np.flatnonzero((come <= arriving) & (side.times >= low - max(windows)) & (side.times < high))
                    for side, come in zip(sides, batch, strict=True)
                ]
                parts = [
                    part_of(side, chosen, new=come == arriving, owned=(side.times >= low) & (side.times < high))
                    for side, come, chosen in zip(sides, batch, rows, strict=True)
                ]
                more = renamed(joined_of(list(index.match(parts, windows, method=method))), rows)
                assert not found.keys() & more.keys(), seed
                found |= more
        assert found == whole, seed


@pytest.mark.slow
def test_pairs_that_satisfy_no_rule_are_not_formed() -> None:
    rows = 100_000
    schema = pa.schema([(name, pa.struct([("x", pa.int32())])) for name in "ab"])
    rules = [(number, f"a.x = {number} AND b.x = {number + 1}") for number in range(0, rows, 2)]
    index = JoinIndex.of(ri.compile_rules(rules, schema), ["a", "b"])
    every = np.ones(rows, bool)
    x = np.random.default_rng(0).permutation(rows).astype(np.int32)
    sides = [
        Side(pa.table({"x": each}), np.zeros(rows, np.int64), np.arange(rows), every, every) for each in (x, x[::-1])
    ]
    # all 10,000,000,000 pairs are in the window
    found = list(index.match(sides, [rows, rows]))
    assert sum(map(len, found)) == rows // 2
    assert all((x[::-1][piece.rows[1]] == x[piece.rows[0]] + 1).all() for piece in found)


AT = pa.timestamp("us", tz="UTC")
PAIR = pa.schema(
    [
        ("a", pa.struct([("x", pa.int32()), ("at", AT)])),
        ("b", pa.struct([("x", pa.int32()), ("at", AT)])),
        ("joined_at", AT),
    ]
)


def side_of(values: list[int | None], times: list[int], **more: pa.Array) -> Side:
    at = pa.array(times, pa.int64()).view(AT)
    everywhere = np.ones(len(values), bool)
    table = pa.table({"x": pa.array(values, pa.int32()), "at": at, **more})
    return Side(table, np.zeros(len(values), np.int64), np.array(times, np.int64), everywhere, everywhere)


def matches(index: JoinIndex, *sides: Side, windows: list[int]) -> Joined:
    ids = index.compiled.ids.to_pylist()
    found = joined_of(list(index.match(sides, windows)))
    assert joined_of(list(index.match(sides, windows, method="pdfa"))) == found
    return {rows: [ids[o] for o in rules] for rows, rules in found.items()}


def test_the_window_is_closed_and_relative_to_the_latest_row() -> None:
    index = JoinIndex.of(ri.compile_rules([("r", "true")], PAIR), ["a", "b"])
    sides = side_of([1, 1, 1], [0, 10, 20]), side_of([1], [10])
    assert set(matches(index, *sides, windows=[10, 10])) == {(0, 0), (1, 0), (2, 0)}
    assert set(matches(index, *sides, windows=[9, 10])) == {(1, 0), (2, 0)}
    assert set(matches(index, *sides, windows=[9, 9])) == {(1, 0)}
    assert set(matches(index, *sides, windows=[2**63 - 1, 0])) == {(0, 0), (1, 0)}


def test_of_rows_of_one_time_that_of_the_first_stream_is_the_anchor() -> None:
    index = JoinIndex.of(ri.compile_rules([("r", "true")], PAIR), ["a", "b"])
    a, b = side_of([1], [10]), side_of([1], [10])
    nowhere = np.zeros(1, bool)
    assert list(matches(index, a, replace(b, owned=nowhere), windows=[0, 0])) == [(0, 0)]
    assert list(matches(index, replace(a, owned=nowhere), b, windows=[0, 0])) == []


def test_columns_are_asked_for_by_stream() -> None:
    compiled = ri.compile_rules([("r", "A.x = 1 AND b.x + a.x > 2 AND factorial(b.x) > 1")], PAIR)
    index = JoinIndex.of(compiled, ["a", "b"])
    assert [leaf.name for leaf in index.inputs("a")] == ["a.x"]
    (x, factorial) = index.inputs("b")
    assert (x.name, x.text) == ("b.x", None) and factorial.text == "factorial(b.x)"
    assert index.owners.stream_of.tolist().count(ACROSS) == 1 and index.owners.unknown == () and index.exact
    a, b = side_of([1, 1], [0, 0]), side_of([2, 3], [0, 0], **{factorial.name: pa.array([2, 1], pa.int64())})
    assert matches(index, a, b, windows=[0, 0]) == {(0, 0): ["r"], (1, 0): ["r"]}
    with pytest.raises(ri.SchemaError, match=factorial.name):
        matches(index, a, a, windows=[0, 0])


def test_columns_come_with_or_without_the_streams_name() -> None:
    compiled = ri.compile_rules([("r", "a.x < b.x"), ("whole", "a IS NOT NULL AND b.x = 2")], PAIR)
    index = JoinIndex.of(compiled, ["a", "b"])
    a, b = side_of([1, 5], [0, 0]), side_of([2], [0])
    expected = {(0, 0): ["r", "whole"], (1, 0): ["whole"]}
    assert matches(index, a, b, windows=[0, 0]) == expected
    named = replace(b, rows=b.rows.rename_columns(["b.x", "b.at"]))
    assert matches(index, a, named, windows=[0, 0]) == expected


def test_what_only_spark_can_tell_of_several_streams_is_taken_for_true() -> None:
    perhaps, no = "a.x = 1 AND factorial(a.x) = factorial(b.x)", "a.x = 2 AND cbrt(a.x / b.x) > 1"
    rules = [("sure", "a.x = 1"), ("perhaps", perhaps), ("no", no)]
    index = JoinIndex.of(ri.compile_rules(rules, PAIR), ["a", "b"])
    assert not index.exact and len(index.owners.unknown) == 2
    assert [index.compiled.ids[int(rule)].as_py() for rule in index.uncertain] == ["no", "perhaps"]
    assert index.inputs("b") == ()
    assert matches(index, side_of([1], [0]), side_of([None], [0]), windows=[0, 0]) == {(0, 0): ["perhaps", "sure"]}


def test_gates_with_what_only_spark_can_tell_stay_supersets() -> None:
    unknown = " OR ".join(f"(a.x = {i} AND factorial(a.x) = factorial(b.x) + {i})" for i in range(7))
    known = " OR ".join(f"(a.x = {i} AND b.x = {i})" for i in range(7))
    index = JoinIndex.of(ri.compile_rules([("gates", f"({unknown}) AND ({known})")], PAIR), ["a", "b"])
    assert index.compiled.stats["gates"] > 0 and not index.exact
    sides = side_of([1, 2, 9], [0] * 3), side_of([1, 2, 3], [0] * 3)
    assert matches(index, *sides, windows=[0, 0]) == {(0, 0): ["gates"], (1, 1): ["gates"]}


def test_rules_apply_from_when_to_when_they_are_valid_at_the_joined_rows_time() -> None:
    rules = pa.table(
        {
            "rule_id": ["early", "late"],
            "expression": ["a.x = 1", "b.x = 1"],
            "valid_from": pa.array([None, 15], AT),
            "valid_to": pa.array([15, None], AT),
        }
    )
    index = JoinIndex.of(ri.compile_rules(rules, PAIR, event_time="joined_at"), ["a", "b"])
    found = matches(index, side_of([1, 1], [0, 14]), side_of([1], [10]), windows=[100, 100])
    assert found == {(0, 0): ["early"], (1, 0): ["early"]}
    found = matches(index, side_of([1, 1], [0, 15]), side_of([1], [10]), windows=[100, 100])
    assert found == {(0, 0): ["early"], (1, 0): ["late"]}


def test_rows_without_a_key_join_nothing_and_sides_may_be_empty() -> None:
    index = JoinIndex.of(ri.compile_rules([("r", "true")], PAIR), ["a", "b"])
    a = side_of([1, 1], [0, 0])
    a = replace(a, keys=np.array([-1, 0]))
    assert list(matches(index, a, side_of([1], [0]), windows=[0, 0])) == [(1, 0)]
    assert matches(index, a, side_of([], []), windows=[0, 0]) == {}
    nothing = JoinIndex.of(ri.compile_rules([("r", "false")], PAIR), ["a", "b"])
    assert matches(nothing, a, a, windows=[0, 0]) == {}
    no_rules = pa.table({"rule_id": pa.array([], pa.string()), "expression": pa.array([], pa.string())})
    nothing = JoinIndex.of(ri.compile_rules(no_rules, PAIR), ["a", "b"])
    assert matches(nothing, a, a, windows=[0, 0]) == {} and nothing.inputs("a") == ()


def test_an_index_serves_after_it_was_saved(tmp_path: Path) -> None:
    compiled = ri.compile_rules([("r", "a.x < b.x AND a.x IN (1, 2)"), ("s", "b.x = 2 OR a.at < b.at")], PAIR)
    compiled.save(tmp_path / "index")
    index = JoinIndex.of(ri.load(tmp_path / "index"), ["a", "b"])
    found = matches(index, side_of([1, 3], [0, 0]), side_of([2], [0]), windows=[0, 0])
    assert found == {(0, 0): ["r", "s"], (1, 0): ["s"]}


def test_wrong_streams_windows_and_lengths_are_named() -> None:
    compiled = ri.compile_rules([("r", "a.x = 1")], PAIR)
    with pytest.raises(ri.RulesIndexError, match="two to 6 streams"):
        JoinIndex.of(compiled, ["a"])
    with pytest.raises(ri.RulesIndexError, match=r"a\.x, which is of none"):
        JoinIndex.of(compiled, ["b", "c"])
    bounded = pa.table({"rule_id": [1], "expression": ["true"], "valid_from": pa.array([5], AT)})
    dates = pa.schema([*list(PAIR)[:2], ("At", pa.date32())])
    with pytest.raises(ri.RulesIndexError, match=r"At is a timestamp in us, not date32"):
        JoinIndex.of(ri.compile_rules(bounded, dates, event_time="at"), ["a", "b"])
    index = JoinIndex.of(compiled, ["a", "b"])
    side = side_of([1], [0])
    with pytest.raises(ri.RulesIndexError, match="as many sides"):
        list(index.match([side], [0]))
    with pytest.raises(ri.RulesIndexError, match="window of 0 or more"):
        list(index.match([side, side], [0, -1]))
    with pytest.raises(ri.RulesIndexError, match="as many as its rows"):
        list(index.match([side, replace(side, keys=np.zeros(2, np.int64))], [0, 0]))
    for odd in ({"new": np.array([2], np.int8)}, {"times": np.zeros(1, "M8[us]")}, {"keys": np.array([0.5])}):
        with pytest.raises(ri.RulesIndexError, match="signed integers, and its flags are Boolean"):
            list(index.match([side, replace(side, **odd)], [0, 0]))


def test_names_of_streams_may_need_quotes() -> None:
    schema = pa.schema([(name, pa.struct([("a b", pa.int32())])) for name in STREAMS[1:3]])
    index = JoinIndex.of(ri.compile_rules([(1, "`c.d`.`a b` = beta.`a b`")], schema), STREAMS[1:3])
    rows = pa.table({"a b": pa.array([1, 2], pa.int32())})
    flags = np.ones(2, bool)
    side = Side(rows, np.zeros(2, np.int64), np.zeros(2, np.int64), flags, flags)
    assert set(joined_of(list(index.match([side, side], [0, 0])))) == {(0, 0), (1, 1)}
    assert structs(rows, np.array([1])).to_pylist() == [{"a b": 2}]


def pairs_of(schema: pa.Schema, rules: list[str], left: pa.Table, right: pa.Table) -> list[tuple[int, list[int]]]:
    """The row of the left side, and the rules, of all pairs of a join without a window."""
    index = JoinIndex.of(ri.compile_rules(list(enumerate(rules)), schema), schema.names)
    sides = [Side(rows, *np.zeros((2, len(rows)), np.int64), *np.ones((2, len(rows)), bool)) for rows in (left, right)]
    return [
        (int(part.rows[0][row]), part.ordinals[part.offsets[row] : part.offsets[row + 1]].tolist())
        for part in index.match(sides, [0, 0])
        for row in range(len(part))
    ]


def test_a_column_may_have_its_streams_name_or_a_dot() -> None:
    whole = pa.int32()
    right, y = pa.table({"y": pa.array([5], whole)}), pa.struct([("y", whole)])
    left = pa.table({"a": pa.array([1, 2, 3], whole), "f.a": pa.array([7, 7, 7], whole)})
    schema = pa.schema([("f", pa.struct([("a", whole), ("f.a", whole)])), ("b", y)])
    rules = ["f.a = 7 AND b.y = 5", "f.a = 2 AND b.y = 5", "f.a = 3 AND f.`f.a` = 7 AND b.y = 5"]
    assert sorted(pairs_of(schema, rules, left, right)) == [(1, [1]), (2, [2])]
    nested = pa.struct([("x", whole)])
    left = pa.table({"a.x": pa.array([1, 2], whole), "a": pa.array([{"x": 2}, {"x": 1}], nested)})
    schema = pa.schema([("f", pa.struct([("a.x", whole), ("a", nested)])), ("b", y)])
    rules = ["f.`a.x` = 1 AND b.y = 5", "f.a.x = 1 AND b.y = 5"]
    assert sorted(pairs_of(schema, rules, left, right)) == [(0, [0]), (1, [1])]
    left = pa.table({"a": pa.array([{"x": 1}, None], nested)})
    schema = pa.schema([("a", pa.struct([("a", nested)])), ("b", y)])
    rules = ["a IS NULL AND b.y = 5", "a IS NOT NULL AND b.y = 5", "a.a.x = 1 AND b.y = 5"]
    assert sorted(pairs_of(schema, rules, left, right)) == [(0, [1, 2]), (1, [1])]
    left = pa.table({"a": pa.array([1, 2], whole)})
    schema = pa.schema([("a", pa.struct([("a", whole)])), ("b", y)])
    assert sorted(pairs_of(schema, ["a IS NOT NULL AND a.a > 1 AND b.y = 5"], left, right)) == [(1, [0])]


def test_a_side_without_rows_is_useful_to_nobody() -> None:
    schema = pa.schema([(name, pa.struct([("x", pa.int32())])) for name in ("f", "b")])
    index = JoinIndex.of(ri.compile_rules([(0, "f.x > 1 AND b.x > 2")], schema), ["f", "b"])
    assert len(index.useful("b", pa.table({"x": pa.array([], pa.int32())}))) == 0
