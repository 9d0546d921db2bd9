"""Lint of a scope: the rules alone, the source's statistics, and what the last runs did, without a JVM."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pipelines.compile import compile_scopes
from pipelines.lake.runs import DONE, MicroBatch, record_plan
from pipelines.lint import Finding, LintResult, _of_source, lint_scopes
from pipelines.lint_kinds import KINDS
from pipelines.scopes import scope_of
from pipelines.sources import known_values as known_values_module
from pipelines.sources.known_values import source_values
from pipelines.sources.value_ranges import source_ranges
from pipelines.value_lists import ListReader
from rules_index.implication.kinds import LINT_KINDS, UNIT
from tests.unit.language.clock import within

STREAM = {"s": {"source": "lake/source", "event_time": "t"}}
ROWS = pl.DataFrame(
    {
        "x": [1, 7, None],
        "name": ["a", "k", "m"],
        "f": [0.5, 2.5, 1.0],
        "same": [3, 3, 3],
        "none": pl.Series([None, None, None], dtype=pl.Int64),
        "d": pl.Series(["1.50", "2.25", "9.00"]).cast(pl.Decimal(9, 2)),
        "n": [{"y": 1}, {"y": 2}, {"y": 3}],
    }
).with_columns(t=pl.datetime(2024, 1, 1, time_zone="UTC"), day=pl.date(2024, 1, 1), flag=pl.lit(True))


@pytest.fixture
def workspace(new_workspace):
    found = new_workspace(STREAM, spark=False)
    source = found.configuration.streams["s"].source
    ROWS.write_delta(source)
    ROWS.with_columns(x=pl.col("x") + 2).write_delta(source, mode="append")
    return found


def lint(workspace, **options: Any) -> dict[tuple[Any, str], Finding]:
    (result,) = lint_scopes(workspace, **options)
    assert result.error is None
    return {(each.rule_id, each.kind): each for each in result.findings}


def run_batch(workspace, number: int, rows: int, rule_ids: list[list[str]], version: int, **figures: Any) -> None:
    """What a micro-batch leaves behind: its row in `runs`, and tagged rows."""
    started = datetime.now(UTC)
    record_plan(
        workspace.lake, MicroBatch("s", number, DONE, {"end": {}}, version, "f", number, started, rows=rows, **figures)
    )
    tagged = pl.DataFrame(
        {"rule_ids": rule_ids, "rules_version": version, "source_version": number},
        schema_overrides={"rule_ids": pl.List(pl.String), "rules_version": pl.Int64, "source_version": pl.Int64},
    )
    tagged.write_delta(workspace.lake.uri("s_tagged"), mode="append")


def test_nothing_to_tell_of_no_rules(workspace) -> None:
    (result,) = lint_scopes(workspace)
    assert (result.scope, result.rules, result.findings, result.error) == ("s", 0, (), None)


def test_the_rules_alone(workspace, add_rules) -> None:
    add_rules(
        workspace, ("a", "s", "x > 3"), ("b", "s", "x > 4 AND flag"), ("c", "s", "x = NULL OR name = 'a'"),
        ("d", "s", "y = 1"), ("e", "elsewhere", "x = 1"), ("f", "s", "x > 5"), ("f", "s", "x > 6"),
    )  # fmt: skip
    found = lint(workspace)
    assert sorted(found) == [
        ("b", "implied"), ("c", "null_comparison"), ("d", "rejected"), ("f", "rejected"),
    ]  # fmt: skip
    assert found["b", "implied"].other_ids == ("a",) and "x = 5" in found["b", "implied"].message
    assert (found["c", "null_comparison"].position, found["c", "null_comparison"].text) == (0, "x = NULL")


def test_rules_that_spark_refused_are_told_and_left_out(workspace, add_rules) -> None:
    add_rules(workspace, ("a", "s", "x > 3"), ("b", "s", "x > 4"))
    compile_scopes(workspace)
    row = {"scope": "s", "rule_id": "a", "rules_version": 1, "error": "ANALYSIS", "message": "No.", "position": None}
    refused = pl.DataFrame([row], schema_overrides={"position": pl.Int32})
    refused.write_delta(workspace.lake.uri("rule_rejects"), mode="append")
    assert sorted(lint(workspace)) == [("a", "rejected")]


def test_rules_refused_for_their_severity_are_told_and_left_out(new_workspace, add_rules) -> None:
    found = new_workspace({"s": STREAM["s"] | {"annotations": ["severity"]}}, spark=False)
    ROWS.write_delta(found.configuration.streams["s"].source)
    add_rules(
        found, {"rule_id": "a", "scope": "s", "expression": "x > 3", "labels": [("level", "urgent")]},
        {"rule_id": "b", "scope": "s", "expression": "x > 4", "labels": [("level", "high")]},
    )  # fmt: skip
    told = lint(found)
    assert [key for key in told if key[1] in ("rejected", "implied")] == [("a", "rejected")]
    assert "matches nothing (UNKNOWN_SEVERITY): There is no severity 'urgent'" in told["a", "rejected"].message
    compile_scopes(found)
    rejects = found.lake.arrow("rule_rejects").to_pylist()
    assert [(each["rule_id"], each["error"]) for each in rejects] == [("a", "UNKNOWN_SEVERITY")]


def test_what_explains_a_range_is_looked_up_by_rule(workspace) -> None:
    ids = [f"r{number}" for number in range(4_000)]
    rules = pl.DataFrame({"rule_id": ids, "expression": "name = 'z'", "valid_from": None, "valid_to": None})
    known = [Finding(each, UNIT, "", text="x > 5") for each in ids]
    started = time.process_time()
    found = _of_source(scope_of(workspace, "s"), rules, known, ListReader(workspace.configuration))
    assert within(0.5, time.process_time() - started)  # with a look at each rule for each other one: a second and more
    assert [each.rule_id for each in found] == sorted(ids)


def test_the_ranges_of_a_source(workspace) -> None:
    stream = workspace.configuration.streams["s"]
    found = source_ranges(stream, scope_of(workspace, "s").columns())
    ends = {name: (each.low, each.high, each.null) for name, each in found.items()}
    assert ends == {
        "x": ("1", "9", True),
        "name": ("'a'", "'m'", False),
        "f": ("0.5D", "2.5D", False),
        "same": ("3", "3", False),
        "none": (None, None, True),
        "d": ("1.50BD", "9.00BD", False),
        "n.y": ("1", "3", False),
        "t": ("TIMESTAMP'2024-01-01 00:00:00Z'", "TIMESTAMP'2024-01-01 00:00:00.001Z'", False),
        "day": ("DATE'2024-01-01'", "DATE'2024-01-01'", False),
        "flag": ("TRUE", "TRUE", False),
    }


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("x > 9", "its column x has values from 1 to 9, and NULL."),
        ("x < 1 AND flag", "its column x has values"),
        ("name = 'B'", "its column name has values from 'a' to 'm', and no NULL."),
        ("name IS NULL", "its column name has values"),
        ("same = 4", "its column same is 3 on every row."),
        ("none = 4", "its column none is NULL on every row."),
        ("n.y = 4", "its column n.y has values from 1 to 3"),
        ("d < 1.5", "its column d has values from 1.50 to 9.00"),
        ("day > DATE'2024-01-01'", "its column day is DATE'2024-01-01' on every row."),
        ("t > TIMESTAMP'2025-01-01'", "its column t has values"),
        ("x > 9 OR name = 'A'", "its columns have no such values."),
        ("f > 2.5", None),
        ("f = 2.75D", "its column f has values from 0.5 to 2.5"),
        ("x = 8", None),
        ("x IS NULL", None),
        ("name > 'b'", None),
        ("x + 1 > 100", None),
    ],
)
def test_rules_that_no_row_of_the_source_can_match(workspace, add_rules, rule: str, words: str | None) -> None:
    add_rules(workspace, ("r", "s", rule))
    found = lint(workspace).get(("r", "out_of_range"))
    assert (found is None) == (words is None), found
    assert words is None or (found is not None and words in found.message)


@pytest.mark.slow
def test_rules_that_match_nothing_or_very_much_and_rules_that_raise(workspace, add_rules) -> None:
    add_rules(workspace, ("often", "s", "x > 1"), ("never", "s", "x = 2"), ("seldom", "s", "x = 3"),
              {"rule_id": "was-off", "scope": "s", "expression": "x = 5", "enabled": False})  # fmt: skip
    run_batch(workspace, 0, 300, [["often"]] * 200 + [["seldom"]] * 2, 1)
    switched_on = pl.read_delta(workspace.lake.uri("rules")).with_columns(enabled=pl.lit(True))
    switched_on.write_delta(workspace.lake.uri("rules"), mode="overwrite")
    add_rules(workspace, ("new", "s", "x = 4"))
    run_batch(workspace, 1, 100, [["often"]] * 50 + [[]] * 50, 3, errors={"seldom": 7, "gone": 1}, quarantined=10)
    found = {key: each.message for key, each in lint(workspace).items() if key[1] != "implied"}
    assert sorted(found) == [("never", "dead"), ("often", "noisy"), ("seldom", "run_time_errors")]
    assert "none of the 390 rows of the last 2 micro-batches" in found["never", "dead"]
    assert "250 of the last 390 rows, 64%" in found["often", "noisy"]
    assert "7 of the 100 rows" in found["seldom", "run_time_errors"]
    assert ("often", "noisy") not in lint(workspace, noisy=0.7)
    # of the last one alone too few rows are known
    assert not any(kind in ("dead", "noisy") for _, kind in lint(workspace, runs=1))
    run_batch(workspace, 2, 0, [], 3)
    assert ("seldom", "run_time_errors") in lint(workspace)


@pytest.mark.slow
def test_each_rule_is_judged_from_its_own_last_change_on(workspace, add_rules) -> None:
    add_rules(workspace, ("old", "s", "x = 2"), ("changed", "s", "x = 9"))
    run_batch(workspace, 0, 200, [["changed"]] * 200, 1)
    workspace.lake.delta("rules").update(predicate="rule_id = 'changed'", new_values={"expression": "x = 3"})
    add_rules(workspace, ("new", "s", "x = 4"), ("all", "s", "x > 1"))
    run_batch(workspace, 1, 150, [["all"]] * 140, 3)
    add_rules(workspace, ("newest", "s", "x = 5"))
    run_batch(workspace, 2, 90, [["all"]] * 80, 4)
    found = lint(workspace)
    assert {rule for rule, kind in found if kind == "dead"} == {"old", "changed", "new"}
    assert {rule for rule, kind in found if kind == "noisy"} == {"all"}
    assert "none of the 440 rows of the last 3 micro-batches" in found["old", "dead"].message
    assert "none of the 240 rows of the last 2 micro-batches" in found["changed", "dead"].message
    assert "220 of the last 240 rows" in found["all", "noisy"].message


@pytest.mark.slow
def test_rows_that_a_re_tag_has_matched_again_are_no_share_of_the_last_rows(workspace, add_rules) -> None:
    add_rules(workspace, ("old", "s", "x = 2"))
    run_batch(workspace, 0, 1_000, [[]] * 1_000, 1)
    add_rules(workspace, ("new", "s", "x = 3"))
    uri = workspace.lake.uri("s_tagged")
    retagged = pl.read_delta(uri).with_columns(rule_ids=pl.lit(["new"]), rules_version=pl.lit(2, pl.Int64))
    retagged.write_delta(uri, mode="overwrite")
    run_batch(workspace, 1, 200, [["new"]] * 10 + [[]] * 190, 2)
    assert not any(kind in ("dead", "noisy") for rule, kind in lint(workspace) if rule == "new")
    assert "10 of the last 200 rows, 5%" in lint(workspace, noisy=0.05)["new", "noisy"].message


def test_one_fault_gives_one_finding(workspace, add_rules) -> None:
    day = datetime(2024, 1, 1, tzinfo=UTC)
    add_rules(
        workspace, ("syntax", "s", "x > > 1"), ("never", "s", "x > 3 AND x < 2"), ("null", "s", "x = NULL"),
        ("far", "s", "x > 1000"), ("always", "s", "x > 1 OR x <= 1 OR x IS NULL"), ("raises", "s", "x / 0 > 1"),
        ("twice", "s", "x = 1"), ("twice", "s", "x = 1"),
        {"rule_id": "bounds", "scope": "s", "expression": "x = 2", "valid_from": day, "valid_to": day},
    )  # fmt: skip
    run_batch(workspace, 0, 200, [["always"]] * 200, 1, errors={"raises": 200})
    result = lint_scopes(workspace)[0]
    assert sorted((each.rule_id, each.kind) for each in result.findings if each.kind != "implied") == [
        ("always", "tautology"), ("bounds", "contradiction"), ("far", "out_of_range"), ("never", "contradiction"),
        ("null", "contradiction"), ("raises", "always_raises"), ("syntax", "rejected"), ("twice", "rejected"),
    ]  # fmt: skip
    (bounds,) = (each.message for each in result.findings if each.rule_id == "bounds")
    assert "its valid_to" in bounds and "exclude each other" not in bounds


def test_one_scope_that_fails_does_not_stop_another(new_workspace, add_rules) -> None:
    workspace = new_workspace({**STREAM, "o": {"source": "lake/none"}}, spark=False)
    ROWS.write_delta(workspace.configuration.streams["s"].source)
    add_rules(workspace, ("a", "s", "x > 1 AND x < 1"))
    first, second = lint_scopes(workspace)
    assert [each.kind for each in first.findings] == ["contradiction"]
    assert isinstance(second, LintResult) and second.error is not None and "no Delta table" in second.error
    assert len(lint_scopes(workspace, ["s"])) == 1


WIDE = {"source": "lake/source", "output": "matched", "key": ["x"], "checks": {"sane": "x < 1000"}}


def proposal(workspace, stream: str = "narrow") -> str | None:
    found = [each for each in lint_scopes(workspace, [stream])[0].findings if each.kind == "implied_by_stream"]
    assert all((each.rule_id, each.other_ids) == (None, ()) for each in found)
    return found[0].message if found else None


@pytest.mark.slow
def test_a_stream_whose_rules_another_one_implies_can_read_what_that_one_has_tagged(new_workspace, add_rules) -> None:
    workspace = new_workspace({"wide": WIDE, "narrow": WIDE, "other": WIDE}, spark=False)
    ROWS.write_delta(workspace.configuration.streams["wide"].source)
    add_rules(workspace, ("w1", "wide", "x < 5"), ("w2", "wide", "x >= 5"), ("n", "narrow", "x BETWEEN 3 AND 8"),
              ("o", "other", "x = 4 OR x IS NULL"))  # fmt: skip
    told = proposal(workspace)
    assert told is not None and "--restart" not in told
    assert "what wide has tagged in place of the source (3 rows, 0.0 MiB). Write" in told
    assert 'source_stream = "wide" in place of source in [streams.narrow]' in told
    ROWS.head(2).write_delta(workspace.lake.uri("wide_tagged"))
    ROWS.head(1).write_delta(workspace.lake.uri("narrow_tagged"))
    told = proposal(workspace)
    assert told is not None and "has tagged (2 rows, 0.0 MiB) in" in told
    assert told.endswith("then: deltatag tag narrow --restart")
    assert proposal(workspace, "wide") is None and proposal(workspace, "other") is None
    add_rules(workspace, ("n2", "narrow", "x IS NULL"))
    assert proposal(workspace) is None


@pytest.mark.parametrize(
    ("wide", "narrow", "joined"),
    [
        ({"output": "all"}, {}, False),
        ({"source": "lake/copy"}, {}, False),
        ({"start": 1}, {}, False),
        ({}, {"output": "all"}, False),
        ({}, {"key": []}, False),
        ({}, {"checks": {"sane": "x < 999"}}, False),
        ({}, {}, True),
    ],
)
def test_nothing_is_proposed_that_the_configuration_would_refuse(
    new_workspace, add_rules, wide: dict[str, Any], narrow: dict[str, Any], joined: bool
) -> None:
    streams = {"wide": {**WIDE, **wide}, "narrow": {**WIDE, "event_time": "t", **narrow}}
    streams["third"] = {"source": "lake/third", "event_time": "t"}
    joins = {"j": {"streams": ["narrow", "third"], "on": ["x"], "window": "1 h"}} if joined else {}
    workspace = new_workspace(streams, spark=False, joins=joins)
    for stream in ("wide", "narrow"):
        ROWS.write_delta(workspace.configuration.streams[stream].source, mode="overwrite")
    add_rules(workspace, ("w", "wide", "x > 0"), ("n", "narrow", "x > 3"))
    assert proposal(workspace) is None


def test_a_stream_without_rules_is_left_alone(new_workspace, add_rules) -> None:
    workspace = new_workspace({"wide": WIDE, "narrow": WIDE}, spark=False)
    ROWS.write_delta(workspace.configuration.streams["wide"].source)
    add_rules(workspace, ("w", "wide", "x > 0"))
    assert proposal(workspace) is None


def test_the_ranges_of_a_source_with_column_mapping(tmp_path, new_workspace) -> None:
    """Statistics go by the names that files have; those of users may be those of other columns, or have dots."""
    workspace = new_workspace({"s": {"source": "lake/mapped"}}, spark=False)
    source = workspace.configuration.streams["s"].source
    columns = {"a": [1, 2], "b": [10, 20], "c": [{"d": 5}, {"d": 6}]}
    write_deltalake(source, pa.table(columns))
    log = Path(source) / "_delta_log" / f"{0:020d}.json"
    names = {"a": "b", "b": "a", "c": "x.y", "d": "e f"}
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            fields = [*schema["fields"], *schema["fields"][2]["type"]["fields"]]
            for number, field in enumerate(fields):
                mapping = {"delta.columnMapping.id": number + 1, "delta.columnMapping.physicalName": field["name"]}
                field |= {"name": names[field["name"]], "metadata": mapping}
            action["metaData"]["schemaString"] = json.dumps(schema)
            mode = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "4"}
            action["metaData"]["configuration"] = mode
    log.write_text("\n".join(map(json.dumps, actions)))
    found = source_ranges(workspace.configuration.streams["s"], scope_of(workspace, "s").columns())
    assert {name: (each.low, each.high) for name, each in found.items()} == {
        "b": ("1", "2"),
        "a": ("10", "20"),
        "`x.y`.e f": ("5", "6"),
    }


def test_the_values_of_a_source_are_told_by_their_paths(workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, schema = workspace.configuration.streams["s"], scope_of(workspace, "s").columns()
    found = source_values(stream, schema, ["X > 5 AND `name` = 'b'", "n.y = 7 OR f > 1 OR unknown = 3"])
    assert set(found) == {"x", "name", "n.y", "f"}
    assert found["name"].texts == {"a", "k", "m"} and found["name"].complete and found["name"].rows == 6
    assert (found["x"].low, found["x"].high, found["n.y"].high, found["f"].has_fraction) == (1, 9, 3, True)
    assert source_values(stream, schema, ["day = '2024-01-01'"]) == {}
    # of a large source some rows of some files are looked at
    monkeypatch.setattr(known_values_module, "MOST_ROWS", 4)
    monkeypatch.setattr(known_values_module, "MOST_SAMPLED", 2)
    some = source_values(stream, schema, ["name = 'b'"])["name"]
    assert (some.rows, some.complete, some.texts) == (4, False, {"a", "k"})


def test_a_source_that_cannot_be_read_tells_nothing(new_workspace) -> None:
    found = new_workspace({"s": {"source": "lake/none"}}, spark=False)
    schema = pa.schema({"x": pa.int64()})
    assert source_values(found.configuration.streams["s"], schema, ["x = 1"]) == {}
    catalog = new_workspace({"s": {"source": "main.t"}}, spark=False)
    assert source_values(catalog.configuration.streams["s"], schema, ["x = 1"]) == {}


def test_the_values_of_both_sides_of_a_join(new_workspace, add_rules) -> None:
    streams = {name: {"source": f"lake/{name}_rows", "event_time": "t"} for name in ("left", "right")}
    joins = {"both": {"streams": ["left", "right"], "on": ["x"], "window": "1 hour"}}
    joined = new_workspace(streams, spark=False, joins=joins)
    for stream in joined.configuration.streams.values():
        ROWS.write_delta(stream.source)
    add_rules(joined, ("j", "both", "left.name = 'K' AND right.x > 0"), ("k", "both", "right.name = 'k'"))
    (result,) = lint_scopes(joined, ["both"])
    assert [(each.rule_id, each.kind) for each in result.findings] == [("j", "unknown_value")]
    assert "Write 'k'" in result.findings[0].message


def test_what_is_spelled_otherwise_is_told_once(workspace, add_rules) -> None:
    add_rules(workspace, ("a", "s", "name = 'A'"), ("b", "s", "name = 'A' AND x > 1000"))
    result = lint_scopes(workspace)[0]
    assert [(each.rule_id, each.kind) for each in result.findings if each.kind != "implied"] == [
        ("a", "unknown_value"), ("b", "unknown_value"), ("b", "out_of_range"),
    ]  # fmt: skip


def test_every_kind_has_its_place_and_is_described() -> None:
    own = {"out_of_range", "run_time_errors", "dead", "noisy", "implied_by_stream"}
    assert set(KINDS) == set(LINT_KINDS) | own and len(KINDS) == len(set(KINDS))
    text = (Path(__file__).resolve().parents[3] / "docs" / "lint.md").read_text(encoding="utf-8")
    assert [kind for kind in KINDS if f"| `{kind}` |" not in text] == []
