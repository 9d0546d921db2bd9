"""IN, NOT IN and `<>` are sets with gaps: searches answer by them, and the papers' counters count each as one.

The twins walk what the structures say of themselves in plain Python, with the sets of the conjunctions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rules_index.engines.cei.structure import Cei
from rules_index.engines.scan import Scan
from rules_index.index.conjunction_arrays import DISJUNCTION
from rules_index.index.registry import engine_class
from rules_index.index.term_sets import NO_SETS, sets_of
from tests.cases import QUICK, cases, quick_first
from tests.unit.engines.be_trees import l_nodes
from tests.unit.engines.random_conjunctions import SIZES, Draw

Sets = dict[int, dict[int, set[int]]]
"""Key of a conjunction -> attribute -> codes."""


def codes_of(engine: Any, keys: list[int]) -> Sets:
    c, first = engine._conjunctions, int(engine._conjunctions.disjunction_start[-1])
    return {
        key: {
            attribute: {
                code
                for low, high in c.intervals[c.set_start[which] : c.set_start[which + 1]].tolist()
                for code in range(low, high + 1)
            }
            for attribute, which in c.terms[c.start[first + key] : c.start[first + key + 1]].tolist()
            if attribute != DISJUNCTION
        }
        for key in keys
    }


def is_whole(codes: set[int]) -> bool:
    return len(codes) == max(codes) - min(codes) + 1


def be_tree_cost(engine: Any, offered: dict[int, set[int]]) -> dict[str, int]:
    """What a search costs by section 5: l-nodes whose buckets the event meets, each expression until a predicate fails,
    first those on attributes that are not on the path; what is all of its bucket is not evaluated."""
    cost = dict.fromkeys(("expressions_checked", "predicates_evaluated", "matches"), 0)
    nodes = l_nodes(engine.structure)
    sets = codes_of(engine, [key for node in nodes for key in node.boxes])
    for node in nodes:
        if not all(any(low <= code <= high for code in offered.get(a, ())) for a, low, high in node.key):
            continue
        path = {attribute: (low, high) for attribute, low, high in node.key}
        for key in node.boxes:
            cost["expressions_checked"] += 1
            roles = []
            for attribute, codes in sets[key].items():
                subsumed = path.get(attribute) == (min(codes), max(codes))
                if not (subsumed and is_whole(codes)):
                    roles.append(((attribute in path) + subsumed, attribute, codes))
            held = True
            for _, attribute, codes in sorted(roles, key=lambda role: role[:2]):
                cost["predicates_evaluated"] += 1
                held = bool(codes & offered.get(attribute, set()))
                if not held:
                    break
            cost["matches"] += held
    return cost


def events(draw: Draw) -> list[dict[int, set[int]]]:
    """Rows, and events of some attributes with several codes each."""
    rows: list[dict[int, set[int]]] = [{a: {int(code)} for a, code in enumerate(column)} for column in draw.codes(6).T]
    for _ in range(6):
        named = draw.random.choice(len(draw.sizes), draw.random.integers(0, len(draw.sizes) + 1), replace=False)
        rows.append({int(a): set(draw.random.integers(0, draw.sizes[a], 3).tolist()) for a in named})
    return rows


def event_of(offered: dict[int, set[int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    start = np.concatenate([[0], np.cumsum([len(codes) for codes in offered.values()], dtype=np.int64)])
    intervals = np.array([(code, code) for codes in offered.values() for code in sorted(codes)], np.int32)
    return np.array(list(offered), np.int32), start, intervals.reshape(-1, 2)


@pytest.mark.parametrize("sizes", quick_first(1, SIZES, 1))
def test_a_be_tree_evaluates_sets_and_counts_them(sizes: str) -> None:
    fewer = 0
    for seed in range(cases(60)):
        draw = Draw(seed, SIZES[sizes])
        conjunctions = draw.conjunctions()
        scan, tree = Scan.build(conjunctions), engine_class("be_tree").build(conjunctions)
        sets = sets_of(conjunctions)
        for _ in range(4):
            for offered in events(draw):
                found, cost = tree.structure.search_event(event_of(offered), sets=sets)
                assert {name: cost[name] for name in cost if name != "c_nodes_visited"} == be_tree_cost(tree, offered)
                _, by_bounds = tree.structure.search_event(event_of(offered))
                fewer += cost["predicates_evaluated"] < by_bounds["predicates_evaluated"]
                codes = codes_of(tree, found.tolist())
                assert all(offered.get(a, set()) & of for each in codes.values() for a, of in each.items())
                rules, _ = tree.search_event(event_of(offered))
                assert np.array_equal(rules, scan.search_event(event_of(offered))[0])
                if len(offered) == len(draw.sizes) and all(len(codes) == 1 for codes in offered.values()):
                    row = np.array([next(iter(offered[a])) for a in range(len(draw.sizes))], np.int32)
                    assert tree.structure.search(row, sets=sets)[1] == cost
                    assert np.array_equal(tree.search(row)[0], scan.search(row)[0])
    assert QUICK or fewer > 20


def cei_cost(engine: Any, structure: Cei, row: np.ndarray) -> tuple[dict[str, int], list[int]]:
    """The counters without the lists: by the order in which it has a box's terms, and the keys that match."""
    arrays = structure.arrays
    keys = arrays["keys"].tolist()
    sets = codes_of(engine, keys)
    cost, held = {"ids_read": 0, "predicates_evaluated": 0}, []
    for number, key in enumerate(keys):
        terms = arrays["terms"][arrays["start"][number] : arrays["start"][number + 1], 0].tolist()
        within = [min(sets[key][a]) <= row[a] <= max(sets[key][a]) for a in terms]
        filed = len(terms) if structure.parameters.access == "every" else min(1, len(terms))
        cost["ids_read"] += sum(within[:filed])
        if structure.parameters.access == "every":
            cost["predicates_evaluated"] += sum(
                inside and not is_whole(sets[key][a]) for a, inside in zip(terms, within, strict=True)
            )
        elif terms and within[0]:
            for place, attribute in enumerate(terms):
                if place or not is_whole(sets[key][attribute]):
                    cost["predicates_evaluated"] += 1
                    if row[attribute] not in sets[key][attribute]:
                        break
        if all(row[a] in codes for a, codes in sets[key].items()):
            held.append(key)
    return cost, held


@pytest.mark.parametrize("sizes", quick_first(1, SIZES, 1))
def test_cei_evaluates_sets_and_counts_them(sizes: str) -> None:
    fewer = 0
    for seed in range(cases(60)):
        draw = Draw(seed, SIZES[sizes])
        conjunctions = draw.conjunctions()
        scan, engine = Scan.build(conjunctions), engine_class("cei").build(conjunctions)
        term_sets = sets_of(conjunctions)
        other = Cei._of_table(type(engine.structure.parameters)(access="every"), engine.structure._boxes)
        for _ in range(4):
            for row in draw.codes(6).T:
                for structure in (engine.structure, other):
                    found, cost = structure.search(row, sets=term_sets)
                    expected, held = cei_cost(engine, structure, row)
                    assert (found.tolist(), cost["matches"]) == (held, len(held)), (seed, structure.parameters)
                    assert {name: cost[name] for name in expected} == expected, (seed, structure.parameters)
                    fewer += cost["matches"] < structure.search(row, sets=NO_SETS)[1]["matches"]
                assert np.array_equal(engine.search(row)[0], scan.search(row)[0])
    assert QUICK or fewer > 20
