"""Computed attributes: however many, and however long their values, they take a bounded part of memory at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.index import code_matrix, computed_codes
from rules_index.language.evaluation.evaluated import Evaluated


def allocated(compiled: ri.CompiledRules, rows: pa.Table) -> tuple[list[list[str]], int]:
    """What `match` returns, and the most bytes of Arrow's that it held."""
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    before = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        found = compiled.match(rows).to_pylist()
    finally:
        pa.set_memory_pool(before)
    return found, pool.max_memory()


@pytest.mark.slow
def test_values_of_many_rules_are_not_held_together() -> None:
    rows = pa.table({"s": [f"{number:05} customer-{number % 7}" for number in range(20_000)]})
    rules = [(f"r{number:04}", f"concat(s, '-{number}', s) = concat(s, '-3', s)") for number in range(600)]
    found, most = allocated(ri.compile_rules(rules, rows.schema), rows)
    assert found == [["r0003"]] * 20_000
    assert most < 2 * computed_codes.MAX_BYTES  # all of them take 400 MB


@pytest.mark.slow
def test_values_of_one_wide_expression_are_not_held_together() -> None:
    rows = pa.table({"s": [f"{number:05} customer-{number % 7}" for number in range(20_000)]})
    values = ", ".join(f"concat(s, '-{number:03}', s)" for number in range(600))
    wide = f"greatest({values}) LIKE '%customer-3-599%'"
    found, most = allocated(ri.compile_rules([("wide", wide)], rows.schema), rows)
    assert found == [["wide"] if number % 7 == 3 else [] for number in range(20_000)]
    assert most < 2 * computed_codes.MAX_BYTES  # all of them take 300 MB


def test_texts_that_are_filled_up_are_not_held_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these texts has a thousand characters of four bytes, whatever the column's."""
    monkeypatch.setattr(computed_codes, "MAX_BYTES", 1 << 20)
    rows = pa.table({"s": [f"{number % 7}" for number in range(1_000)]})
    texts = ", ".join(["lpad(s, 1000, '\N{GRINNING FACE}')"] * 4)
    compiled = ri.compile_rules([("long", f"length(concat({texts})) = 4000")], rows.schema)
    found, most = allocated(compiled, rows)
    assert found == [["long"]] * 1_000
    assert most < 3 * computed_codes.MAX_BYTES  # all of them take 20 MB


@pytest.mark.parametrize(
    "wide",
    [
        "CASE " + " ".join(f"WHEN a = {number} THEN b + {number}" for number in range(400)) + " ELSE a END = 3",
        "coalesce(" + ", ".join(f"nullif(a, {number} + b)" for number in range(400)) + ") = 3",
        "greatest(" + ", ".join(f"a + {number}" for number in range(400)) + ") = 402",
        "a + b IN (" + ", ".join(f"b + {number} * a" for number in range(400)) + ")",
    ],
)
def test_an_expression_with_many_operands_is_evaluated_for_many_rows_at_once(
    monkeypatch: pytest.MonkeyPatch, wide: str
) -> None:
    """One operand after another, within the same memory: with few rows at a time, twice the operands would take four
    times as long."""
    rows = pa.table({name: pa.array([number % 9 for number in range(4_000)], pa.int32()) for name in "ab"})
    compiled = ri.compile_rules([("wide", wide)], rows.schema)
    expected, _ = allocated(compiled, rows)
    monkeypatch.setattr(computed_codes, "MAX_BYTES", 1 << 20)
    pieces = []
    evaluate = computed_codes.evaluate

    def counted(*given: Any, **named: Any) -> Evaluated:
        pieces.append(given[2])
        return evaluate(*given, **named)

    monkeypatch.setattr(computed_codes, "evaluate", counted)
    found, most = allocated(compiled, rows)
    assert found == expected
    assert len(pieces) <= 2
    assert most < 2 * computed_codes.MAX_BYTES


@pytest.mark.slow
def test_a_rule_whose_values_no_array_can_hold_stops_no_other_rule() -> None:
    rows = pa.table({"s": ["x" * 1_000, None, *(f"{number:01000}" for number in range(2_998))]})
    filler = "z" * 800_000
    rules = [("long", f"length(concat(s, '{filler}')) = 801000"), ("good", "s LIKE 'x%'")]
    compiled = ri.compile_rules(rules, rows.schema)
    assert compiled.match(rows).to_pylist() == [["good", "long"], [], *[["long"]] * 2_998]
    assert compiled.errors == {}


