"""What is told of rules, columns and table features that need Spark."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import rules_index as ri
from pipelines.compile import compile_scopes
from pipelines.compiling.due import compile_is_due
from pipelines.errors import SparkNotStartedError, SparkRuledOutError
from pipelines.join import join_together
from pipelines.lake.column_types import CHAR_TYPE, OPAQUE, spark_name
from pipelines.lake.index_store import newest_index, update_statistics
from pipelines.runners import choice
from pipelines.runners.spark_required import why_spark_evaluates
from pipelines.sources.readable_features import foreign_features
from pipelines.spark import runtime
from pipelines.tag import tag_stream
from pipelines.validate import validate_expression
from pipelines.workspace import Workspace
from pipelines.writing import local_tables
from tests.lakes import write_rules

SCHEMA = pa.schema({"x": pa.int64(), "s": pa.string()})


def compiled_of(*expressions: str) -> ri.CompiledRules:
    rules = [(f"r{number}", expression) for number, expression in enumerate(expressions)]
    return ri.compile_rules(rules, SCHEMA, analyse=lambda leaves: [None] * len(leaves))


def test_each_part_is_named_with_a_rule_up_to_ten_of_them() -> None:
    assert why_spark_evaluates(compiled_of("x > 1", "s = 'a'")) is None
    one = why_spark_evaluates(compiled_of("x > 1", "soundex(s) = 'a'", "soundex(s) = 'b' AND x > 2"))
    assert one == "only Spark evaluates soundex(s), of the rule r1 (and 1 more rule)"
    forged = ri.compile_rules(
        [("r\nall is well", "soundex(s) = 'a'")], SCHEMA, analyse=lambda leaves: [None] * len(leaves)
    )
    assert why_spark_evaluates(forged) == "only Spark evaluates soundex(s), of the rule r\\nall is well"
    many = why_spark_evaluates(compiled_of(*(f"find_in_set('{width}', s) > 5" for width in range(3, 15))))
    assert many is not None and many.endswith("; and 2 other parts")
    named = re.findall(r"find_in_set\('(\d+)', s\), of the rule r(\d+);", many)
    assert len(named) == 10 and all(int(width) == int(rule) + 3 for width, rule in named)


@pytest.mark.parametrize(
    ("name", "kind"), [("two words", "string"), ("clock", "timestamp_ntz"), ("Amount", "string"), ("extra", "string")]
)
def test_columns_that_only_spark_adds_are_left_to_it(name: str, kind: str) -> None:
    held = [{"name": each, "type": "string", "nullable": True, "metadata": {}} for each in ("id", "amount")]
    later = {"name": name, "type": kind, "nullable": True, "metadata": {}}
    assert local_tables._only_widened(held, [*held, later]) is (name == "extra")
    within, widened = ([{**held[0], "type": {"type": "struct", "fields": each}}] for each in (held, [*held, later]))
    assert local_tables._only_widened(within, widened) is (name == "extra")


def test_a_changed_type_is_told_with_both() -> None:
    held, wanted_now = ([{"name": "amount", "type": kind}] for kind in ("decimal(10,2)", "integer"))
    assert local_tables._changed_types(held, wanted_now) == "amount as DECIMAL(10,2), and its source as INT"
    held_now = [{"name": "amount", "type": "decimal(10,2)"}, {"name": "new", "type": "date"}]
    assert local_tables._changed_types(held, held_now) is None


@pytest.mark.parametrize("kind", ["char(5)", "struct<a:char(5)>"])
def test_a_column_that_holds_a_char_is_told(new_workspace, kind: str) -> None:
    workspace = new_workspace({"s": {"source": "lake/source"}}, spark=False, runner="local")
    source = Path(workspace.configuration.streams["s"].source)
    write_deltalake(str(source), pa.table({"id": [1], "code": ["ab"] if kind == "char(5)" else [{"a": "ab"}]}))
    log = source / "_delta_log" / f"{0:020d}.json"
    marked = json.dumps(json.dumps({CHAR_TYPE: kind}))[1:-1]
    before, name, after = log.read_text().partition('\\"code\\"')
    log.write_text(before + name + after.replace('\\"metadata\\":{}', f'\\"metadata\\":{marked}'))
    compile_scopes(workspace)
    with pytest.raises(SparkRuledOutError, match="only Spark reads the column code"):
        tag_stream(workspace, "s")


def test_a_partition_that_only_spark_writes_is_told(new_workspace) -> None:
    stream = {"source": "lake/source", "partition_by": ["x"]}
    workspace = new_workspace({"s": stream}, spark=False, runner="local")
    write_deltalake(workspace.configuration.streams["s"].source, pa.table({"x": [1.5]}))
    compile_scopes(workspace)
    with pytest.raises(SparkRuledOutError, match="by a DOUBLE, and s_tagged is partitioned by x"):
        tag_stream(workspace, "s")


def test_only_a_variant_makes_its_feature_one_that_spark_reads() -> None:
    with_variant = snapshot_like([{"type": {"type": "array", "elementType": "variant", "containsNull": True}}])
    assert foreign_features(with_variant) == ["variantType"]


def snapshot_like(fields: list[dict[str, Any]]) -> Any:
    """What `foreign_features` reads of a snapshot; delta-rs makes no table with such a column."""
    return SimpleNamespace(fields=fields, features=frozenset({"appendOnly", "variantType"}))


@pytest.mark.slow
def test_a_rule_that_needs_spark_is_refused_alone_if_spark_is_ruled_out(new_workspace, without_spark) -> None:
    streams = {"s": {"source": "lake/source"}}
    found, other = (new_workspace(streams, spark=False, runner=runner) for runner in ("local", "auto"))
    write_deltalake(found.configuration.streams["s"].source, pa.table({"x": [1, 2], "s": ["a", None]}))
    write_rules(found, [("a", "s", "x > 1"), ("b", "s", "x = 1 OR initcap(s) = 'A'")])
    (result,) = compile_scopes(found)
    assert (result.state, result.rules, result.rejects) == ("compiled", 2, 1)
    (reject,) = found.lake.arrow("rule_rejects", ["rule_id", "error", "position"]).to_pylist()
    assert tuple(reject.values()) == ("b", "NEEDS_SPARK", 9)
    assert tag_stream(found, "s").matches == 1
    assert validate_expression(found, "initcap(s) = 'A'", "s").error == "NEEDS_SPARK"
    assert not compile_is_due(found, "s") and compile_is_due(other, "s")
    write_rules(found, [("b", "s", "x = 1")], "overwrite")
    compile_scopes(found)
    assert not compile_is_due(found, "s") and not compile_is_due(other, "s")
    update_statistics(found.lake, newest_index(found.lake, "s"), {"needs_spark": "only Spark evaluates it"})
    assert compile_is_due(found, "s") and not compile_is_due(other, "s")


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["java", "jars"])
def test_a_rule_that_needs_spark_is_refused_alone_if_spark_cannot_start(
    new_workspace, without_spark, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    error = runtime.JavaNotFoundError if missing == "java" else runtime.JarsNotFoundError

    def fail() -> None:
        raise error(f"no {missing} here; put it there")

    found = new_workspace({"s": {"source": "lake/source"}}, spark=False, runner="auto")
    write_deltalake(found.configuration.streams["s"].source, pa.table({"x": [1, 2], "s": ["a", None]}))
    write_rules(found, [("a", "s", "x > 1"), ("b", "s", "initcap(s) = 'A'")])
    monkeypatch.setattr(choice, "is_given_session", lambda _: False)
    with monkeypatch.context() as patch:
        patch.setattr(runtime, f"find_{missing}", fail)
        (result,) = compile_scopes(found)
        assert (result.state, result.rules, result.rejects) == ("compiled", 2, 1)
        (reject,) = found.lake.arrow("rule_rejects", ["rule_id", "error", "message"]).to_pylist()
        assert reject["error"] == "NEEDS_SPARK" and reject["message"].endswith(f"no {missing} here; put it there")
        assert tag_stream(found, "s").matches == 1
        assert not compile_is_due(found, "s")
        assert validate_expression(found, "initcap(s) = 'A'", "s").error == "NEEDS_SPARK"
    monkeypatch.setattr(runtime, "missing_runtime", lambda: None)
    assert compile_is_due(found, "s")


def test_a_rule_that_needs_spark_waits_alone_for_a_jvm_that_does_not_start(
    new_workspace, without_spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise SparkNotStartedError("Spark could not be started: no memory")

    found = new_workspace({"s": {"source": "lake/source"}}, spark=False, runner="auto")
    write_deltalake(found.configuration.streams["s"].source, pa.table({"x": [1, 2], "s": ["a", None]}))
    write_rules(found, [("a", "s", "x > 1"), ("b", "s", "initcap(s) = 'A'")])
    monkeypatch.setattr(runtime, "missing_runtime", lambda: None)
    monkeypatch.setattr(choice, "is_given_session", lambda _: False)
    monkeypatch.setattr(Workspace, "spark", property(fail))
    (result,) = compile_scopes(found)
    assert (result.state, result.rules, result.rejects) == ("compiled", 2, 1)
    (message,) = found.lake.arrow("rule_rejects", ["message"])["message"].to_pylist()
    assert message.endswith("and Spark cannot be started here. Spark could not be started: no memory")
    # each run tries again
    assert compile_is_due(found, "s")
    assert tag_stream(found, "s").matches == 1


@pytest.mark.slow
def test_a_join_whose_spark_does_not_start_stops_no_other(new_workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise SparkNotStartedError("Spark could not be started: no memory")

    streams = {name: {"source": f"lake/{name}", "event_time": "t"} for name in ("a", "b")}
    join = {"streams": ["a", "b"], "on": ["x"], "window": "1 hour"}
    found = new_workspace(streams, spark=False, joins={"i": join, "j": join}, runner="auto")
    times = pa.array([1_000_000], pa.timestamp("us", "UTC"))
    for name in streams:
        write_deltalake(found.configuration.streams[name].source, pa.table({"x": [1], "t": times}))
    write_rules(found, [("a", "i", "TRUE"), ("b", "j", "TRUE")])
    compile_scopes(found)
    stored = newest_index(found.lake, "i")
    assert stored is not None
    update_statistics(found.lake, stored, {"needs_spark": "only Spark evaluates soundex(a.s), of the rule a"})
    monkeypatch.setattr(choice, "is_given_session", lambda _: False)
    monkeypatch.setattr(Workspace, "spark", property(fail))
    results, failures = join_together(found, ["i", "j"])
    assert [(result.join, result.joined) for result in results] == [("j", 1)]
    assert {name: str(error) for name, error in failures.items()} == {"i": "Spark could not be started: no memory"}


def with_a_rule_of_spark(new_workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A stream with the rule `a`, which only Spark evaluates, on a machine that has lost its Java since."""

    def fail() -> None:
        raise runtime.JavaNotFoundError("no Java here")

    found: Workspace = new_workspace({"s": {"source": "lake/source"}}, spark=False, runner="auto")
    write_deltalake(found.configuration.streams["s"].source, pa.table({"x": [1, 2], "s": ["a", None]}))
    write_rules(found, [("a", "s", "initcap(s) = 'B'"), ("c", "s", "x > 1")])
    with monkeypatch.context() as patch:
        patch.setattr("pipelines.analyse.spark_analyser", lambda _: lambda leaves: [None] * len(leaves))
        patch.setattr("pipelines.analyse.why_spark_rules_are_refused", lambda *_: None)
        assert compile_scopes(found)[0].rejects == 0
    monkeypatch.setattr(runtime, "find_java", fail)
    monkeypatch.setattr(choice, "is_given_session", lambda _: False)
    monkeypatch.setattr("pipelines.spark.session._running_session", lambda: None)
    return found


