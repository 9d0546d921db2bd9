"""Every engine agrees with brute force, and refuses arrays that are not consistent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.engines.asc.engine import Asc
from rules_index.engines.scan import Scan
from rules_index.index.array_checks import InvalidArraysError
from rules_index.index.build import build
from rules_index.index.compiled import dumps
from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.layout import AccessPlan
from rules_index.index.registry import ENGINES, engine_class
from rules_index.kernels.bitmaps import COARSE_CODES
from rules_index.kernels.fields import FIELDS, SCALARS
from rules_index.kernels.match import KernelArrays
from tests import random_rows
from tests.cases import QUICK, cases
from tests.random_expressions import Grammar
from tests.unit.engines.random_conjunctions import RULES, SIZES, Draw

CASES = cases(60, "DELTATAG_ENGINE_CASES")
"""Rule sets, each compared on two batches of rows."""
ROWS = (0, 1, 63, 64, 65, 500, 4097)
INDEXED = [name for name in ENGINES if name != "scan"]
PAPERS = [name for name in INDEXED if name != "hybrid"]


class Placed(Asc):
    """An engine of random access plans."""

    draw: Draw

    def _place(self) -> AccessPlan:
        return self.draw.access_plan(self._conjunctions)


def forms(codes: np.ndarray, sizes: Any) -> list[np.ndarray]:
    """The codes as they are and, where they fit, as bytes."""
    return [codes, codes.astype(np.uint8)] if max(sizes) <= COARSE_CODES else [codes]


def assert_equal(found: tuple[np.ndarray, np.ndarray], expected: tuple[np.ndarray, np.ndarray], *what: Any) -> None:
    assert np.array_equal(found[0], expected[0]) and np.array_equal(found[1], expected[1]), what


@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("sizes", SIZES)
def test_all_engines_agree_with_brute_force(sizes: str) -> None:
    for seed in range(CASES):
        draw = Draw(seed, SIZES[sizes])
        conjunctions = draw.conjunctions()
        scan = Scan.build(conjunctions)
        engines = {name: engine_class(name).build(conjunctions) for name in INDEXED}
        for name in PAPERS:
            engines[name].structure.check()
        for rows in (int(draw.random.choice(ROWS)), 70):
            codes = draw.codes(rows)
            expected = scan.match(codes)
            for name, engine in engines.items():
                for form in forms(codes, conjunctions.sizes):
                    assert_equal(engine.match(form), expected, name, seed, rows, form.dtype)
                for row in range(0, rows, max(1, rows // 3)):
                    found, _ = engine.search(codes[:, row])
                    rules = expected[1][expected[0][row] : expected[0][row + 1]]
                    assert np.array_equal(found, rules), (name, seed, row)


def event_of(offers: dict[int, list[tuple[int, int]]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An event's attributes, start and intervals."""
    start = np.concatenate([[0], np.cumsum([len(each) for each in offers.values()], dtype=np.int64)])
    intervals = np.array([pair for each in offers.values() for pair in each], np.int32).reshape(-1, 2)
    return np.array(list(offers), np.int32), start, intervals


def met_by(conjunctions: Conjunctions, offers: dict[int, set[int]]) -> list[int]:
    """By brute force: the rules with a conjunction of which each term has a code that the event offers."""
    c, disjunctions = conjunctions, len(conjunctions.disjunction_start) - 1
    sets = [
        {code for low, high in c.intervals[first:last].tolist() for code in range(low, high + 1)}
        for first, last in zip(c.set_start[:-1], c.set_start[1:], strict=True)
    ]
    met: list[bool] = []
    for first, last in zip(c.start[:-1], c.start[1:], strict=True):
        terms = c.terms[first:last].tolist()
        disjunction_met = [
            any(met[c.disjunction_start[number] : c.disjunction_start[number + 1]]) for number in range(disjunctions)
        ]
        met.append(
            all(
                disjunction_met[which] if a == DISJUNCTION else bool(offers.get(a, set()) & sets[which])
                for a, which in terms
            )
        )
    first = int(c.disjunction_start[-1])
    return sorted({int(rule) for rule, is_met in zip(c.target[first:], met[first:], strict=True) if is_met})


