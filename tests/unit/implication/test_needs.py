"""What a value needs, and what attributes cannot be together: against evaluation, row by row."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import rules_index as ri
from rules_index.implication.impossible import impossible
from rules_index.implication.null_propagation import columns_needed, is_null_with_its_columns_only
from rules_index.implication.region_boxes import Codes
from rules_index.language.evaluation.evaluate import evaluate
from rules_index.language.evaluation.evaluated import Evaluated
from rules_index.language.scope import Scope
from rules_index.language.typed import Leaf
from tests import random_rows
from tests.random_expressions import Grammar
from tests.unit.implication.oracles import CASES, SCHEMA


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("unix_seconds(t)", "t"),
        ("s > a", "a s"),
        ("s <=> a", ""),
        ("a / b", "a b"),
        ("a IN (2, '2')", "a"),
        ("a NOT BETWEEN b AND 7", "a"),
        ("CAST(a AS BOOLEAN)", "a"),
        ("(CAST(a AS BOOLEAN)) IS NULL", ""),
        ("NOT (lower(s) LIKE '%x')", "s"),
        ("coalesce(s, 'x') < upper(s)", "s"),
        ("concat(s, md5(s))", "s"),
        ("concat_ws('-', s, s)", ""),
        ("xxhash64(a)", ""),
        ("isnan(f)", ""),
        ("nvl2(s, s, 'a')", ""),
        ("CASE WHEN s > a THEN 1 END", ""),
        ("(a, b) = (a, 3)", ""),
        ("n.x % 2", "n.x"),
        ("exists(array(a), x -> x < b)", ""),
        ("trim(LEADING 'a' FROM s)", "s"),
        ("no_such_column + a", "a"),
        ("not SQL", ""),
    ],
)
def test_columns_that_a_text_needs(text: str, columns: str) -> None:
    assert {leaf.name for leaf in columns_needed(Leaf("derived", pa.int32(), text), Scope(SCHEMA))} == set(
        columns.split()
    )


@pytest.mark.slow
def test_evaluation_bears_out_what_is_needed_and_what_is_impossible() -> None:
    table = random_rows.rows(300, seed=11)
    found = {"needed": 0, "only": 0, "impossible": 0}
    for seed in range(CASES * 2):
        grammar = Grammar(seed, variety=0.4)
        rules = [grammar.rule(), "i < i2 OR i2 <= i", "NOT (i = i2) AND st.x BETWEEN i AND i2", "i + 1 > 3 OR i < 9"]
        rules += [
            f"{a} < {b} OR {b} <= {a} OR {a} = {b}" for a, b in (("d", "d2"), ("f", "d"), ("s", "s2"), ("b", "b2"))
        ]
        compiled = ri.compile_rules(list(enumerate(rules)), table.schema, engine="scan")
        scope = Scope(table.schema)
        rows, held = table.num_rows, set(compiled.derived)
        inputs = {leaf.name: Evaluated(_column(table, leaf)) for leaf in compiled.inputs if leaf not in held}
        codes = Codes.of(compiled.attributes, compiled.regions)
        matrix = np.full((len(compiled.attributes), rows), -1)
        for number, attribute in enumerate(compiled.attributes):
            try:
                value = evaluate(attribute, inputs, rows)
            except KeyError:
                continue
            met = np.empty(rows, np.int32)
            compiled.regions[number].encode(value.values, value.raised, met)
            matrix[number] = codes.code[codes.old_start[number] + met]
            missing = np.zeros(rows, bool)
            for leaf in columns_needed(attribute, scope):
                missing |= np.asarray(_column(table, leaf).is_null())
            null = np.asarray(value.values.is_null())
            assert null[missing].all(), (seed, attribute)
            found["needed"] += bool(missing.any())
            if is_null_with_its_columns_only(attribute):
                raised = value.raised if value.raised is not None else np.zeros(rows, bool)
                assert (missing | raised)[null].all(), (seed, attribute)
                found["only"] += 1
        for box in impossible(compiled.attributes, compiled.regions, codes, scope):
            met = np.logical_and.reduce([np.isin(matrix[number], held) for number, held in box.items()])
            assert not met.any(), (seed, {compiled.attributes[number]: held for number, held in box.items()})
            found["impossible"] += 1
    assert min(found.values()) > CASES, found


def _column(table: pa.Table, leaf: Leaf) -> pa.Array:
    first, *fields = leaf.name.split(".")
    column = table.column(first).combine_chunks()
    for field in fields:
        column = pc.struct_field(column, field)
    return column


def test_what_three_values_compared_with_each_other_can_be_is_told_exactly() -> None:
    rules = ["a < b", "b < n.x", "a < n.x"]
    compiled = ri.compile_rules(list(enumerate(rules)), SCHEMA, engine="scan")
    codes = Codes.of(compiled.attributes, compiled.regions)
    boxes = impossible(compiled.attributes, compiled.regions, codes, Scope(SCHEMA))
    values = [None, 1, 2, 3]
    rows = list(itertools.product(values, repeat=3))
    table = pa.table({"a": pa.array([row[0] for row in rows], pa.int32()), "b": pa.array([row[1] for row in rows]),
                      "n": pa.array([{"x": row[2]} for row in rows], SCHEMA.field("n").type)})  # fmt: skip
    regions, _ = compiled.codes(table)
    met = {tuple(each) for each in codes.code[codes.old_start[:3, None] + regions].T.tolist()}
    every = itertools.product(*map(range, codes.sizes.tolist()))
    left = {point for point in every if not any(all(point[n] in held for n, held in box.items()) for box in boxes)}
    assert left == met
