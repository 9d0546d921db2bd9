"""What nobody foresaw when Spark is asked about one rule rejects that rule; a JVM that has ended rejects none."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from deltalake import DeltaTable
from py4j.java_gateway import GatewayParameters, JavaGateway
from pyspark.sql import SparkSession

from pipelines import analyse
from pipelines.compile import compile_scopes
from pipelines.errors import SessionError
from pipelines.settings.configuration import parse_configuration
from pipelines.spark import catalyst, jvm
from pipelines.spark.session import in_time_zone
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from tests.cases import soak_rest
from tests.random_rows import rows
from tests.spark.tagged_rules import Lake, reference_session
from tests.spark_oracle import Oracle

TEXTS = ["i + i2 = 3", *(f"log2(i) > {k}" for k in range(70)), "soundex(s) = s2", "i = 1"]
"""More derived parts than one question asks about; the library knows the last rule whole."""


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    reference = reference_session(spark, "UTC")
    lake = Lake(tmp_path, spark, Oracle(reference, reference.range(1)), rows(5, 1), "UTC")
    lake.write(TEXTS)
    return lake


def break_at(monkeypatch: pytest.MonkeyPatch, word: str, error: Exception) -> None:
    """Breaks what asks Spark about a text with the word in it: a fault that no text may have been found for yet."""
    known = catalyst.column_in_struct

    def column_in_struct(spark: SparkSession, text: str) -> Any:
        if word in text:
            raise error
        return known(spark, text)

    monkeypatch.setattr(catalyst, "column_in_struct", column_in_struct)


@pytest.mark.parametrize(
    "error", soak_rest(1, [OSError("no room"), KeyError("nobody thought of it"), TypeError("no text")])
)
def test_one_rule_is_rejected_and_the_others_go_on(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    break_at(monkeypatch, "soundex", error)
    assert [(each.error, each.rejects) for each in compile_scopes(lake.workspace)] == [(None, 1)]
    (reject,) = DeltaTable(lake.workspace.lake.uri("rule_rejects")).to_pyarrow_table().to_pylist()
    assert (TEXTS[int(reject["rule_id"])], reject["error"]) == ("soundex(s) = s2", "INTERNAL")
    assert f"{type(error).__name__}: {error}" in reject["message"]


def test_a_type_that_is_not_known_rejects_its_rule(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    known = analyse._type_differs

    def type_differs(leaf: Any, found: Any) -> Any:
        if "soundex" in leaf.text:
            raise ValueError("a type of tomorrow")
        return known(leaf, found)

    monkeypatch.setattr(analyse, "_type_differs", type_differs)
    assert [(each.error, each.rejects) for each in compile_scopes(lake.workspace)] == [(None, 1)]


ERRORS_OF_PLANNING = [
    f"{text} > ts"
    for word in ("'abc'", "'epoch'", "''", "'2024-13-01'")
    for text in (f"{word} + INTERVAL 1 DAY", f"{word} - INTERVAL 1 DAY", f"INTERVAL 1 DAY + {word}")
] + [
    "s = 'x' OR coalesce('abc' + INTERVAL 1 DAY, ts) > ts",
    "exists(array(ts), e -> e < 'abc' + INTERVAL 1 DAY)",
]
"""Texts whose types are right, and at which Spark fails as soon as it plans, outside of what catches errors."""
ERRORS_OF_CODE = [
    *("to_date(s, 'DD.MM.YYYY') > dt", "to_timestamp(s, 'qq bad') > ts", "to_timestamp_ntz(s, 'YYYY') > nt"),
    *("date_format(ts, 'YYYY') = s", "unix_timestamp(s, 'eee') > 5", "from_unixtime(i, 'YYYY') = s OR i = 1"),
    *("from_utc_timestamp(ts, 'Foo/Bar') > ts", "s = 'x' AND to_utc_timestamp(ts, 'Foo/Bar') > ts"),
]
"""Texts at whose constants Spark fails when it generates code, or loads it, outside of what catches errors."""
NO_ERRORS_OF_PLANNING = [
    "'2024-01-01' + INTERVAL 1 DAY > ts",
    "CAST('abc' AS TIMESTAMP) + INTERVAL 1 DAY > ts",
    "s = 'abc' + INTERVAL 1 DAY * 2",
    "date_format(ts, 'yyyy-DDD') = s",
    "from_utc_timestamp(ts, s) > ts",
]


def test_what_spark_cannot_plan_is_rejected_and_the_others_go_on(lake: Lake) -> None:
    wrong = [*ERRORS_OF_PLANNING, *ERRORS_OF_CODE]
    texts = [*wrong, *NO_ERRORS_OF_PLANNING, "i = 1 OR i <> 1 OR i IS NULL"]
    lake.write(texts)
    assert [each.error for each in compile_scopes(lake.workspace)] == [None]
    rejects = DeltaTable(lake.workspace.lake.uri("rule_rejects")).to_pyarrow_table().to_pylist()
    assert [texts[int(each["rule_id"])] for each in rejects if each["error"] != "ANALYSIS"] == []
    assert {texts[int(each["rule_id"])] for each in rejects} == set(wrong)
    (pattern,) = (each["message"] for each in rejects if texts[int(each["rule_id"])] == ERRORS_OF_CODE[0])
    assert pattern.startswith("Fail to recognize 'DD.MM.YYYY' pattern")
    assert "yyyy is the year" in pattern
    assert tag_stream(lake.workspace, "s").rows == 5
    tagged = DeltaTable(lake.workspace.lake.uri("s_tagged")).to_pyarrow_table(columns=["rule_ids"])
    assert all(len(texts) - 1 in ids for ids in tagged["rule_ids"].to_pylist())


def test_a_dead_jvm_rejects_no_rule(lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls of a JVM that has ended fail as those of a fault do, and every later one too."""

    class Gone:
        """A session at whose port no JVM listens any more."""

        _jvm = JavaGateway(gateway_parameters=GatewayParameters(port=1)).jvm

    is_alive, gone = jvm.is_alive, cast(SparkSession, Gone())
    assert is_alive(spark)
    assert not is_alive(gone)
    monkeypatch.setattr(jvm, "is_alive", lambda _: is_alive(gone))
    break_at(monkeypatch, "soundex", ConnectionRefusedError(111, "Connection refused"))
    assert compile_scopes(lake.workspace)[0].state == "failed"
    assert DeltaTable(lake.workspace.lake.uri("rule_rejects")).to_pyarrow_table().num_rows == 0


