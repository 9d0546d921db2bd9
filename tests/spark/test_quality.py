"""The quality gates: a sound lake passes, and each kind of fault is found by the expectation that is meant for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import functions as f

from pipelines.compile import compile_scopes
from pipelines.pages import DATA_DOCS, page_folder
from pipelines.tag import tag_stream
from quality.findings import ERROR, WARNING, GateResult
from quality.gates import Pages, QualityGates, rules_gate, source_gate, tagged_gate
from tests.cases import soak_but, soak_rest, some_of

STREAM = {"source": "lake/source", "key": ["id"], "event_time": "at", "checks": {"sane": "x < 95"}}
RULES = [("big", "s", "x > 50"), ("text", "s", "name LIKE '%1%'"), ("raises", "s", "10 / (x - 3) > 1")]


def rows(start: int, stop: int) -> pa.Table:
    numbers = range(start, stop)
    columns = {
        "id": pa.array(numbers, pa.int64()),
        "x": pa.array([n % 100 for n in numbers], pa.int32()),
        "name": pa.array([None if n % 7 == 0 else f"n{n}" for n in numbers]),
        "at": pa.array([n * 1_000_000 for n in numbers], pa.timestamp("us", tz="UTC")),
    }
    return pa.table(columns)


@pytest.fixture
def lake(new_workspace, add_rules):
    """A workspace with a source of 300 rows and compiled rules; `tag` brings it up to date."""

    def make(rules=RULES, id_type: str = "string", **settings: Any):
        workspace = new_workspace({"s": {**STREAM, **settings}}, id_type=id_type)
        write_deltalake(workspace.configuration.stream("s").source, rows(0, 300))
        add_rules(workspace, *rules)
        assert [result.error for result in compile_scopes(workspace)] == [None]
        return workspace

    return make


def failed(result: GateResult) -> dict[str, str]:
    return {finding.expectation: finding.severity for finding in result.findings if not finding.success}


def message(result: GateResult, expectation: str) -> str:
    return next(finding.message for finding in result.findings if finding.expectation == expectation)


@pytest.mark.parametrize(
    ("id_type", "rules", "settings"),
    soak_rest(
        1,
        [
            ("string", RULES, {}),
            ("bigint", [(i, scope, text) for i, (_, scope, text) in enumerate(RULES)], {"output": "matched"}),
            ("bigint", [(i, scope, text) for i, (_, scope, text) in enumerate(RULES)], {}),
            ("string", RULES, {"output": "matched"}),
            ("string", RULES, {"key": [], "checks": {}}),
            ("string", RULES, {"matches": False, "event_time": "id"} | {"event_time": "at"}),
            ("string", [], {}),
        ],
    ),
)
def test_a_sound_lake_passes_all_gates(lake, id_type: str, rules, settings) -> None:
    workspace = lake(rules, id_type, **settings)
    assert failed(rules_gate(workspace)) == {}
    assert set(failed(source_gate(workspace, "s"))) <= {"check_sane_holds"}
    result = tag_stream(workspace, "s")
    judged = tagged_gate(workspace, "s", result.batches)
    assert failed(judged) == {}
    assert judged.measures["tagged_matches"] == result.matches
    assert (
        dict(judged.counts) == {i: count for i, count in judged.counts if count}
        and sum(count for _, count in judged.counts) == result.matches
    )


def test_a_sample_is_tried_again_with_the_rules_validity(lake) -> None:
    bounds = [pa.scalar(n * 1_000_000, pa.timestamp("us", tz="UTC")).as_py() for n in (100, 200)]
    bounded = {"rule_id": "b", "scope": "s", "expression": "x >= 0", "valid_from": bounds[0], "valid_to": bounds[1]}
    workspace = lake([*RULES, bounded])
    tag_stream(workspace, "s")
    judged = tagged_gate(workspace, "s")
    assert failed(judged) == {}
    assert judged.measures["sampled_rules"] == 4 and judged.measures["sampled_rows"] > 100
    assert dict(judged.counts)["b"] == 95


FAULTS: list[tuple[str, str, Callable[[Any], Any]]] = [
    ("row_count", "s_tagged", lambda frame: frame.filter("id <> 7")),
    ("row_count", "quarantine_s", lambda frame: frame.filter("x <> 95")),
    ("rule_ids_not_null", "s_tagged", lambda frame: _with_ids(frame, "id = 8", "NULL")),
    ("rule_ids_not_null", "s_tagged", lambda frame: _with_ids(frame, "id = 8", "array('big', NULL)")),
    ("rule_ids_ascending", "s_tagged", lambda frame: _with_ids(frame, "size(rule_ids) > 1", "reverse(rule_ids)")),
    ("rule_ids_ascending", "s_tagged", lambda frame: _with_ids(frame, "id = 60", "array('big', 'big')")),
    ("ids_exist", "s_tagged", lambda frame: _with_ids(frame, "id = 8", "array('zzz')")),
    ("versions_recorded", "s_tagged", lambda frame: frame.withColumn("rules_version", f.expr("IF(id = 1, 0L, 1L)"))),
    ("matches_recorded", "s_tagged", lambda frame: _with_ids(frame, "id = 60", "array()")),
    ("matches_agree", "s_matches", lambda frame: frame.filter("id <> 60")),
    ("matches_agree", "s_matches", lambda frame: frame.withColumn("id", f.expr("IF(id = 60, 61L, id)"))),
    ("sample_agrees", "s_tagged", lambda frame: _with_ids(frame, "x < 40", "array('big')")),
]


def _with_ids(frame: Any, where: str, ids: str) -> Any:
    return frame.withColumn("rule_ids", f.expr(f"IF({where}, CAST({ids} AS array<string>), rule_ids)"))


def test_every_fault_of_tagged_rows_is_found(lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate sees tables as if tagging had gone wrong in one way."""
    workspace = lake()
    tag_stream(workspace, "s")
    assert failed(tagged_gate(workspace, "s")) == {}
    from quality import spark_written

    read = spark_written.frame
    for expectation, table, spoil in some_of(FAULTS, 2):

        def spoilt(written: Any, name: str, table: str = table, spoil: Callable[[Any], Any] = spoil) -> Any:
            frame = read(written, name)
            return spoil(frame) if name == table else frame

        monkeypatch.setattr(spark_written, "frame", spoilt)
        judged = tagged_gate(workspace, "s")
        assert expectation in failed(judged), (expectation, table)
        assert not judged.passed
        assert str(judged.reason).startswith("The quality gate of s_tagged is closed. Expected: ")


