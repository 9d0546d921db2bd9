"""`array_contains` of an array that is written as constants is matched like IN."""

from __future__ import annotations

import pyarrow as pa
import pytest

import rules_index as ri

TABLE = pa.table({"s": ["a", "b", None, ""], "i": pa.array([1, 7, None, 2], pa.int64())})


@pytest.mark.parametrize(
    ("call", "operator"),
    [
        ("array_contains(array('a', ''), s)", "s IN ('a', '')"),
        ("NOT array_contains(array('a'), s)", "s NOT IN ('a')"),
        ("array_contains(array(1, 7), i)", "i IN (1, 7)"),
    ],
)
def test_constants_are_looked_up_like_those_of_in(call: str, operator: str) -> None:
    compiled = ri.compile_rules([("call", call), ("operator", operator)], TABLE.schema)
    assert not compiled.derived
    assert [each.name for each in compiled.attributes] == [operator[0]]
    found = compiled.match(TABLE).to_pylist()
    assert all(len(each) in (0, 2) for each in found)
    assert any(found)


@pytest.mark.parametrize("call", ["array_contains(array('a', NULL), s)", "array_contains(array(s), 'a')"])
def test_other_arrays_are_left_to_spark(call: str) -> None:
    assert ri.compile_rules([("r", call)], TABLE.schema).derived
