"""The BE-Tree keeps the paper's invariants, and reproduces the paper's worked cases."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from rules_index.engines.be_tree.nodes import capacity_of
from rules_index.engines.be_tree.structure import BETree, max_cap_for
from rules_index.index.boxes import Structure
from tests.unit.engines.be_trees import (
    STORY,
    STORY_SIZES,
    A,
    B,
    Box,
    C,
    D,
    Event,
    event_arrays,
    flat,
    grown,
    insert,
    l_nodes,
    matches,
    row_event,
    shape,
)


def test_it_is_a_structure() -> None:
    structure: type[Structure] = BETree
    assert structure is BETree


def test_an_absent_attribute_is_a_miss() -> None:
    """Section 1: classics, era in (1920s, 1940s), price between 20 and 40, ranking < 5, format not in (paperback)."""
    genre, title, author, era, price, ranking, medium = range(7)
    sizes = [5, 9, 9, 10, 101, 11, 4]
    classics, hardcover = 1, 2
    shopper = {genre: (classics, classics), era: (2, 4), price: (20, 40), ranking: (0, 4), medium: (0, 3)}
    item = {genre: classics, title: 7, author: 3, era: 2, price: 26, ranking: 2, medium: hardcover}
    tree = BETree.build(flat([shopper], sizes))
    event = {attribute: [(code, code)] for attribute, code in item.items()}
    assert tree.search_event(event_arrays(event))[0].tolist() == [0]
    del event[medium]
    assert tree.search_event(event_arrays(event))[0].tolist() == []
    dear = {**event, medium: [(hardcover, hardcover)], price: [(41, 90)]}
    assert tree.search_event(event_arrays(dear))[0].tolist() == []
    offers = {**dear, price: [(3, 19), (41, 90)], era: [(0, 1), (3, 3)]}
    assert tree.search_event(event_arrays(offers))[0].tolist() == [], "a price between the two that are asked"
    offers[price] = [(3, 19), (40, 90)]
    assert tree.search_event(event_arrays(offers))[0].tolist() == [0]


FINAL_BELOW_A = {
    ((A, 0, 15),): {"S4"},
    ((A, 0, 15), (B, 0, 15)): {"S1", "S8", "S9"},
    ((A, 0, 7),): {"S7"},
    ((A, 8, 15),): set(),
}


def test_the_insertion_story() -> None:
    tree = BETree.build(flat([], STORY_SIZES), max_cap=3, min_size=2)
    top_a, top_d = ((A, 0, 15),), ((D, 0, 15),)
    after = {
        "S3": {(): {"S1", "S2", "S3"}},
        "S4": {(): {"S2", "S3"}, top_a: {"S1", "S4"}},
        "S5": {(): {"S2", "S3", "S5"}, top_a: {"S1", "S4"}},
        "S6": {(): {"S2"}, top_a: {"S1", "S4"}, top_d: {"S3", "S5", "S6"}},
        "S8": {
            (): {"S2"},
            top_a: {"S1", "S4", "S8"},
            ((A, 0, 7),): {"S7"},
            ((A, 8, 15),): set(),
            top_d: {"S3", "S5", "S6"},
        },
        "S9": {(): {"S2"}, **FINAL_BELOW_A, top_d: {"S3", "S5", "S6"}},
    }
    for key, box in enumerate(STORY):
        insert(tree, key, box)
        tree.check()
        name = f"S{key + 1}"
        if name in after:
            assert shape(tree) == after[name], name


def test_without_an_attribute_in_min_size_expressions_an_l_node_grows() -> None:
    tree = grown(STORY[:6], STORY_SIZES, max_cap=3, min_size=3)
    assert shape(tree) == {(): {"S1", "S2", "S3", "S4", "S5", "S6"}}
    insert(tree, 6, STORY[6])
    assert shape(tree) == {(): {"S2", "S3", "S5", "S6"}, ((A, 0, 15),): {"S1", "S4", "S7"}}
    for key in (7, 8):
        insert(tree, key, STORY[key])
    assert shape(tree) == {(): {"S2", "S3", "S5", "S6"}, **FINAL_BELOW_A}
    tree.check()


@pytest.mark.parametrize(
    ("event", "expected", "c_nodes", "expressions"),
    [
        ({A: [(6, 6)], B: [(4, 4)], C: [(3, 3)], D: [(5, 5)]}, [2, 3, 4, 6, 9], 5, 9),
        ({A: [(3, 3)]}, [7], 3, 3),
        ({D: [(7, 7)]}, [5], 2, 4),
        ({A: [(8, 11)], B: [(1, 1)]}, [1, 4], 4, 5),
        ({A: [(0, 7)]}, [4, 7], 3, 3),
        ({A: [(12, 12)], B: [(2, 2)], D: [(6, 6)]}, [6, 8], 5, 8),
        ({B: [(1, 1)]}, [], 1, 1),
        ({}, [], 1, 1),
    ],
)
def test_what_a_search_costs(event: Event, expected: list[int], c_nodes: int, expressions: int) -> None:
    tree = grown(STORY, STORY_SIZES, max_cap=3, min_size=2)
    keys, cost = tree.search_event(event_arrays(event))
    assert (keys + 1).tolist() == expected
    assert cost["c_nodes_visited"] == c_nodes
    assert cost["expressions_checked"] == expressions
    assert cost["matches"] == len(expected)


def test_predicates_are_evaluated_until_one_fails_but_subsumed_ones_never() -> None:
    tree = grown(STORY, STORY_SIZES, max_cap=3, min_size=2)
    # S2 fails at c; S4 and S7 at a: 5..9 and 3 are covered by their buckets, not subsumed.
    assert tree.search_event(event_arrays({A: [(2, 2)]}))[1]["predicates_evaluated"] == 3
    whole = grown([{A: (0, 15), B: (0, 7)}, {A: (0, 15), B: (8, 15)}], STORY_SIZES, max_cap=1, min_size=2)
    assert shape(whole)[((A, 0, 15), (B, 0, 7))] == {"S1"}
    found, cost = whole.search_event(event_arrays({A: [(9, 9)], B: [(1, 1)]}))
    assert found.tolist() == [0] and cost["predicates_evaluated"] == 0


def test_capacity() -> None:
    assert [capacity_of(size, 3) for size in (0, 3, 4, 7)] == [3, 3, 6, 9]
    assert [max_cap_for(share) for share in (0.0001, 0.01, 0.09, 0.1, 0.5)] == [5, 20, 20, 160, 160]


def test_buckets_are_halved_at_their_middle() -> None:
    tree = grown([{A: (code, code)} for code in (8, 9, 11, 12, 15)], STORY_SIZES, max_cap=2, min_size=2)
    buckets = [key[0][1:] for key in shape(tree) if key]
    assert buckets == [(0, 15), (0, 7), (8, 15), (8, 11), (8, 9), (10, 11), (12, 15)]
    odd = grown([{A: (code, code)} for code in range(5)], [5], max_cap=1, min_size=1)
    assert [key[0][1:] for key in shape(odd) if key] == [
        (0, 4), (0, 2), (0, 1), (0, 0), (1, 1), (2, 2), (3, 4), (3, 3), (4, 4),
    ]  # fmt: skip


def test_rank_of_an_l_node() -> None:
    sizes = [8, 4, 4, 8]
    boxes: list[Box] = [{A: (3, 3), B: (1, 1)}, {A: (0, 7), C: (2, 2)}, {D: (5, 5)}]
    tree = grown(boxes, sizes, max_cap=2, min_size=2, rank_window=2.0)
    below_a = ((A, 0, 7),)
    node = next(node for node in l_nodes(tree) if node.key == below_a)
    assert (node.boxes, node.covered, node.subsumed, node.gain, node.rank) == ((0, 1), 1, 1, 2, 2)
    discards = {(3, 1, 0): 1, (3, 1, 2): 0, (3, 0, 0): 2, (3, 0, 2): 1}
    for a, b, c in discards:
        tree.search(np.array([a, b, c, 0], np.int32), adapt=True)
    node = next(node for node in l_nodes(tree) if node.key == below_a)
    assert (node.loss, node.rank) == (1, 1)
    tree.check()


def test_searches_that_do_not_adapt_leave_no_trace() -> None:
    tree = grown(STORY, STORY_SIZES, max_cap=3, min_size=2)
    before = tree.arrays
    tree.search(np.zeros(4, np.int32))
    assert all(np.array_equal(before[name], array) for name, array in tree.arrays.items())
    assert len(before["windows"]) == 0


def test_underflow_inserts_again_and_removes_upwards() -> None:
    tree = grown(STORY, STORY_SIZES, max_cap=3, min_size=2)
    tree.delete(8)
    tree.check()
    assert shape(tree)[((A, 0, 15), (B, 0, 15))] == {"S1", "S8"}
    tree.delete(7)
    tree.check()
    # One is left below b: back to the bucket above, whose halves then fit into it.
    assert shape(tree) == {(): {"S2"}, ((A, 0, 15),): {"S1", "S4", "S7"}, ((D, 0, 15),): {"S3", "S5", "S6"}}
    for key in (0, 3):
        tree.delete(key)
        tree.check()
    assert shape(tree) == {(): {"S2", "S7"}, ((D, 0, 15),): {"S3", "S5", "S6"}}
    for key in (4, 1, 2, 6, 5):
        tree.delete(key)
        tree.check()
    assert shape(tree) == {(): set()} and len(tree) == 0


def test_halves_are_merged_only_together() -> None:
    boxes: list[Box] = [{A: (code, code)} for code in (1, 2, 9, 10)]
    tree = grown(boxes, STORY_SIZES, max_cap=3, min_size=2)
    left, right, whole = ((A, 0, 7),), ((A, 8, 15),), ((A, 0, 15),)
    halved = {(): set(), whole: set(), left: {"S1", "S2"}, right: {"S3", "S4"}}
    assert shape(tree) == halved
    tree.delete(0)
    tree.check()
    assert shape(tree) == {(): set(), whole: {"S2", "S3", "S4"}}
    insert(tree, 0, boxes[0])
    assert shape(tree) == halved


def test_halves_stay_below_a_bucket_that_is_partitioned() -> None:
    tree = grown(STORY, STORY_SIZES, max_cap=3, min_size=2)
    tree.delete(6)
    tree.check()
    assert shape(tree)[((A, 0, 7),)] == set() and shape(tree)[((A, 8, 15),)] == set()
    insert(tree, 6, {A: (1, 2)})
    assert shape(tree)[((A, 0, 7),)] == {"S7"}


def test_the_rank_of_a_new_attribute() -> None:
    """The optimistic rank is popularity; a histogram prefers the less popular attribute that tells more apart."""
    boxes: Sequence[Box] = [*({A: (0, 15), B: (code, code)} for code in (1, 5, 9)), {A: (0, 15)}]
    optimistic = grown(boxes, STORY_SIZES, max_cap=3, min_size=2)
    assert {key[0][0] for key in shape(optimistic) if key} == {A}
    estimated = grown(boxes, STORY_SIZES, max_cap=3, min_size=2, histogram=True)
    assert {key[0][0] for key in shape(estimated) if key} == {B}, "4 - 4 on a, 3 - 3 / 16 on b"


def test_a_node_that_discards_more_than_it_covers_is_recycled() -> None:
    """Partitioned on a while that was the most popular attribute; b, which came later, tells the same boxes apart."""
    boxes: list[Box] = [{A: (0, 15), B: (code, code)} for code in range(3)]
    boxes += [{A: (0, 15), C: (1, 1)}, {A: (0, 15), C: (2, 2)}]
    boxes += [{B: (code, code), D: (1, 1)} for code in range(3, 14)]
    tree = grown(boxes, STORY_SIZES, max_cap=4, min_size=2)
    below_a = [node for node in l_nodes(tree) if node.key[:1] == ((A, 0, 15),)]
    assert {box for node in below_a for box in node.boxes} == {0, 1, 2, 3, 4}
    misses = np.array([7, 15, 15, 15], np.int32)
    for _ in range(12):
        assert tree.search(misses, adapt=True)[0].tolist() == []
        tree.check()
    below_b = [node for node in l_nodes(tree) if node.key and node.key[0][0] == B]
    assert {0, 1, 2} <= {box for node in below_b for box in node.boxes}
    for codes in ([7, 1, 15, 15], [7, 15, 2, 15], [0, 5, 0, 1]):
        row = np.array(codes, np.int32)
        assert tree.search(row)[0].tolist() == matches(dict(enumerate(boxes)), row_event(row))