def test_only_the_newest_micro_batches_are_judged(lake) -> None:
    workspace = lake()
    tag_stream(workspace, "s")
    write_deltalake(workspace.configuration.stream("s").source, rows(300, 350), mode="append")
    assert tagged_gate(workspace, "s").measures["source_rows"] == 300
    tag_stream(workspace, "s")
    assert tagged_gate(workspace, "s").measures["source_rows"] == 50
    assert tagged_gate(workspace, "s", 2).measures["source_rows"] == 350


def test_what_is_wrong_with_rules_is_told_by_severity(lake, add_rules) -> None:
    workspace = lake()
    add_rules(workspace, ("big", "s", "x > 1"), ("far", "elsewhere", "TRUE"), ("none", "s", None))
    judged = rules_gate(workspace)
    assert failed(judged) == {"rule_id_unique": WARNING, "scope_known": WARNING, "expression_not_null": WARNING}
    assert (
        judged.passed and "elsewhere" in message(judged, "scope_known") and "big" in message(judged, "rule_id_unique")
    )


def test_disabled_rules_are_not_judged(lake, add_rules) -> None:
    workspace = lake()
    add_rules(workspace, {"rule_id": "big", "scope": "nowhere", "expression": None, "enabled": False})
    assert failed(rules_gate(workspace)) == {}


def test_a_scopes_share_of_rejects_above_the_limit_is_a_warning(new_workspace, add_rules) -> None:
    workspace = new_workspace({"s": STREAM, "t": STREAM}, {"max_reject_share": 0.25}, spark=False)
    add_rules(workspace, ("a", "s", "TRUE"), ("b", "t", "TRUE"), ("c", "elsewhere", "TRUE"), ("d", None, "TRUE"))
    judged = rules_gate(workspace)
    assert failed(judged) == {"scope_known": WARNING, "scope_not_null": WARNING}
    assert (judged.passed, judged.measures["refused"], judged.measures["reject_share"]) == (True, 2, 0.0)
    add_rules(workspace, ("e", "t", None))
    judged = rules_gate(workspace)
    assert judged.passed and failed(judged)["reject_share"] == WARNING
    assert "found 0.5, at most 0.25 is allowed" in message(judged, "reject_share")


