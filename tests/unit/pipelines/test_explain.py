"""Rows of real tables explained without a JVM: by the condition, by the rules that tagged them, by the command line."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import write_deltalake

import rules_index as ri
from deltatag.__main__ import main
from pipelines.backtest import Candidate, backtest
from pipelines.compile import compile_scopes
from pipelines.errors import ConfigurationError, SourceError
from pipelines.explain import MOST_NEAR, explain
from pipelines.join import join_streams
from pipelines.lake.index_store import store_index
from pipelines.tag import tag_stream
from rules_index.explaining.nearest_rules import NearestRules
from tests.cases import cases

ROWS = 3_000
FIRST = datetime(2024, 3, 30, 12, tzinfo=UTC)
STREAMS = {
    "s": {"source": "lake/source", "event_time": "t", "key": ["id"]},
    "w": {"source": "lake/wind", "event_time": "at"},
}
JOINS = {"j": {"streams": ["s", "w"], "on": {"s": ["place"], "w": ["place"]}, "window": "1 hour"}}


def source() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "id": range(ROWS),
            "x": [None if i % 17 == 0 else i % 100 for i in range(ROWS)],
            "place": [f"p{i % 7}" for i in range(ROWS)],
            "t": [None if i % 1_000 == 999 else FIRST + timedelta(minutes=i) for i in range(ROWS)],
            "more": [{"a": i % 5, "b": [i]} for i in range(ROWS)],
        }
    )


@pytest.fixture
def workspace(new_workspace, monkeypatch):
    """A stream of 3,000 rows in three files; asking for a Spark session fails."""
    found = new_workspace(STREAMS, {"time_zone": "Europe/Berlin"}, spark=False, joins=JOINS)
    for start in range(0, ROWS, 1_000):
        source()[start : start + 1_000].write_delta(found.configuration.streams["s"].source, mode="append")
    wind = pl.DataFrame({"place": ["p1"], "gust": [9.5], "at": [FIRST]})
    wind.write_delta(found.configuration.streams["w"].source)
    monkeypatch.setattr("pipelines.spark.session.open_session", lambda *_: pytest.fail("a JVM was started"))
    return found


def tag(workspace, rows: pa.Table, name: str, version: int, fingerprint: str = "none") -> None:
    """Rows as a tag leaves them."""
    count = rows.num_rows
    rows = rows.append_column("rule_ids", pa.array([[]] * count, pa.list_(pa.string())))
    rows = rows.append_column("rules_version", pa.array([version] * count, pa.int64()))
    rows = rows.append_column("index_fingerprint", pa.array([fingerprint] * count))
    write_deltalake(workspace.lake.uri(name), rows, mode="append", schema_mode="merge")


def test_rows_of_the_source_are_found_and_explained(workspace, add_rules) -> None:
    add_rules(workspace, ("many", "s", "x > 10 AND place <> 'p3'"), ("other", "w", "gust > 1"))
    found = explain(workspace, "s", ["many"], "id IN (2, 1500, 2999)")
    expected = source().filter(pl.col("id").is_in([2, 1500, 2999])).to_dicts()
    in_order = sorted(found.explained, key=lambda each: each.row["id"])
    assert [each.row for each in in_order] == expected and found.rows == 3
    for each, row in zip(in_order, expected, strict=True):
        x = row["x"]
        assert each.explanation.matched == (x is not None and x > 10 and row["place"] != "p3")
        assert [dict(part.values) for part in each.explanation.predicates] == [{"x": x}, {"place": row["place"]}]


def test_columns_that_are_not_null_in_the_source_or_have_another_case_there(new_workspace, add_rules) -> None:
    workspace = new_workspace({"s": {"source": "lake/source"}}, spark=False)
    kinds = {"id": pa.int64(), "X": pa.int64(), "s": pa.struct([pa.field("A", pa.int64(), nullable=False)])}
    schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])
    rows = pa.table({"id": [7, 8], "X": [5, 1], "s": [{"A": 2}, {"A": 3}]}, schema=schema)
    write_deltalake(workspace.configuration.streams["s"].source, rows)
    add_rules(workspace, ("both", "s", "x > 4 AND s.a = 2"))
    found = explain(workspace, "s", ["both"], "id >= 7").explained
    assert [each.explanation.matched for each in found] == [True, False]
    tagged = pa.table({"id": [7], "x": [6], "S": [{"a": 2}]})
    tag(workspace, tagged, "s_tagged", workspace.lake.version("rules"))
    (one,) = explain(workspace, "s", ["both"], "s.A = 2").explained
    assert (one.row, one.explanation.matched) == ({"id": 7, "X": 6, "s": {"A": 2}}, True)
    assert backtest(workspace, "s", [Candidate("a", "x > 4 AND s.a = 2")]).rules[0].matches == 1


@pytest.mark.slow
def test_a_row_without_tags_is_told_with_the_reason(new_workspace, add_rules) -> None:
    streams = {
        "s": {"source": "lake/source", "event_time": "t", "key": ["id"], "checks": {"few": "id < 2900"}},
        "m": {"source": "lake/source", "output": "matched"},
    }
    found = new_workspace(streams, spark=False)
    source().write_delta(found.configuration.streams["s"].source)
    add_rules(found, ("many", "s", "x > 10"), ("few", "m", "x > 98"))
    (note,) = explain(found, "s", ["many"], "id = 2999").notes
    assert note.endswith("they are not tagged yet, or were skipped.")
    compile_scopes(found)
    tag_stream(found, "s")
    tag_stream(found, "m")
    result = explain(found, "s", ["many"], "id = 2999")
    assert result.explained[0].explanation.matched and result.notes == (
        "No tagged row satisfies the condition. quarantine_s has such rows, which get no tags: the check few is FALSE.",
    )
    assert explain(found, "s", ["many"], "id = 5").notes == ()
    (note,) = explain(found, "m", ["few"], "id = 5").notes
    assert note.endswith("not tagged yet, or were skipped, or they match no rule.")


def test_a_rule_that_the_index_lacks_is_told_with_the_reason(workspace, add_rules) -> None:
    add_rules(workspace, ("a", "s", "x > 90"), ("b", "w", "gust > 1"), ("c", "s", None))
    add_rules(workspace, {"rule_id": "d", "scope": "s", "expression": "x > 90", "enabled": False})
    version = workspace.lake.version("rules")
    for rule, why in (("b", "a rule of w."), ("c", "rejected: The rule has NULL .*"), ("d", "disabled.")):
        with pytest.raises(ri.UnknownRuleError, match=f" In version {version} of the rules it is {why}$"):
            explain(workspace, "s", [rule], "id = 50")


def test_the_limit_is_kept_and_told(workspace, add_rules) -> None:
    add_rules(workspace, ("many", "s", "x > 10"))
    found = explain(workspace, "s", ["many"], "x IS NULL", limit=7)
    assert len({each.row["id"] for each in found.explained}) == 7
    assert all(each.row["id"] % 17 == 0 and each.explanation.value is None for each in found.explained)
    assert any("first 7 are explained" in note for note in found.notes)
    exact = explain(workspace, "s", ["many"], "id >= 998 AND id < 1003", limit=5)
    assert {each.row["id"] for each in exact.explained} == {998, 999, 1000, 1001, 1002}
    assert not any("More rows" in note for note in exact.notes)
    assert explain(workspace, "s", ["many"], "id < 0").explained == ()
    assert len(explain(workspace, "s", ["many"], "TRUE", limit=1).explained) == 1


@pytest.mark.slow
def test_without_a_rule_all_that_match_and_some_near_ones(workspace, add_rules) -> None:
    draw = random.Random(3)
    texts = {
        f"r{n:03}": f"x > {draw.randrange(100)} AND place = 'p{draw.randrange(7)}' AND id > {draw.randrange(3000)}"
        for n in range(200)
    }
    add_rules(workspace, *((rule, "s", text) for rule, text in texts.items()))
    compiled = ri.compile_rules([*texts.items()], source().to_arrow().schema)
    found = explain(workspace, "s", [], "id IN (1234, 2345)")
    for row in source().filter(pl.col("id").is_in([1234, 2345])).to_dicts():
        mine = [each for each in found.explained if each.row["id"] == row["id"]]
        matched = [each.rule_id for each in mine if each.explanation.matched]
        near = [each for each in mine if not each.explanation.matched]
        assert matched == compiled.match_one(row)
        assert 0 < len(near) <= MOST_NEAR
        for each in near:
            changed = row | {change.column: change.after for change in each.explanation.near_miss}
            assert each.rule_id in compiled.match_one(changed)
    assert any("near misses" in note for note in found.notes)


@pytest.mark.slow
def test_past_rows_are_explained_with_the_rules_that_tagged_them(workspace, add_rules) -> None:
    add_rules(workspace, ("a", "s", "x > 90"))
    first = workspace.lake.version("rules")
    workspace.lake.delta("rules").update({"expression": "'x > 5'"}, predicate="rule_id = 'a'")
    second = workspace.lake.version("rules")
    rows = source().to_arrow()
    tag(workspace, rows.slice(50, 2), "s_tagged", first)
    tag(workspace, rows.slice(52, 1), "s_tagged", second)

    def told(condition: str, **given: Any) -> list[tuple[Any, ...]]:
        found = explain(workspace, "s", ["a"], condition, **given).explained
        return sorted((e.row["id"], e.explanation.text, e.explanation.matched, e.rules_version) for e in found)

    # row 51 is a NULL
    assert told("id IN (50, 51, 52)") == [
        (50, "x > 90", False, first),
        (51, "x > 90", False, first),
        (52, "x > 5", True, second),
    ]
    assert told("id = 50", rules_version=second) == [(50, "x > 5", True, second)]
    assert told("id = 52", rules_version=first) == [(52, "x > 90", False, first)]
    # a row that is not tagged yet
    assert told("id = 60") == [(60, "x > 5", True, None)]
    found = explain(workspace, "s", ["a"], "id = 50").explained
    assert set(found[0].row) == set(source().columns)


@pytest.mark.slow
def test_a_rule_that_one_of_the_versions_does_not_have_is_told(workspace, add_rules) -> None:
    add_rules(workspace, ("a", "s", "x > 90"))
    first = workspace.lake.version("rules")
    add_rules(workspace, ("b", "s", "x > 5"))
    tag(workspace, source().to_arrow().slice(50, 1), "s_tagged", first)
    tag(workspace, source().to_arrow().slice(52, 1), "s_tagged", first + 1)
    found = explain(workspace, "s", ["b"], "id IN (50, 52)")
    assert [each.row["id"] for each in found.explained] == [52]
    assert any("has no rule 'b'" in note and f"version {first}" in note for note in found.notes)
    both = explain(workspace, "s", ["a", "b", "a"], "id = 50")
    assert [each.rule_id for each in both.explained] == ["a"]
    assert any(f"--rules-version {first + 1}." in note for note in both.notes)
    nowhere = rf"No rule has this id in version {first + 1} of the rules\."
    with pytest.raises(ri.UnknownRuleError, match=rf"has no rule 'A' among its \d+; did you mean 'a'. {nowhere}$"):
        explain(workspace, "s", ["A"], "id = 50")
    add_rules(workspace, ("compiled-by-nobody", "s", "x > 7"))
    with pytest.raises(ri.UnknownRuleError, match=r"No rule .* did you mean 'compiled-by-nobody'.$"):
        explain(workspace, "s", ["compiled-by-nobdy"], "id = 50")


@pytest.mark.slow
def test_the_stored_index_is_used_with_the_texts_of_its_rules(workspace, add_rules, tmp_path) -> None:
    add_rules(workspace, ("a", "s", "x > 90"))
    version = workspace.lake.version("rules")
    compiled = ri.compile_rules(
        [("a", "x > 90")], source().to_arrow().schema, event_time="t", time_zone="Europe/Berlin"
    )
    for texts in (compiled.texts, None):
        compiled.texts = texts
        compiled.save(tmp_path / "index")
        statistics = compiled.stats | {"format_version": 5}
        store_index(
            workspace.lake, "s", version, compiled.fingerprint, compiled.engine, tmp_path / "index", statistics, True
        )
        tag(workspace, source().to_arrow().slice(50, 1), "s_tagged", version, compiled.fingerprint)
        found = explain(workspace, "s", ["a"], "id = 50").explained[0]
        assert (found.explanation.text, found.explanation.value) == ("x > 90", False)
        assert str(found.explanation.near_miss[0]) == "x: 50 -> 91"


@pytest.mark.slow
def test_joined_rows_with_bounds_on_their_event_time(workspace, add_rules) -> None:
    bound = {"valid_from": FIRST + timedelta(minutes=3)}
    add_rules(workspace, {"rule_id": "g", "scope": "j", "expression": "w.gust > 10 AND s.x < 5"} | bound)
    side = {"place": "p1", "gust": 9.5, "at": FIRST}
    rows = [{"s": row, "w": side} for row in source()[1:6].to_dicts()]
    kinds = {"s": source().to_arrow().schema, "w": pl.DataFrame([side]).to_arrow().schema}
    plain = {pa.large_string(): pa.string(), pa.string_view(): pa.string()}
    schema = pa.schema({n: pa.struct([(f.name, plain.get(f.type, f.type)) for f in kind]) for n, kind in kinds.items()})
    tag(workspace, pa.Table.from_pylist(rows, schema=schema), "j_tagged", workspace.lake.version("rules"))
    found = explain(workspace, "j", ["g"], "w.gust > 9 AND s.id IN (1, 4)").explained
    assert [each.row for each in found] == [rows[0], rows[3]]
    early, late = (each.explanation for each in found)
    assert [part.value for part in early.predicates] == [False, True, False]
    assert [part.value for part in late.predicates] == [False, True, True]
    assert dict(late.predicates[0].values) == {"w.gust": 9.5}
    assert late.near_miss[0].column == "w.gust" and late.near_miss[0].after > 10
    # the times of rows that were joined stay as they are
    assert early.near_miss is None


@pytest.mark.slow
@pytest.mark.parametrize("is_joined", [False, True])
def test_joined_rows_that_match_no_rule(workspace, add_rules, is_joined: bool) -> None:
    add_rules(workspace, ("g", "j", "w.gust > 10 AND s.x < 5"), ("first", "j", "s.id = 8"))
    compile_scopes(workspace)
    if is_joined:
        join_streams(workspace, "j")
    result = explain(workspace, "j", ["g"], "s.id <= 22 AND s.id <> 8", limit=2)
    assert [each.row["s"]["id"] for each in result.explained] == [1, 15] and "More rows" in result.notes[0]
    one, fifteen = (each.explanation for each in result.explained)
    assert [(part.value, part.stands_alone) for part in one.predicates] == [(False, True), (True, False)]
    assert {each.column for each in fifteen.near_miss} == {"w.gust", "s.x"}
    assert result.explained[0].row["w"] == {"place": "p1", "gust": 9.5, "at": FIRST}
    # beyond the window, and with another key
    assert explain(workspace, "j", [], "s.id = 64 OR s.id = 2").rows == 0
    if not is_joined:
        with pytest.raises(SourceError, match="only Spark evaluates"):
            explain(workspace, "j", [], "soundex(s.place) = 'x'")


def test_what_cannot_be_explained_is_told(workspace, add_rules) -> None:
    add_rules(workspace, ("a", "s", "x > 90"))
    for scope, condition, message in (
        ("nowhere", "TRUE", "no scope 'nowhere'"),
        ("s", "y > 1", "--where is refused .at character 1.: UNKNOWN_COLUMN"),
        ("s", "x + 1", "NOT_BOOLEAN"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            explain(workspace, scope, [], condition)


def test_integer_ids(new_workspace, add_rules) -> None:
    found = new_workspace(STREAMS, id_type="bigint", spark=False)
    source().write_delta(found.configuration.streams["s"].source)
    add_rules(found, (7, "s", "x > 90"))
    assert explain(found, "s", ["7"], "id = 50").explained[0].rule_id == 7
    for rule in ("8", "seven", "--7", "7" * 5_000):
        with pytest.raises(ri.UnknownRuleError, match="has no rule"):
            explain(found, "s", [rule], "id = 50")


def test_the_nearest_rules_lack_the_fewest_terms() -> None:
    draw = random.Random(4)
    schema = pa.schema({name: pa.int32() for name in "abcdef"})
    for _ in range(cases(20)):
        rules = []
        for number in range(60):
            parts = [f"{name} > {draw.randrange(6)}" for name in "abcd" if draw.random() < 0.5]
            either = f"(e = {draw.randrange(6)} OR f = {draw.randrange(6)})"
            rules.append((number, " AND ".join([*parts, *([] if parts and draw.random() < 0.5 else [either])])))
        compiled = ri.compile_rules(rules, schema)
        row = {name: draw.choice([*range(7), None]) for name in "abcdef"}
        near = NearestRules(compiled).of(row, 1_000)
        lacking = {}
        for rule, _ in rules:
            found = compiled.explain(row, rule)
            parts = found.children if found.operator == "AND" else (found,)
            lacking[rule] = sum(not part.matched for part in parts)
        assert [lacking[rule] for rule in near] == sorted(lacking[rule] for rule in near)
        assert set(near) == {rule for rule, count in lacking.items() if 0 < count <= 2}


@pytest.mark.slow
def test_rows_are_explained_as_they_were_tagged(workspace, add_rules) -> None:
    add_rules(workspace, ("many", "s", "x > 10 AND NOT (place = 'p3' AND x < 50)"), ("none", "s", "x IS NULL"))
    add_rules(workspace, {"rule_id": "late", "scope": "s", "expression": "more.a < 4", "valid_from": FIRST})
    assert [each.error for each in compile_scopes(workspace, ["s"])] == [None]
    tag_stream(workspace, "s")
    tagged = {row["id"]: row["rule_ids"] for row in workspace.lake.arrow("s_tagged").to_pylist()}
    workspace.lake.delta("rules").update({"expression": "'x = 1'"}, predicate="rule_id = 'many'")
    compile_scopes(workspace, ["s"])
    found = explain(workspace, "s", ["late", "many", "none"], "id < 400", limit=500)
    assert found.rows == 400 and len(found.explained) == 1_200
    for each in found.explained:
        assert each.explanation.matched == (each.rule_id in tagged[each.row["id"]]), str(each.explanation)
    unnamed = [each for each in explain(workspace, "s", [], "id = 77").explained if each.explanation.matched]
    assert [each.rule_id for each in unnamed] == tagged[77]


@pytest.mark.slow
def test_the_command_line(workspace, add_rules, capsys, monkeypatch) -> None:
    configuration = workspace.configuration.path
    configuration.write_text(
        '[lake]\nroot = "lake"\n[streams.s]\nsource = "lake/source"\nevent_time = "t"\nkey = ["id"]\n'
    )
    monkeypatch.setenv("DELTATAG_CONFIG", str(configuration))
    add_rules(workspace, ("a", "s", "x > 90 AND place = 'p1'"), ("b", "s", "x > 1000000 AND id > 5 AND t IS NULL"))
    assert main(["explain", "s", "a", "--where", "id = 50", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert set(found) == {"row", "rule_id", "matched", "tree", "near_miss"}
    assert found["row"]["id"] == 50 and (found["rule_id"], found["matched"]) == ("a", False)
    assert found["tree"]["text"] == "x > 90 AND place = 'p1'" and found["tree"]["value"] is False
    assert found["tree"]["children"][0] == {"text": "x > 90", "value": False, "values": {"x": 50}, "children": []}
    assert found["near_miss"] == [{"column": "x", "from": 50, "to": 91}]
    assert main(["explain", "s", "--where", "id = 50"]) == 0
    told = capsys.readouterr().out
    assert "row id = 50" in told and "rule a does not match" in told and "x: 50 -> 91" in told
    assert main(["explain", "s", "none", "--where", "id = 50"]) == 1
    assert "has no rule 'none'" in capsys.readouterr().err
    assert main(["explain", "s", "a", "--where", "id >"]) == 2
    assert main(["explain", "s", "a", "--where", "id = -1"]) == 0
    assert "No row of s" in capsys.readouterr().out


def test_a_wide_row_without_a_key_is_shown_by_its_first_columns(new_workspace, add_rules, capsys, monkeypatch) -> None:
    found = new_workspace({"w": {"source": "lake/wide"}}, spark=False)
    found.configuration.path.write_text('[lake]\nroot = "lake"\n[streams.w]\nsource = "lake/wide"\n')
    monkeypatch.setenv("DELTATAG_CONFIG", str(found.configuration.path))
    pl.DataFrame({f"c{number}": [number] for number in range(40)}).write_delta(found.configuration.streams["w"].source)
    add_rules(found, ("a", "w", "c39 = 39"))
    compile_scopes(found)
    assert main(["explain", "w", "a", "--where", "TRUE"]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert first.startswith("row c0 = 0, c1 = 1, ") and first.endswith(", c29 = 29, and 10 other columns")
    assert "true   c39 = 39   [c39 = 39]" in others