def test_a_time_zone_that_the_jvm_does_not_know_is_told(spark: SparkSession, tmp_path: Path) -> None:
    zones = spark._jvm.java.time.ZoneId.getAvailableZoneIds()  # type: ignore[union-attr]
    zone = "America/Coyhaique"
    if zones.contains(zone):
        pytest.skip(f"this Java knows {zone}")
    document = {"lake": {"root": "lake"}, "rules": {"time_zone": zone}}
    workspace = Workspace(parse_configuration(document, tmp_path / "deltatag.toml"), spark)
    with pytest.raises(SessionError, match=f"does not know the time zone '{zone}'.*time_zone in .rules.") as caught:
        _ = workspace.spark
    assert "\n" not in str(caught.value)
    with pytest.raises(SessionError, match=zone), in_time_zone(reference_session(spark, "UTC"), zone):
        pass


def test_texts_that_spark_reads_as_a_moment_of_the_clock_are_refused(lake: Lake) -> None:
    """Spark replaces them where it plans a job, so that the same rows would get other rules on another day."""
    moving = [
        *("ts < 'yesterday'", "dt IN ('2024-02-29', ' Today ')", "nt < 'now'", "year('tomorrow') = 2024"),
        "dt IN ('epoch', 'today')",
        *("dt > CAST(concat('to', 'day') AS DATE)", "coalesce(dt, 'today') = dt", "exists(array(dt), d -> d < 'now')"),
    ]
    fixed = [
        "ts < 'epoch'",
        "dt = CAST('epoch' AS DATE)",
        "s = 'today'",
        "s2 LIKE 'now%' AND log2(i) > 3",
        "dt < 'then'",
    ]
    lake.write([*moving, *fixed])
    (result,) = compile_scopes(lake.workspace)
    assert (result.error, result.rejects) == (None, len(moving))
    rejects = DeltaTable(lake.workspace.lake.uri("rule_rejects")).to_pyarrow_table().to_pylist()
    assert {each["rule_id"]: each["error"] for each in rejects} == {
        str(i): "NOT_REPEATABLE" for i in range(len(moving))
    }