@pytest.mark.parametrize(
    ("columns", "expectation"),
    [
        ({"rule_id": pa.string(), "scope": pa.string()}, "expression_type"),
        ({"rule_id": pa.float64(), "scope": pa.string(), "expression": pa.string()}, "rule_id_type"),
        (
            {"rule_id": pa.string(), "scope": pa.string(), "expression": pa.string(), "enabled": pa.string()},
            "enabled_type",
        ),
    ],
)
def test_a_rules_table_of_another_structure_shuts_the_gate(new_workspace, columns, expectation: str) -> None:
    workspace = new_workspace({"s": STREAM}, spark=False)
    table = pa.schema(columns).empty_table()
    write_deltalake(workspace.lake.uri("rules"), table, mode="overwrite", schema_mode="overwrite")
    assert failed(rules_gate(workspace)) == {expectation: ERROR}


def test_a_missing_rules_table_says_how_to_make_it(new_workspace, tmp_path: Path) -> None:
    workspace = new_workspace({"s": STREAM}, spark=False)
    (tmp_path / "lake" / "rules").rename(tmp_path / "lake" / "gone")
    judged = rules_gate(workspace)
    assert not judged.passed and "deltatag init" in message(judged, "table")


SOURCES = [
    ({"key": ["nosuch"]}, "columns", "nosuch"),
    ({"event_time": "name"}, "event_time_type", "string"),
    ({"checks": {"odd": "nosuch > 1"}}, "checks_valid", "odd"),
    ({"checks": {"odd": "rand() < 2"}}, "checks_valid", "odd"),
    ({"max_quarantine_share": 0.01}, "quarantine_share", "at most 0.01"),
    ({"source": "lake/nowhere"}, "followed", "nowhere"),
]


@pytest.mark.parametrize(("settings", "expectation", "said"), soak_but((SOURCES[0], SOURCES[3], SOURCES[4]), SOURCES))
def test_a_source_that_cannot_be_tagged_shuts_the_gate(new_workspace, settings, expectation: str, said: str) -> None:
    workspace = new_workspace({"s": {**STREAM, **settings}})
    write_deltalake(str(workspace.configuration.path.parent / "lake" / "source"), rows(0, 300))
    judged = source_gate(workspace, "s")
    assert failed(judged)[expectation] == ERROR
    assert said in message(judged, expectation)


def test_a_source_that_was_updated_is_told_before_it_is_tagged(lake) -> None:
    workspace = lake()
    tag_stream(workspace, "s")
    DeltaTable(workspace.configuration.stream("s").source).update(updates={"x": "1"}, predicate="id = 1")
    judged = source_gate(workspace, "s")
    assert failed(judged) == {"followed": ERROR}
    assert "--restart" in message(judged, "followed")


def test_bad_rows_are_counted_one_by_one(new_workspace) -> None:
    workspace = new_workspace({"s": {**STREAM, "checks": {"sane": "x < 95", "raises": "10 / (x - 3) < 99"}}})
    source = rows(0, 100).set_column(0, "id", pa.array([None, *range(1, 100)], pa.int64()))
    write_deltalake(workspace.configuration.stream("s").source, source)
    judged = source_gate(workspace, "s")
    assert judged.passed
    assert failed(judged) == {
        "key_id_not_null": WARNING,
        "check_sane_holds": WARNING,
        "check_raises_holds": WARNING,
    }
    counts = {name: judged.measures[name] for name in ("new_rows", "refused", "null_key_0", "failed_check_0")}
    assert counts == {"new_rows": 100, "refused": 7, "null_key_0": 1, "failed_check_0": 5}
    assert judged.measures["failed_check_1"] == 1


def test_the_gates_of_a_run_keep_what_they_found(lake) -> None:
    workspace = lake()
    gates, stream = QualityGates(), workspace.configuration.stream("s")
    assert gates.before_compile(workspace) is None
    assert gates.before_tag(workspace, stream) is None
    tag_stream(workspace, "s")
    assert gates.after_tag(workspace, stream) is None
    assert [result.gate for result in gates.results] == ["rules", "s", "s_tagged"]


def test_data_docs_need_no_other_host(lake) -> None:
    workspace = lake()
    rules_gate(workspace, Pages.ALL)
    source_gate(workspace, "s", Pages.ALL)
    folder = page_folder(workspace.configuration, DATA_DOCS)
    pages = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.html")}
    assert set(pages) == {"index.html", "rules.html", "s.html"}
    for name, page in pages.items():
        assert not re.findall(r"<(?:link|script|img)\b|url\(", page), name
    assert "No new row fails the check sane: found 15, expected 0" in pages["index.html"]
    assert "Share of new rows that go to quarantine" in pages["s.html"]