def test_events_are_answered_by_the_sets_of_rules() -> None:
    """IN, NOT IN and `<>` are sets of several intervals, of which the tree knows the first and the last code alone."""
    narrower = 0
    for seed in range(CASES):
        draw = Draw(seed, SIZES["few codes"])
        conjunctions = draw.conjunctions()
        tree = engine_class("be_tree").build(conjunctions)
        others = {name: engine_class(name).build(conjunctions) for name in ENGINES if name != "be_tree"}
        sizes, codes = conjunctions.sizes, draw.codes(20)
        for row in codes.T:
            found, cost = tree.search_event(event_of({a: [(code, code)] for a, code in enumerate(row.tolist())}))
            expected, among = tree.search(row)
            assert np.array_equal(found, expected) and cost == among
            assert found.tolist() == met_by(conjunctions, {a: {code} for a, code in enumerate(row.tolist())})
            narrower += cost["matches"] < len(tree.structure.search(row)[0])
        for _ in range(20):
            named = sorted(draw.random.choice(len(sizes), draw.random.integers(0, len(sizes) + 1), replace=False))
            ends = {int(a): np.unique(draw.random.integers(0, sizes[a], 4)).tolist() for a in named}
            offers = {a: list(zip(e[::2], e[1::2], strict=False)) or [(e[0], e[0])] for a, e in ends.items()}
            found, _ = tree.search_event(event_of(offers))
            for other, engine in others.items():
                assert np.array_equal(engine.search_event(event_of(offers))[0], found), (other, seed, offers)
            codes_of = {a: {c for low, high in pairs for c in range(low, high + 1)} for a, pairs in offers.items()}
            assert found.tolist() == met_by(conjunctions, codes_of), (seed, offers)
    assert QUICK or narrower > 10