@pytest.mark.slow
def test_a_rule_in_force_that_needs_spark_is_not_refused_if_spark_cannot_start(new_workspace, monkeypatch) -> None:
    found = with_a_rule_of_spark(new_workspace, monkeypatch)
    write_rules(found, [("b", "s", "initcap(s) = 'A'")])
    for _ in range(2):
        (result,) = compile_scopes(found)
        assert result.state == "failed" and "no Java here" in str(result.error)
        found.lake.delta("rules").update(new_values={"expression": "initcap(s) = s"}, predicate="rule_id = 'a'")


@pytest.mark.slow
@pytest.mark.parametrize("removal", ["DELETE", "disabled", "elsewhere"])
def test_a_new_rule_that_needs_spark_is_refused_alone_once_that_in_force_is_removed(
    new_workspace, monkeypatch, removal: str
) -> None:
    found = with_a_rule_of_spark(new_workspace, monkeypatch)
    write_rules(found, [("b", "s", "initcap(s) = 'A'")])
    if removal == "DELETE":
        found.lake.delta("rules").delete("rule_id = 'a'")
    else:
        new = {"enabled": "false"} if removal == "disabled" else {"scope": "'t'"}
        found.lake.delta("rules").update(new, predicate="rule_id = 'a'")
    (result,) = compile_scopes(found)
    assert (result.state, result.error, result.rejects) == ("compiled", None, 1)
    rejects = found.lake.arrow("rule_rejects", ["rule_id", "error"], [("scope", "s")]).to_pylist()
    assert rejects == [{"rule_id": "b", "error": "NEEDS_SPARK"}]
    assert not compile_is_due(found, "s")
    assert tag_stream(found, "s").matches == 1


def test_types_are_named_as_sql_names_them() -> None:
    struct = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.map_(pa.string(), pa.timestamp("us", "UTC"))))])
    named = {
        pa.decimal128(10, 2): "DECIMAL(10,2)",
        pa.int8(): "TINYINT",
        pa.timestamp("us"): "TIMESTAMP_NTZ",
        struct: "STRUCT<a: BIGINT, b: ARRAY<MAP<STRING, TIMESTAMP>>>",
        OPAQUE: "a type that only Spark knows",
    }
    assert {kind: spark_name(kind) for kind in named} == named
