"""`update`: whatever is added, changed and removed, the next version is what a full compile gives."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.compiling import compile as compile_module
from rules_index.compiling import update as update_module
from rules_index.implication.widening import widen_compiled
from rules_index.index.compiled import Layers, dumps
from rules_index.index.registry import ENGINES
from rules_index.language.typed import Leaf
from tests.unit.damages import Stored
from tests.unit.rule_updates import RULES, SMALL, require_same, small, small_rows


@pytest.fixture(autouse=True)
def _overlays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small rule sets are updated as large ones are."""
    monkeypatch.setattr(update_module, "FEW_RULES", 0)


def test_pairs_add_change_and_remove() -> None:
    updated = small().update([("new", "b = 1"), ("r001", "a = 8"), ("r002", None), ("never", None)])
    rules = {**dict(RULES), "new": "b = 1", "r001": "a = 8"}
    del rules["r002"]
    assert isinstance(updated.definition, Layers)
    require_same(updated, ri.compile_rules(rules.items(), SMALL), small_rows())


def test_the_version_before_stays_as_it_is() -> None:
    before, table = small(), small_rows()
    matched, data = before.match(table), dumps(before)
    updated = before.update([("r001", "a = 8"), ("r002", None)])
    assert updated.match(table) != matched
    assert before.match(table) == matched
    assert dumps(before) == data


def test_a_change_taken_back_leaves_the_full_compile() -> None:
    before = small()
    changed = before.update([("r001", "a = 8"), ("r002", None), ("new", "b = 1")])
    back = changed.update([*RULES[1:3], ("new", None)])
    assert isinstance(changed.definition, Layers)
    assert not isinstance(back.definition, Layers)
    require_same(back, before, small_rows())


@pytest.mark.parametrize("changes", [[("new", "b = 1")], []])
def test_an_index_of_an_earlier_version_of_the_language_is_compiled_anew(tmp_path: Path, changes: list[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile_module, "LANGUAGE_VERSION", compile_module.LANGUAGE_VERSION - 1)
        small().save(tmp_path / "old")
    updated = ri.load(tmp_path / "old").update(changes)
    assert not isinstance(updated.definition, Layers)
    require_same(updated, ri.compile_rules([*RULES, *changes], SMALL), small_rows())
    assert isinstance(updated.update([("newer", "b = 2")]).definition, Layers)


def test_rejects_follow() -> None:
    before = ri.compile_rules([*RULES, ("bad", "zz = 1"), ("twice", "a = 1"), ("twice", "a = 2")], SMALL)
    worse = before.update([("r001", "a ="), ("bad", None), ("new", "s > ")])
    rules = [rule for rule in RULES if rule[0] != "r001"]
    require_same(
        worse,
        ri.compile_rules([*rules, ("r001", "a ="), ("new", "s > "), ("twice", "a = 1"), ("twice", "a = 2")], SMALL),
        small_rows(),
    )
    better = worse.update([("twice", "a = 1"), ("r001", "a = 1"), ("new", None)])
    require_same(better, ri.compile_rules([*rules, ("r001", "a = 1"), ("twice", "a = 1")], SMALL), small_rows())


def test_a_rule_without_an_id_is_refused_until_rules_without_one_are_removed() -> None:
    refused = small().update([(None, "a = 1"), (None, "a = 2")])
    assert refused.rejects.column("error").to_pylist() == ["NO_ID", "NO_ID"]
    assert refused.update([(None, None)]).rejects.num_rows == 0


@pytest.mark.slow
def test_ids_of_another_type_are_refused() -> None:
    with pytest.raises(ri.RulesIndexError, match="all strings or all integers"):
        small().update([(1, "a = 1")])
    with pytest.raises(ri.RulesIndexError, match="all strings or all integers"):
        small().update([("a", "a = 1"), (1, None)])
    with pytest.raises(ri.RulesIndexError, match="no column expression"):
        small().update(pa.table({"rule_id": ["a"]}))
    assert len(small().update([])) == len(RULES)
    integers = ri.compile_rules([], SMALL).update([(7, "a = 1")])
    require_same(integers, ri.compile_rules([(7, "a = 1")], SMALL), small_rows())


def test_a_column_that_no_rule_reads_any_more_need_not_be_there() -> None:
    before = ri.compile_rules([*RULES, ("reads b", "b = 1 OR b + a > 3")], SMALL)
    updated = before.update([("reads b", None)])
    assert isinstance(updated.definition, Layers)
    assert [leaf.name for leaf in updated.inputs] == ["a", "s"]
    table = small_rows()
    assert updated.match(table.select(["a", "s"])) == small().match(table)
    assert ri.loads(dumps(updated)).match(table.select(["a", "s"])) == small().match(table)
    assert updated.match_event("a = 3 AND b = 1") == small().match_event("a = 3 AND b = 1")


def test_a_column_that_no_rule_has_read_may_be_named() -> None:
    updated = small().update([("new", "b > 3 AND s = 'new'"), ("unknown", "c = 1")])
    assert [leaf.name for leaf in updated.inputs] == ["a", "b", "s"]
    assert updated.rejects.column("rule_id").to_pylist() == ["unknown"]


@pytest.mark.slow
def test_events_meet_rules_of_both_layers() -> None:
    changes = [("r001", "a = 8"), ("r009", None), ("x", "s IN ('x1', 'new') AND a > 1")]
    rules = [rule for rule in RULES if rule[0] not in ("r001", "r009")] + [changes[0], changes[2]]
    for engine in ENGINES:
        updated, full = small(engine).update(changes), ri.compile_rules(rules, SMALL, engine)
        assert isinstance(updated.definition, Layers)
        for event in ("a = 8 AND s = 'x1'", "a IN (1, 2, 8) AND s <> 'x2'", "s = 'new' AND a = 2", "a IS NULL"):
            assert updated.match_event(event) == full.match_event(event), event


def test_only_unknown_predicates_are_analysed() -> None:
    asked: list[str | None] = []

    def analyse(leaves: Sequence[Leaf]) -> list[str | None]:
        asked.extend(leaf.text for leaf in leaves)
        return [None] * len(leaves)

    before = ri.compile_rules([*RULES, ("d", "bround(a, 20) > 3")], SMALL, analyse=analyse)
    asked.clear()
    updated = before.update([("e", "bround(a, 20) > 3 AND b = 1"), ("f", "crc32(CAST(s AS BINARY)) > 5")], analyse)
    assert asked == ["crc32(CAST(s AS BINARY))"] or len(asked) == 1
    assert len(updated.derived) == 2
    asked.clear()
    updated.update([("g", "bround(a, 20) > 3 AND b = 2")], analyse)
    assert asked == []


def test_many_changes_are_compiled_with_all_rules() -> None:
    before = small()
    updated = before.update([(f"new {i}", f"a = {i}") for i in range(4)])
    assert isinstance(updated.definition, Layers)
    folded = updated.update([(f"more {i}", f"a = {i}") for i in range(9)])
    assert not isinstance(folded.definition, Layers)
    rules = [*RULES, *((f"new {i}", f"a = {i}") for i in range(4)), *((f"more {i}", f"a = {i}") for i in range(9))]
    full = ri.compile_rules(rules, SMALL)
    require_same(folded, full, small_rows())
    assert dumps(folded.update([])) == dumps(folded)


def test_few_rules_are_compiled_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_module, "FEW_RULES", 1000)
    updated = small().update([("new", "b = 1")])
    assert not isinstance(updated.definition, Layers)
    require_same(updated, ri.compile_rules([*RULES, ("new", "b = 1")], SMALL), small_rows())