@pytest.mark.timeout(6 * 3600)
def test_all_engines_agree_on_rules_and_rows_of_every_type() -> None:
    for seed in range(max(1, CASES // 10)):
        grammar = Grammar(seed)
        rows = random_rows.rows(150, seed)
        rules = [(number, grammar.rule()) for number in range(40)]
        schema = rows.schema.remove(rows.schema.get_field_index("pk"))
        scan = ri.compile_rules(rules, schema, engine="scan")
        draw = np.random.default_rng(seed)
        for leaf in scan.derived:
            # Spark's answers: whatever they are, engines agree on them
            truth = pa.array(draw.integers(0, 4, rows.num_rows), pa.int8())
            rows = rows.append_column(leaf.name, truth if leaf.type == pa.bool_() else pa.nulls(150, leaf.type))
        expected = scan.match(rows)
        assert len(scan) > 30 and len(expected.flatten())
        for name in (*INDEXED, "auto"):
            compiled = ri.compile_rules(rules, schema, engine=name, sample=rows.select if seed % 2 else None)
            assert compiled.match(rows).equals(expected), (name, seed)
            assert ri.loads(dumps(compiled)).match(rows).equals(expected), (name, seed)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", INDEXED)
def test_a_loaded_engine_matches_alike(name: str, sizes: str) -> None:
    for seed in range(12):
        draw = Draw(seed, SIZES[sizes])
        conjunctions = draw.conjunctions()
        loaded = engine_class(name).load(engine_class(name).build(conjunctions).arrays, len(conjunctions.sizes), RULES)
        scan = Scan.build(conjunctions)
        assert_equal(loaded.match(draw.codes(300)[:, :0]), scan.match(draw.codes(0)))
        for _ in range(2):
            codes = draw.codes(300)
            for form in forms(codes, scan.arrays["sizes"]):
                assert_equal(loaded.match(form), scan.match(codes), seed, form.dtype)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", SIZES)
def test_keyed_sliced_and_scanned_conjunctions_match_alike(sizes: str) -> None:
    keyed, in_runs, seeds = 0, 0, cases(600)
    for seed in range(seeds):
        draw = Draw(seed, SIZES[sizes])
        conjunctions = draw.conjunctions()
        codes = draw.codes(int(draw.random.choice([0, 1, 63, 500, 4096, 5000, 9000])))
        engine = Placed(conjunctions)
        engine.draw = draw
        for form in forms(codes, conjunctions.sizes):
            assert_equal(engine.match(form), Scan.build(conjunctions).match(codes), seed, form.dtype)
        keyed += len(engine.arrays["kernel_posted"])
        in_runs += len(engine.arrays["kernel_level_width"])
    assert keyed > 10 * seeds // 3 and in_runs > 4 * seeds // 3


def test_values_that_few_rules_name_are_looked_up() -> None:
    accounts = 50_000
    conjunctions = Conjunctions(
        sizes=np.array([accounts + 3, 5], np.int32),
        set_start=np.arange(accounts + 2),
        intervals=np.array([*((i, i) for i in range(1, accounts + 1)), (0, 1)], np.int32),
        start=np.arange(0, 2 * accounts + 1, 2),
        terms=np.array([t for i in range(accounts) for t in ((0, i), (1, accounts))], np.int32),
        target=np.arange(accounts, dtype=np.int32),
        disjunction_start=np.zeros(1, np.int32),
    )
    engine, reason = build(conjunctions)
    assert engine.name == "hybrid" and "50,000 are found in 1 hash tables" in reason
    random = np.random.default_rng(0)
    codes = np.stack([random.integers(0, accounts + 3, 9_000), random.integers(0, 5, 9_000)]).astype(np.int32)
    offsets, ordinals = engine.match(codes)
    named = (codes[0] >= 1) & (codes[0] <= accounts) & (codes[1] <= 1)
    assert np.array_equal(np.diff(offsets), named.astype(int))
    assert np.array_equal(ordinals, codes[0][named] - 1)


@pytest.mark.parametrize("name", [*ENGINES, "placed"])
def test_arrays_out_of_bounds_are_refused_or_harmless(name: str) -> None:
    refused = 0
    for seed in range(cases(60)):
        draw = Draw(seed, SIZES["many codes" if seed % 2 else "few codes"])
        conjunctions = draw.conjunctions()
        engine: Any = Placed if name == "placed" else engine_class(name)
        Placed.draw = draw
        built = engine.build(conjunctions).arrays
        for _ in range(4):
            arrays = {key: array.copy() for key, array in built.items()}
            key = draw.random.choice([key for key in arrays if arrays[key].size])
            flat = arrays[key].reshape(-1)
            values = [-1, -7, 10**6, 2**31 - 1, 3, 254] if flat.dtype != np.uint8 else [0, 7, 255]
            flat[draw.random.integers(0, len(flat))] = draw.random.choice(values)
            if draw.random.random() < 0.1:
                arrays[key] = arrays[key][: len(arrays[key]) // 2]
            try:
                engine.load(arrays, len(conjunctions.sizes), RULES).match(draw.codes(200))
            except InvalidArraysError:
                refused += 1
    assert refused > cases(100)


ANY_VALUE = ("filter_words", "group_codes", "group_code_at")
"""Fields whose values are compared with those of rows, or are not read in tables of each kind."""


def test_each_field_of_the_kernel_has_its_line_in_the_table() -> None:
    conjunctions = {"set_start", "set_intervals", "disjunction_start"}
    derived = {name for name in KernelArrays._fields if name.startswith(("transposed", "summary_", "equality_"))}
    assert {field.name for field in FIELDS} | {*SCALARS} | conjunctions | derived == {*KernelArrays._fields}


def test_each_field_of_the_kernel_is_bounded() -> None:
    met = set()
    for seed in range(24):
        Placed.draw = Draw(seed, SIZES["many codes" if seed % 2 else "few codes"])
        conjunctions = Placed.draw.conjunctions()
        engine: Any = engine_class("r_tree") if seed % 3 == 2 else Placed
        arrays = engine.build(conjunctions).arrays
        for name in {field.name for field in FIELDS if arrays[f"kernel_{field.name}"].size} - {*ANY_VALUE}:
            limits = np.iinfo(arrays[f"kernel_{name}"].dtype)
            # the first of a group is compared with rows
            for place, value in ((0 if name != "groups" else 1, limits.min), (-1, limits.max)):
                damaged = arrays[f"kernel_{name}"].copy()
                damaged.reshape(-1)[place] = value
                with pytest.raises(InvalidArraysError):
                    engine.load({**arrays, f"kernel_{name}": damaged}, len(conjunctions.sizes), RULES)
            met.add(name)
    assert met == {field.name for field in FIELDS} - {*ANY_VALUE}
