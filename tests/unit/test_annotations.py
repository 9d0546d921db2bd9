"""What rows get of their rules beside ids: the first rule, labels and severity, against the same said plainly."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.compiling import update as update_module
from rules_index.index.annotate import SEVERITIES, Annotate
from rules_index.index.annotations import plain
from rules_index.index.compiled import Layers, dumps

SCHEMA = pa.schema([("x", pa.int64())])
LABELS = pa.map_(pa.string(), pa.string())


def rules_of(chance: random.Random, count: int) -> pa.Table:
    """Rules of all kinds of annotations, some with none."""
    rows = []
    for number in range(count):
        keys = chance.sample(["team", "a", "é", "\U0001f600", "severity", "level"], chance.randint(0, 4))
        values = ["x", "", None, "y,z", '"']
        said = {key: chance.choice([None, *SEVERITIES] if key in ("severity", "level") else values) for key in keys}
        rows.append(
            {
                "rule_id": chance.choice(["r", "é", "\U0001f600", "A"]) + str(number),
                "expression": f"x BETWEEN {number} AND {chance.randint(-50, 99)} OR x = {-number}",
                "priority": chance.choice([None, -(2**31), 2**31 - 1, 0, 1, 1, 2]),
                "labels": None if chance.random() < 0.2 else list(said.items()),
                "severity": chance.choice([None, None, *SEVERITIES]),
            }
        )
    schema = pa.schema(
        {"rule_id": pa.string(), "expression": pa.string(), "priority": pa.int32(), "labels": LABELS}
        | {"severity": pa.string()}
    )
    return pa.Table.from_pylist(rows, schema)


def plainly(rules: list[dict[str, Any]], ids: list[str]) -> tuple[str | None, list[str], str | None]:
    """The columns of a row with these rules, said plainly."""
    mine = [rule for rule in rules if rule["rule_id"] in ids]
    by = sorted(mine, key=lambda r: (r["priority"] is None, r["priority"] or 0, r["rule_id"]))
    labels = {key if value is None else f"{key}={value}" for r in mine for key, value in r["labels"] or ()}
    said = []
    for rule in mine:
        labelled = dict(rule["labels"] or ())
        said.append(rule["severity"] or labelled.get("severity") or labelled.get("level"))
    worst = max((SEVERITIES.index(each) for each in said if each is not None), default=None)
    return (by[0]["rule_id"] if by else None), sorted(labels), None if worst is None else SEVERITIES[worst]


def told(columns: dict[str, pa.Array]) -> list[tuple[Any, ...]]:
    """Rows of columns."""
    made = plain(columns)
    return list(zip(*(made[name].to_pylist() for name in made), strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_columns_are_as_said_plainly(seed: int) -> None:
    chance = random.Random(seed)
    rules = rules_of(chance, chance.choice([1, 5, 60]))
    compiled = ri.compile_rules(rules, SCHEMA, annotate=Annotate())
    assert compiled.rejects.num_rows == 0
    loaded = ri.loads(dumps(compiled))
    rows = pa.table({"x": [chance.randint(-100, 100) for _ in range(chance.choice([0, 1, 400]))]}, SCHEMA)
    lists = loaded.match(rows)
    expected = [plainly(rules.to_pylist(), ids) for ids in lists.to_pylist()]
    assert loaded.annotations is not None
    assert told(loaded.annotations.of_ids(lists)) == expected
    offsets, ordinals, _ = loaded.match_ordinals(rows)
    assert told(loaded.annotations.of_ordinals(offsets, ordinals)) == expected
    copied = pickle.loads(pickle.dumps(loaded.annotations))
    part = lists.slice(len(lists) // 3)
    assert told(copied.of_ids(part)) == expected[len(lists) // 3 :]
    assert {name: c.type for name, c in plain(copied.of_ids(lists)).items()} == copied.types()


def test_ids_that_are_numbers_and_rules_that_are_gone() -> None:
    rules = pa.table({"rule_id": [3, 1, 2], "expression": ["TRUE"] * 3, "labels": ["b, a", None, ""]})
    compiled = ri.compile_rules(rules, SCHEMA, annotate=Annotate())
    assert compiled.annotations is not None
    lists = pa.array([[1, 3], [2, 9], [9], []], pa.list_(pa.int64()))
    expected = [(1, ["a", "b"], None), (2, [], None), (None, [], None), (None, [], None)]
    assert told(compiled.annotations.of_ids(lists)) == expected


def test_no_rules_annotate_nothing() -> None:
    compiled = ri.compile_rules([], SCHEMA, annotate=Annotate())
    assert compiled.annotations is not None
    assert (
        told(compiled.annotations.of_ordinals(np.zeros(3, np.int64), np.empty(0, np.int32))) == [(None, [], None)] * 2
    )


def changed(rules: pa.Table, place: int, **values: Any) -> pa.Table:
    rows = rules.to_pylist()
    rows[place] |= values
    return pa.Table.from_pylist(rows, rules.schema)


def test_a_fingerprint_is_of_the_annotations_that_are_asked_for() -> None:
    rules = rules_of(random.Random(1), 5)
    relabelled = changed(rules, 2, labels=[("new", "label")])
    reordered = changed(rules, 2, priority=77)

    def fingerprint(of: pa.Table, annotate: Annotate | None) -> str:
        return ri.compile_rules(of, SCHEMA, annotate=annotate).fingerprint

    everything, first = Annotate(), Annotate(("first_rule_id",))
    assert len({fingerprint(each, everything) for each in (rules, relabelled, reordered)}) == 3
    assert fingerprint(rules, first) == fingerprint(relabelled, first) != fingerprint(reordered, first)
    assert len({fingerprint(each, None) for each in (rules, relabelled, reordered)}) == 1
    assert fingerprint(rules, None) == ri.compile_rules(rules.select(["rule_id", "expression"]), SCHEMA).fingerprint
    lowest_last = Annotate(severities=SEVERITIES[::-1])
    assert len({fingerprint(rules, each) for each in (None, everything, first, lowest_last)}) == 4


def test_an_update_is_a_full_compile() -> None:
    rules = rules_of(random.Random(2), 30)
    compiled = ri.compile_rules(rules, SCHEMA, annotate=Annotate())
    after = changed(rules, 7, labels=[("new", "label")], priority=None)
    updated = ri.loads(dumps(compiled)).update(after.slice(7, 1))
    full = ri.compile_rules(after, SCHEMA, annotate=Annotate())
    assert updated.fingerprint == full.fingerprint != compiled.fingerprint
    assert updated.annotations is not None and full.annotations is not None
    assert updated.annotations.rules.equals(full.annotations.rules)
    gone = updated.update([(rules.column("rule_id")[7].as_py(), None)])
    fewer = pa.concat_tables([after.slice(0, 7), after.slice(8)])
    assert gone.fingerprint == ri.compile_rules(fewer, SCHEMA, annotate=Annotate()).fingerprint


def test_a_severity_that_there_is_not_is_refused() -> None:
    rules = pa.table({"rule_id": ["a", "b", "c"], "expression": ["TRUE"] * 3, "severity": ["High", "low", "dire"]})
    compiled = ri.compile_rules(rules, SCHEMA, annotate=Annotate())
    assert compiled.ids.to_pylist() == ["b"]
    first, second = compiled.rejects.to_pylist()
    assert (first["rule_id"], first["error"]) == ("a", "UNKNOWN_SEVERITY")
    assert "'High'" in first["message"] and "did you mean 'high'?" in first["message"]
    assert "informational, low, medium, high, critical" in second["message"]
    assert len(ri.compile_rules(rules, SCHEMA, annotate=Annotate(("labels",)))) == 3


@pytest.mark.parametrize(
    "column", [{"priority": ["1"]}, {"labels": [1]}, {"severity": [1]}, {"labels": [[1, 2]]}, {"priority": [1.5]}]
)
def test_columns_of_other_types_are_refused(column: dict[str, Any]) -> None:
    rules = pa.table({"rule_id": ["a"], "expression": ["TRUE"], **column})
    with pytest.raises(ri.RulesIndexError, match=rf"column {next(iter(column))} is (STRING|BIGINT|DOUBLE|ARRAY|list<)"):
        ri.compile_rules(rules, SCHEMA, annotate=Annotate())


BYTES = pa.array([b"a", b"\xff", b"b\xc3"])
TEXTS = pa.Array.from_buffers(pa.string(), 3, BYTES.buffers())


@pytest.mark.parametrize(
    "labels",
    [
        TEXTS,
        TEXTS.cast(pa.string_view(), safe=False),
        pa.ListArray.from_arrays([0, 1, 2, 3], TEXTS),
        pa.MapArray.from_arrays([0, 1, 2, 3], TEXTS, pa.nulls(3, pa.string())),
    ],
    ids=lambda each: str(each.type),
)
def test_labels_that_are_no_text_stop_no_rule(labels: pa.Array) -> None:
    rules = pa.table({"rule_id": ["a", "b", "c"], "expression": ["TRUE"] * 3, "labels": labels})
    compiled = ri.compile_rules(rules, SCHEMA, annotate=Annotate(("labels",)))
    assert compiled.annotations is not None
    assert compiled.annotations.rules["labels"].to_pylist() == [["a"], ["\ufffd"], ["b\ufffd"]]


def test_labels_that_are_too_long_refuse_their_own_rule() -> None:
    labels = [["k" * 5_000, "v" * 5_000], ["k" * 5_000, "v" * 5_001], None]
    rules = pa.table({"rule_id": ["a", "b", "c"], "expression": ["TRUE"] * 3, "labels": labels})
    compiled = ri.compile_rules(rules, SCHEMA, annotate=Annotate(("labels",)))
    assert (compiled.ids.to_pylist(), compiled.rejects["error"].to_pylist()) == (["a", "c"], ["TOO_LONG"])
    assert len(ri.compile_rules(rules, SCHEMA, annotate=Annotate(("severity",)))) == 3


def test_a_severity_that_is_no_text_refuses_its_own_rule() -> None:
    severity = pa.Array.from_buffers(pa.string(), 2, pa.array([b"low", b"\xff"]).buffers())
    rules = pa.table({"rule_id": ["a", "b"], "expression": ["TRUE"] * 2, "severity": severity})
    compiled = ri.compile_rules(rules, SCHEMA, annotate=Annotate(("severity",)))
    assert (compiled.ids.to_pylist(), compiled.rejects["error"].to_pylist()) == (["a"], ["UNKNOWN_SEVERITY"])


def test_texts_may_be_encoded_as_dictionaries() -> None:
    texts = pa.array(["low", None, "high"]).dictionary_encode()
    rules = pa.table({"rule_id": ["a", "b", "c"], "expression": ["TRUE"] * 3, "labels": texts, "severity": texts})
    compiled = ri.compile_rules(rules, SCHEMA, annotate=Annotate(("labels", "severity")))
    assert compiled.annotations is not None
    assert compiled.annotations.rules["severity"].to_pylist() == ["low", None, "high"]
    assert compiled.annotations.rules["labels"].to_pylist() == [["low"], [], ["high"]]


@pytest.mark.parametrize(
    "labels",
    [
        pa.array([["b", "a", "b"], ["c", None, "c"]], pa.list_view(pa.string())),
        pa.array([["a", "b"], ["c", None]], pa.list_(pa.string(), 2)),
        pa.ListArray.from_arrays([0, 2, 3], pa.array(["b", "a", "c"]).dictionary_encode()),
    ],
    ids=lambda each: str(each.type),
)
def test_labels_may_be_any_kind_of_list(labels: pa.Array) -> None:
    rules = pa.table({"rule_id": ["a", "b"], "expression": ["TRUE"] * 2, "labels": labels})
    compiled = ri.compile_rules(rules, SCHEMA, annotate=Annotate(("labels",)))
    assert compiled.annotations is not None
    assert compiled.annotations.rules["labels"].to_pylist() == [["a", "b"], ["c"]]


@pytest.mark.parametrize("value", [b"\xff", [1]])
def test_labels_with_values_that_are_no_text_are_refused(value: Any) -> None:
    labels = pa.array([[("key", value)]], pa.map_(pa.string(), pa.scalar(value).type))
    rules = pa.table({"rule_id": ["a"], "expression": ["TRUE"], "labels": labels})
    with pytest.raises(ri.RulesIndexError, match="its keys and values must be texts, numbers or times"):
        ri.compile_rules(rules, SCHEMA, annotate=Annotate())


def test_priorities_beyond_an_int_come_first_or_last_and_stop_no_other_rule() -> None:
    priorities = pa.array([1 << 40, -(1 << 40), 5, None], pa.int64())
    rules = pa.table({"rule_id": ["a", "b", "c", "d"], "expression": ["x > 0", "x > 3", "x > 0", "TRUE"]})
    annotate = Annotate(("first_rule_id",))
    compiled = ri.compile_rules(rules.append_column("priority", priorities), SCHEMA, annotate=annotate)
    assert compiled.annotations is not None
    assert compiled.annotations.rules["priority"].to_pylist() == [(1 << 31) - 1, -(1 << 31), 5, None]


def test_a_damaged_file_is_refused() -> None:
    compiled = ri.compile_rules(rules_of(random.Random(3), 4), SCHEMA, annotate=Annotate())
    assert compiled.annotations is not None
    for rules in (compiled.annotations.rules.slice(1), compiled.annotations.rules.select(["labels"])):
        object.__setattr__(compiled.annotations, "rules", rules)
        with pytest.raises(ri.ArtifactError):
            ri.loads(dumps(compiled))


def test_layers_of_which_one_lacks_annotations_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_module, "FEW_RULES", 0)
    rules = rules_of(random.Random(3), 40)
    updated = ri.compile_rules(rules, SCHEMA, annotate=Annotate()).update(
        rules.slice(3, 1).set_column(rules.column_names.index("expression"), "expression", [["TRUE"]])
    )
    layers = updated.definition
    assert isinstance(layers, Layers)
    assert ri.loads(dumps(updated)).annotations is not None
    for layer in ("base", "changed"):
        given = getattr(layers, layer)
        for lacking in (None, given.annotations.chosen(["labels"])):
            other = replace(layers, **{layer: replace(given, annotations=lacking)})
            with pytest.raises(ri.ArtifactError):
                ri.loads(dumps(replace(updated, definition=other)))