def test_what_can_match_is_still_told() -> None:
    """The filter that is pushed into a scan keeps all rows that either layer's rules match."""
    rules = [(f"r{i}", f"a = {i} AND b BETWEEN {i} AND {i + 1}") for i in range(40)]
    updated = ri.compile_rules(rules, SMALL).update([("r1", "a = 70 AND b = 3"), ("r2", None), ("new", "a = 80")])
    assert isinstance(updated.definition, Layers)
    widened = widen_compiled(updated, 8)
    assert widened.sql != "true"
    table = pa.table([pa.array(range(100), pa.int32()), [i % 5 for i in range(100)], ["x"] * 100], schema=SMALL)
    kept = pl.SQLContext(rows=pl.DataFrame(table)).execute(f"SELECT a FROM rows WHERE {widened.sql}", eager=True)
    matched = {row for row, ids in enumerate(updated.match(table).to_pylist()) if ids}
    assert matched <= set(kept["a"].to_list())


def test_threads_match_while_others_update() -> None:
    table = small_rows(4000)
    base = small("hybrid")
    expected = base.match(table)

    def edited(seed: int) -> None:
        compiled, rules = base, dict(RULES)
        for step in range(6):
            rules[f"new {seed}"] = f"a = {(seed + step) % 9}"
            compiled = compiled.update([(f"new {seed}", rules[f"new {seed}"])])
            assert compiled.match(table) == ri.compile_rules(rules.items(), SMALL).match(table)

    with ThreadPoolExecutor(6) as pool:
        futures = [pool.submit(edited, seed) for seed in range(3)]
        for _ in range(60):
            assert base.match(table) == expected
        for future in futures:
            future.result()


def test_a_saved_index_is_updated(tmp_path: Path) -> None:
    small().save(tmp_path / "one")
    updated = ri.load(tmp_path / "one").update([("new", "b = 1"), ("r001", None)])
    updated.save(tmp_path / "two")
    loaded = ri.load(tmp_path / "two")
    rules = [rule for rule in RULES if rule[0] != "r001"]
    require_same(loaded, ri.compile_rules([*rules, ("new", "b = 1")], SMALL), small_rows())
    assert loaded.stats == updated.stats
    again = loaded.update([("new", None)])
    require_same(again, ri.compile_rules(rules, SMALL), small_rows())


