"""The paper's system within a join: its worked cases, its counters, and queries by the dozen that a row leaves open."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.engines.grid_file.structure import GridFile
from rules_index.engines.r_tree.structure import RTree
from rules_index.join.index import JoinIndex
from rules_index.join.pdfa.arrivals import LISTED
from rules_index.join.window_partners import Side
from tests.unit.join.random_joins import brute_force, joined_of

SCHEMA = pa.schema([("a", pa.struct([("x", pa.int32())])), ("b", pa.struct([("y", pa.int32()), ("z", pa.int32())]))])
P2 = [
    "BETWEEN 5 AND 10 AND b.y <= 5",
    "BETWEEN 0 AND 6",
    "BETWEEN 7 AND 15 AND b.y >= 8",
    "= 7 AND b.y BETWEEN 4 AND 6",
]
"""The queries Q1 to Q4."""


def side(column: dict[str, Any], keys: list[int], times: list[int], new: bool = True) -> Side:
    rows = {name: pa.array(values, pa.int32()) for name, values in column.items()}
    every = np.ones(len(keys), bool)
    return Side(pa.table(rows), np.array(keys), np.array(times), every & new, every)


@pytest.mark.parametrize("engine", ["auto", "r_tree", "grid_file"])
def test_p2_one_first_search_and_a_second_for_each_partner(engine: str) -> None:
    rules = [(number, f"a.x {text}") for number, text in enumerate(P2, start=1)]
    index = JoinIndex.of(ri.compile_rules(rules, SCHEMA, engine=engine), ["a", "b"])
    # b has a column that no rule names
    b = side({"y": [3, 9, 5, 5]}, [1, 1, 1, 2], [0, 1, 2, 3])
    found = joined_of(list(index.match([side({"x": [7]}, [1], [4]), b], [9, 9], method="pdfa")))
    assert found == {(0, 0): [0], (0, 1): [2], (0, 2): [0, 3]}
    counters = index.row_by_row.counters
    # all five rows probe; those without a partner need no search
    assert (counters["probes"], counters["first"], counters["second"]) == (5, 1, 3)
    assert isinstance(index.row_by_row._tree, RTree if engine == "r_tree" else GridFile)
    # the other way round every arriving row has one partner
    later = side({"y": [3, 9, 5, 5]}, [1, 1, 1, 2], [5, 6, 7, 8])
    assert joined_of(list(index.match([side({"x": [7]}, [1], [4]), later], [9, 9], method="pdfa"))) == found
    assert (counters["probes"], counters["first"], counters["second"]) == (10, 4, 6)


def test_what_joined_rows_of_three_streams_share_is_searched_once() -> None:
    streams = {name: pa.struct([("x", pa.int32())]) for name in "abc"}
    rules = [(1, "a.x > 0 AND b.x = 1 AND c.x < 3"), (2, "b.x = 2"), (3, "a.x = 0")]
    compiled = ri.compile_rules(rules, pa.schema(list(streams.items())))
    index = JoinIndex.of(compiled, list(streams))
    b, c = (side({"x": list(range(rows))}, [0] * rows, list(range(rows))) for rows in (3, 5))
    sides = [side({"x": [2]}, [0], [9]), b, c]
    found = joined_of(list(index.match(sides, [9] * 3, method="pdfa")))
    assert found == brute_force(compiled, list(streams), sides, [9] * 3)
    assert len(found) == 3 + 5
    counters = index.row_by_row.counters
    # one for each row of b, and below each of the two that leave a query one for each row of c
    assert (counters["first"], counters["second"]) == (1, 3 + 2 * 5)


@pytest.mark.parametrize("queries", [LISTED, LISTED + 1, 700])
def test_queries_that_the_arriving_row_leaves_open_are_found_by_marked_paths(queries: int) -> None:
    draw = np.random.default_rng(queries)
    starts = draw.integers(0, 900, (queries, 2)).tolist()
    texts = [f"b.y BETWEEN {low} AND {low + 40} AND b.z <> {z} AND a.x IN (1, 3, 5)" for low, z in starts]
    compiled = ri.compile_rules(list(enumerate([*texts, "a.x = 2", "a.x < b.y"])), SCHEMA)
    index = JoinIndex.of(compiled, ["a", "b"])
    b = side({name: draw.integers(0, 1000, 60).tolist() for name in "yz"}, [0] * 60, list(range(60)))
    a = side({"x": [1, 2, 3, 4, 5]}, [0] * 5, [10, 30, 61, 62, 63])
    windows = [25, 40]
    for sides in ([a, b], [side({"x": [1, 2, 3, 4, 5]}, [0] * 5, [10, 30, 61, 62, 63], new=False), b]):
        found = joined_of(list(index.match(sides, windows, 7, "pdfa")))
        assert (
            found == brute_force(compiled, ["a", "b"], sides, windows) == joined_of(list(index.match(sides, windows)))
        )
        assert len(found) > 30


def test_keys_may_be_any_numbers_and_rows_come_in_any_order() -> None:
    index = JoinIndex.of(ri.compile_rules([(1, "a.x < b.y")], SCHEMA), ["a", "b"])
    far = (1 << 63) - 1
    a = side({"x": [1, 9, 1]}, [far, far, 1 << 62], [5, 0, 3])
    b = side({"y": [2, 2, 0]}, [far, 1 << 62, far], [4, 9, 1])
    expected = {(0, 0): [0], (2, 1): [0]}
    assert joined_of(list(index.match([a, b], [6, 6], method="pdfa"))) == expected
    assert joined_of(list(index.match([a, b], [6, 6]))) == expected


def test_earlier_rows_join_new_ones_alone() -> None:
    index = JoinIndex.of(ri.compile_rules([(1, "true")], SCHEMA), ["a", "b"])
    a, b = side({"x": [1, 2]}, [0, 0], [0, 2], new=False), side({"y": [1, 2]}, [0, 0], [1, 3])
    b.new[1] = False
    assert set(joined_of(list(index.match([a, b], [9, 9], method="pdfa")))) == {(0, 0), (1, 0)}
    assert index.row_by_row.counters["second"] == 2
