"""A stored index holds its paper's structure: it is searched without being built anew, and counted in `stats`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rules_index as ri
from pipelines.settings.model import ENGINES as CONFIGURED
from rules_index.engines.paper import PaperEngine
from rules_index.index.array_checks import InvalidArraysError
from rules_index.index.compiled import CompiledRules, dumps
from rules_index.index.registry import ENGINES, engine_class
from tests.cases import quick_first

SCHEMA = pa.schema({"a": pa.int32(), "b": pa.int32(), "c": pa.string()})
KINDS = {
    "asc": {"attributes", "region_bitmaps"},
    "be_tree": {"p_nodes", "c_nodes", "l_nodes"},
    "r_tree": {"nodes", "leaves"},
    "grid_file": {"directory_pages", "buckets"},
    "cei": {"constructs", "id_lists"},
}


def rules() -> list[tuple[int, str]]:
    draw = np.random.default_rng(4)
    texts = []
    for number in range(600):
        low, value = draw.integers(0, 200, 2).tolist()
        texts.append(
            (
                f"a BETWEEN {low} AND {low + 9} AND b = {value % 40}",
                f"a IN ({low}, {value}) OR c = 'k{value % 7}' AND b > {low}",
                f"b <> {value % 40} AND a > {low} AND c NOT IN ('k1', 'k2')",
                f"a IS NULL AND b < {value % 40}",
            )[number % 4]
        )
    return list(enumerate(texts))


def rows() -> pa.Table:
    draw = np.random.default_rng(5)
    a = [None if value > 205 else int(value) for value in draw.integers(0, 215, 400)]
    return pa.table({"a": a, "b": draw.integers(0, 42, 400), "c": [f"k{i % 9}" for i in range(400)]}).cast(SCHEMA)


@pytest.fixture(scope="module")
def expected() -> pa.Array:
    return ri.compile_rules(rules(), SCHEMA, engine="scan").match(rows())


def searched(compiled: CompiledRules, codes: np.ndarray) -> list[list[int]]:
    return [compiled.index.search(np.ascontiguousarray(codes[:, row]))[0].tolist() for row in range(codes.shape[1])]


def test_engines_have_one_list_of_names() -> None:
    assert ("auto", *ENGINES) == CONFIGURED
    assert {name for name in ENGINES if issubclass(engine_class(name), PaperEngine)} == set(KINDS)


@pytest.mark.parametrize("name", quick_first(1, KINDS))
def test_a_loaded_index_is_searched_without_a_build(name: str, expected: pa.Array, monkeypatch: Any) -> None:
    compiled = ri.compile_rules(rules(), SCHEMA, engine=name)
    counts = compiled.stats["structure"]
    assert set(counts) == KINDS[name] and all(counts.values()), counts
    stored = dumps(compiled)
    structure = resolve_name(engine_class(name).structure_class)  # type: ignore[attr-defined]

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("it is built anew")

    monkeypatch.setattr(structure, "build", refuse)
    loaded = ri.loads(stored)
    assert loaded.engine == name and loaded.stats["structure"] == counts
    assert loaded.match(rows()).equals(expected)
    codes, _ = loaded.codes(rows())
    assert searched(loaded, codes) == expected.to_pylist()
    with ThreadPoolExecutor(8) as pool:
        again = ri.loads(stored)
        for found in pool.map(lambda _: searched(again, codes), range(8)):
            assert found == expected.to_pylist()


def test_hybrid_counts_its_access_paths() -> None:
    compiled = ri.compile_rules(rules(), SCHEMA)
    assert compiled.engine == "hybrid" and set(compiled.stats["structure"]) == {"scanned", "hashed", "sorted"}
    assert sum(compiled.stats["structure"].values()) >= 600


@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_structure_is_refused_when_it_is_opened(name: str, expected: pa.Array) -> None:
    compiled = ri.compile_rules(rules(), SCHEMA, engine=name)
    codes, _ = compiled.codes(rows())
    arrays = dict(compiled.index.arrays)
    refused = 0
    for which in (each for each in arrays if each.startswith("structure_") and arrays[each].dtype.kind == "i"):
        damaged = arrays[which].copy()
        if not damaged.size:
            continue
        damaged.reshape(-1)[damaged.size // 2] = 2**30
        engine = engine_class(name).load(arrays | {which: damaged}, len(codes), len(compiled))
        assert np.array_equal(engine.match(codes)[1], compiled.index.match(codes)[1])
        try:
            engine.search(np.ascontiguousarray(codes[:, 0]))
        except InvalidArraysError:
            refused += 1
    assert refused
    without = {each: array for each, array in arrays.items() if not each.startswith("structure_")}
    with pytest.raises(InvalidArraysError, match="structure"):
        engine_class(name).load(without, len(codes), len(compiled))