def headers(header: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Headers of layers that contradict each other."""
    for name in ("base", "changed", "left_out"):
        yield {key: each for key, each in header.items() if key != name}
    yield {**header, "changed": header["base"]}
    yield {**header, "base": {**header["base"], "base": header["base"]}, "changed": {}}
    for name, value in (
        ("time_zone", "Asia/Tokyo"),
        ("event_time", "at"),
        ("engine", "scan"),
        ("texts", {"schema": [0, 8], "blocks": []}),
    ):
        yield {**header, "changed": {**header["changed"], name: value}}
    kind, at, shape = header["left_out"]
    for reference in ([kind, at, [9]], ["int32", at, shape], [kind, at, [0]], [kind, at + 64, shape], [kind, at]):
        yield {**header, "left_out": reference}
    kind, at, shape = header["base"]["digests"]
    yield {**header, "base": {**header["base"], "digests": [kind, at, [shape[0] - 1, shape[1]]]}}


def test_layers_that_contradict_each_other_are_refused() -> None:
    stored = Stored(small().update([("new", "b = 1"), ("r001", "a = 3"), ("r002", None)]))
    header = json.loads(stored.header)
    assert ri.loads(stored.with_header(header)).stats["left_out"] == 2
    tried = list(headers(header))
    for number, changed in enumerate(tried):
        with pytest.raises(ri.ArtifactError):
            pytest.fail(f"{number}: {ri.loads(stored.with_header(changed))}")


def test_texts_that_are_damaged_are_refused_when_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_module, "FEW_RULES", 1000)
    stored = Stored(small())
    header = json.loads(stored.header)
    ((at, length),) = header["texts"]["blocks"]
    for offset in range(0, length, 97):
        body = bytearray(stored.body)
        body[at + offset] ^= 0x55
        damaged = ri.loads(stored.with_body(bytes(body)))
        try:
            updated = damaged.update([("new", "b = 1")])
        except ri.ArtifactError:
            continue
        assert len(updated) + updated.rejects.num_rows == len(RULES) + 1
    for reference in ([at, 0], [at, 8], [at + 64, length - 64]):
        texts = {**header["texts"], "blocks": [reference]}
        with pytest.raises(ri.ArtifactError):
            ri.loads(stored.with_header({**header, "texts": texts})).update([("new", "b = 1")])
    texts = {**header["texts"], "schema": [at, 8]}
    with pytest.raises(ri.ArtifactError):
        ri.loads(stored.with_header({**header, "texts": texts})).update([("new", "b = 1")])


def test_rules_of_both_layers_are_explained() -> None:
    updated = ri.loads(dumps(small().update([("new", "b = 1"), ("r001", "a = 3"), ("r002", None)])))
    row = {"a": 3, "b": 2, "s": "x3"}
    for rule_id, text, value in (("new", "b = 1", False), ("r001", "a = 3", True), ("r003", RULES[3][1], True)):
        found = updated.explain(row, rule_id)
        assert (found.text, found.value) == (text, value)


def test_the_fingerprint_is_of_the_rules_alone() -> None:
    """It is made of the rules' digests, as `docs` say; nothing of the layers is in it."""
    compiled = ri.compile_rules([("a", " a = 1 "), ("b", "s = 'é'")], SMALL)
    lines = [
        json.dumps([16, 3, "UTC", None, 2]),
        json.dumps(["a", "int32", None]),
        json.dumps(["s", "string", None]),
    ]
    digest = hashlib.sha256("".join(f"{line}\n" for line in lines).encode())
    for rule in (["a", "a = 1", None, None], ["b", "s = 'é'", None, None]):
        digest.update(hashlib.sha256(f"{json.dumps(rule)}\n".encode()).digest()[:16])
    assert compiled.fingerprint == digest.hexdigest()


def test_a_loaded_index_whose_changes_are_taken_back_has_the_fingerprint_of_its_base() -> None:
    compiled = ri.compile_rules([(number, f"a > {number}") for number in range(3000)], pa.schema({"a": pa.int64()}))
    layered = ri.loads(dumps(compiled.update([(5, "a > 7")])))
    back = layered.update([(5, "a > 5")])
    assert back.fingerprint == ri.loads(dumps(back)).fingerprint == compiled.fingerprint


def test_texts_of_an_updated_index_are_those_of_all_its_rules() -> None:
    compiled = ri.compile_rules([(f"r{n:02}", f"a = {n}") for n in range(40)], SMALL)
    edits = [("r03", "a = 99"), ("r20", None), ("r05x", "a > 7")]
    updated = ri.loads(dumps(compiled.update(edits)))
    assert not isinstance(updated.texts, type(compiled.texts))
    expected = {f"r{n:02}": f"a = {n}" for n in range(40)} | {"r03": "a = 99", "r05x": "a > 7"}
    del expected["r20"]
    found = updated.texts.table(len(updated))
    assert dict(zip(updated.ids.to_pylist(), found["expression"].to_pylist(), strict=True)) == expected
    assert [updated.texts.rule(n).expression for n in range(len(updated))] == found["expression"].to_pylist()