@pytest.mark.parametrize("most", [1, 100, 5_000])
def test_fewer_rows_at_a_time_match_and_raise_alike(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    rows = pa.table(
        {
            "s": [None if number % 5 == 0 else str(number % 7) * (number % 3) for number in range(100)],
            "a": pa.array([None if number % 11 == 0 else number % 4 for number in range(100)], pa.int32()),
            "f": [None if number % 13 == 0 else number % 2 == 0 for number in range(100)],
        }
    )
    rules = [
        ("concat", "concat(s, s, '1') = '111'"),
        ("divided", "10 DIV a > 3 OR length(concat(s, s)) < 2"),
        ("cast", "CAST(s AS INT) + a = 4"),
        ("flag", "(f AND a > 1) <=> (length(s) > 1)"),
        ("case", "CASE WHEN f THEN concat(s, 'x') ELSE s END = coalesce(s, 'x')"),
    ]
    whole = ri.compile_rules(rules, rows.schema)
    expected, errors = whole.match(rows).to_pylist(), whole.errors
    monkeypatch.setattr(computed_codes, "MAX_BYTES", most)
    sliced = ri.compile_rules(rules, rows.schema)
    assert sliced.match(rows).to_pylist() == expected
    assert sliced.errors == errors
    assert errors["divided"] and errors["cast"]
    assert sum(map(len, expected)) > 50


@pytest.mark.parametrize("values", [[None] * 100, list(range(100))])
def test_a_plain_column_is_encoded_as_it_is(values: list[int | None]) -> None:
    """As joins ask for it; also where its values take no bytes."""
    column = pa.nulls(100, pa.int64()) if values[0] is None else pa.array(values, pa.int64())
    compiled = ri.compile_rules([("a", "x > 50")], pa.schema({"x": pa.int64()}))
    codes = np.empty(100, np.int32)
    leaf = compiled.inputs[0]
    given = Evaluated(column, None)
    raised = computed_codes.Computed(100, {leaf.name: given}).encode(leaf, compiled.regions[0], codes)
    expected = np.empty(100, np.int32)
    compiled.regions[0].encode(column, None, expected)
    assert raised is None and np.array_equal(codes, expected)


def test_a_lack_of_memory_is_no_error_of_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that could not be looked at is not taken for one that the rule does not match."""
    rows = pa.table({"s": ["x", "y"] * 50})
    compiled = ri.compile_rules([("a", "concat(s, s) = 'xx'")], rows.schema)

    def without_memory(*_: object, **__: object) -> Evaluated:
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr(computed_codes, "evaluate", without_memory)
    with pytest.raises(MemoryError):
        compiled.match(rows)


@pytest.mark.parametrize("wide", [False, True])
def test_the_codes_of_very_many_attributes_take_bounded_memory(monkeypatch: pytest.MonkeyPatch, wide: bool) -> None:
    """One rule may have tens of thousands of patterns, each of them an attribute: 16,000 took 5 GB."""
    rows = pa.table({"s": [f"v{number % 150}" for number in range(1_000)], "a": list(range(1_000))})
    patterns = ", ".join(f"'%{number}%'" for number in range(100, 220))
    rules = [("many", f"s LIKE ANY ({patterns})"), ("some", f"a IN ({', '.join(map(str, range(0, 900, 2)))})")]
    compiled = ri.compile_rules(rules[: 1 + wide], rows.schema)
    expected = compiled.match(rows).to_pylist()
    sizes = []
    codes_of_values = code_matrix.codes_of_values

    def measured(*given: Any) -> Any:
        codes, raised = codes_of_values(*given)
        sizes.append(codes.nbytes)
        return codes, raised

    monkeypatch.setattr(code_matrix, "codes_of_values", measured)
    monkeypatch.setattr(code_matrix, "CODE_BYTES", 1 << 15, raising=False)
    monkeypatch.setattr(code_matrix, "LEAST_CHUNK_ROWS", 8, raising=False)
    assert compiled.match(rows).to_pylist() == expected
    assert sum(map(len, expected)) > 200
    assert max(sizes) <= 1 << 15
