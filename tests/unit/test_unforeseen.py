"""An exception that nobody foresaw in one rule's way rejects that rule, and no other."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.language import analyser
from rules_index.language.evaluation import datetime_parser, function_registry
from rules_index.language.nodes import Node

SCHEMA = pa.schema([("a", pa.int32()), ("b", pa.int32()), ("d", pa.date32())])
RULES = [(1, "a = 1"), (2, "abs(b) = 2 AND a = 2"), (3, "a = 3 OR b = 3"), *((k, f"a = {k}") for k in range(10, 40))]


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks what analyses ABS: a fault of the library's own, which no text may have been found for yet."""
    known = analyser.Analyser.value

    def value(self: analyser.Analyser, node: Node) -> analyser.Value:
        if node.kind == "call" and node.value == "abs":
            raise KeyError("something that nobody thought of")
        return known(self, node)

    monkeypatch.setattr(analyser.Analyser, "value", value)


@pytest.mark.usefixtures("breaking")
def test_one_rule_is_rejected_and_the_others_go_on() -> None:
    compiled = ri.compile_rules(RULES, SCHEMA)
    assert compiled.rejects.column("rule_id").to_pylist() == [2]
    assert compiled.rejects.column("error").to_pylist() == ["INTERNAL"]
    assert "KeyError: 'something that nobody thought of'" in compiled.rejects["message"][0].as_py()
    assert compiled.match(
        pa.table({"a": pa.array([1, 3], pa.int32()), "b": pa.array([2, 3], pa.int32())})
    ).to_pylist() == [
        [1],
        [3],
    ]


def test_what_breaks_while_a_batch_is_evaluated_counts_as_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(columns: object, zone: str) -> None:
        raise KeyError("something that nobody thought of")

    function = function_registry.FUNCTIONS["bit_count"]
    monkeypatch.setitem(function_registry.FUNCTIONS, "bit_count", dataclasses.replace(function, evaluate=broken))
    shared = " AND ".join(f"(bit_count(b) = {k} OR a = {k} OR d IS NULL)" for k in range(1, 9))
    rules = [*RULES, (4, "bit_count(b) = 1 OR 8 / a = 8"), (5, f"a = 9 OR ({shared})")]
    compiled = ri.compile_rules(rules, SCHEMA)
    assert compiled.index.arrays["disjunction_start"][-1] > 0
    dates = pa.array([0, 0, 0], pa.date32())
    rows = pa.table({"a": pa.array([1, 3, 0], pa.int32()), "b": pa.array([2, 3, 2], pa.int32()), "d": dates})
    assert compiled.match(rows).to_pylist() == [[1, 4], [3], []]
    assert compiled.errors == {4: 3, 5: 3}
    assert "A part of a rule over b" in caplog.text
    changed = compiled.update([(5, None), (6, "bit_count(b) = 2 AND a < 9")])
    assert changed.match(rows).to_pylist() == [[1, 4], [3], []]
    assert changed.errors == {4: 3, 6: 3}


@pytest.mark.usefixtures("breaking")
def test_lint_and_implies_tell_of_it() -> None:
    found = {each["rule_id"]: each["kind"] for each in ri.lint(RULES, SCHEMA).to_pylist()}
    assert found[2] == "rejected"
    with pytest.raises(ri.RuleError) as caught:
        ri.implies("abs(b) = 2", "a = 1", SCHEMA)
    assert caught.value.error == "INTERNAL"


def test_a_fault_in_what_is_compiled_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clauses of one shape are compiled at once; what breaks there is told of the rules that it concerns."""

    def parse_date(text: str) -> int:
        raise OverflowError("too far")

    monkeypatch.setattr(datetime_parser, "parse_date", parse_date)
    dates = [(100 + k, f"d = '20{k:02}-1-1'") for k in range(20)]
    compiled = ri.compile_rules([*RULES, *dates], SCHEMA)
    assert set(compiled.rejects.column("error").to_pylist()) == {"INTERNAL"}
    assert compiled.rejects.column("rule_id").to_pylist() == [rule for rule, _ in dates]


def test_memory_is_not_a_rule_s_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def value(self: analyser.Analyser, node: Node) -> analyser.Value:
        raise MemoryError

    monkeypatch.setattr(analyser.Analyser, "value", value)
    with pytest.raises(MemoryError):
        ri.compile_rules([(1, "a + b = 1")], SCHEMA)


def test_too_deep_for_python_is_too_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    def value(self: analyser.Analyser, node: Node) -> analyser.Value:
        return self.value(node)

    monkeypatch.setattr(analyser.Analyser, "value", value)
    compiled = ri.compile_rules([(1, "a + b = 1"), (2, "a = 1 AND (b = 2 OR b = 3)")], SCHEMA)
    assert set(compiled.rejects.column("error").to_pylist()) == {"TOO_DEEP"}
