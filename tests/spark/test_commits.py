"""Commits that carry a micro-batch's number: once each, in conflict with a rival's, and without replaying the log."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from pipelines.errors import SessionError
from pipelines.spark import delta_entry_points, delta_internals
from pipelines.spark.delta_internals import TableLog
from tests.cases import SOAK, soak_rest

APP = "deltatag/test"


@pytest.fixture
def table(spark, tmp_path: Path) -> str:
    uri = str(tmp_path / "t")
    spark.sql(f"CREATE TABLE delta.`{uri}` (n BIGINT) USING DELTA")
    return uri


def append_rows(spark, log: TableLog, version: int) -> bool:
    return log.append_rows(spark.range(3).toDF("n"), APP, version)


def append_files(spark, log: TableLog, version: int) -> bool:
    """Commit a file that Spark has written beside the table."""
    folder = Path(log.uri)
    spark.range(3).toDF("n").coalesce(1).write.mode("append").parquet(str(folder))
    path = max(folder.glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    add = {"path": path.name, "partitionValues": {}, "size": path.stat().st_size, "modificationTime": 1}
    return log.append([json.dumps({"add": {**add, "dataChange": True}})], APP, version)


WAYS = pytest.mark.parametrize("append", soak_rest(1, [append_files, append_rows]))


def count(spark, table: str) -> int:
    return int(spark.read.format("delta").load(table).count())


@WAYS
def test_a_number_is_committed_once(spark, table: str, append) -> None:
    log = TableLog(spark, table)
    assert append(spark, log, 0) and append(spark, log, 1)
    assert not append(spark, log, 1)
    assert not append(spark, log, 0)
    assert count(spark, table) == 6
    # another writer's transactions are its own
    spark.range(3).toDF("n").write.format("delta").mode("append").option("txnAppId", "other").option(
        "txnVersion", 7
    ).save(table)
    assert not append(spark, log, 1)
    assert append(spark, log, 2)
    assert count(spark, table) == 12


@WAYS
def test_a_table_without_checksums_tells_its_transactions_too(spark, table: str, append) -> None:
    assert append(spark, TableLog(spark, table), 4)
    for checksum in [path for path in Path(table, "_delta_log").iterdir() if path.suffix == ".crc"]:
        checksum.unlink()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    log = TableLog(spark, table)
    assert not log.latest().checksumOpt().isDefined()
    assert not append(spark, log, 4)
    assert append(spark, log, 5)
    assert count(spark, table) == 6


@WAYS
@pytest.mark.parametrize("rival", soak_rest(1, [append_rows, append_files]))
def test_a_rival_that_commits_the_number_meanwhile_is_a_conflict(spark, table: str, append, rival, monkeypatch) -> None:
    log, other = TableLog(spark, table), TableLog(spark, table)
    assert append(spark, log, 0)
    as_before = log._list

    def overtaken(items: Any) -> Any:
        monkeypatch.undo()
        assert rival(spark, other, 1)
        return as_before(items)

    monkeypatch.setattr(log, "_list", overtaken)
    # which of the two it is hangs on whether the process has imported delta
    with pytest.raises((Py4JJavaError, PySparkException), match="ConcurrentTransactionException"):
        append(spark, log, 1)
    assert count(spark, table) == 6


@WAYS
def test_a_commit_and_its_files_need_no_replay_of_the_log(spark, table: str, append) -> None:
    log = TableLog(spark, table)
    assert append(spark, log, 0) and append(spark, log, 1)
    before = log.latest()
    assert append(spark, log, 2)
    assert not before.stateReconstructionTriggered()
    after = log.latest()
    assert len(log.files(after)) == len(list(Path(table).glob("*.parquet")))
    assert not after.stateReconstructionTriggered()


def test_a_table_with_many_histories_costs_no_more_questions(spark, table: str, monkeypatch) -> None:
    """Each restart of a stream leaves a transaction of its own; py4j takes a turn to the JVM for each question."""
    client, asked = spark._jvm._gateway_client, [0]
    send = client.send_command

    def counted(command: str, *arguments: Any, **named: Any) -> Any:
        asked[0] += not command.startswith("m\n")  # which gives up an object, whenever Python collects it
        return send(command, *arguments, **named)

    def questions(of: Any) -> int:
        asked[0] = 0
        of()
        return asked[0]

    log, rounds = TableLog(spark, table), 12 if SOAK else 6
    monkeypatch.setattr(client, "send_command", counted)
    append_rows(spark, log, 0)
    append, commits, files = (lambda: append_rows(spark, log, 1)), log.commits, lambda: log.files(log.latest())
    before = [questions(of) for of in (append, commits, files)]
    for number in range(rounds):
        log.fence(f"deltatag/{number}", 0)
        append_rows(spark, log, number + 2)
    after = [questions(of) for of in (lambda: append_rows(spark, log, 99), commits, files)]
    assert log.commits() == range(2 * rounds + 4)
    assert len(log.files(log.latest())) >= rounds + 3
    assert all(now <= earlier + 10 for earlier, now in zip(before, after, strict=True)), (before, after)


def test_files_are_the_same_from_a_checksum_and_from_the_log(spark, table: str) -> None:
    log = TableLog(spark, table)
    for version in range(3):
        append_rows(spark, log, version)
    spark.sql(f"DELETE FROM delta.`{table}` WHERE n = 1")
    snapshot = log.latest()
    assert snapshot.checksumOpt().get().allFiles().isDefined()
    told = log.files(snapshot)
    replayed = [json.loads(row) for row in snapshot.allFiles().toJSON().collectAsList()]

    def comparable(adds: list[dict[str, Any]]) -> list[str]:
        kept = ("path", "size", "modificationTime", "partitionValues", "deletionVector")
        rows = ({**{key: add.get(key) for key in kept}, "stats": json.loads(add["stats"])} for add in adds)
        return sorted(json.dumps(row, sort_keys=True) for row in rows)

    assert comparable(told) == comparable(replayed)


def test_the_internals_of_this_delta_lake_are_known(spark, monkeypatch) -> None:
    known = delta_entry_points.ENTRY_POINTS
    assert delta_entry_points.missing_entry_points(spark._jvm, known) == []
    for name, signatures in known.items():
        for wrong in (f"no{signatures[0]}", signatures[0].replace(")", ",int)"), "update()"):
            assert delta_entry_points.missing_entry_points(spark._jvm, {name: [wrong]}) == [f"{name}.{wrong}"]
    monkeypatch.setattr(delta_entry_points, "_tested", set())
    started = time.perf_counter()
    delta_entry_points.know_delta(spark)
    assert time.perf_counter() - started < 5
    monkeypatch.setattr(delta_entry_points, "_tested", set())
    monkeypatch.setitem(known, "Snapshot", ["version()", "files2()"])
    with pytest.raises(SessionError, match=r"Delta Lake, 4\.\d\.\d on Spark 4\.\d\.\d .*no Snapshot\.files2\(\)"):
        TableLog(spark, "/nowhere")
    for name in list(known):
        monkeypatch.setitem(known, name, ["gone()"])
    with pytest.raises(SessionError, match="has no Delta Lake"):
        TableLog(spark, "/nowhere")


OF_EVERY_CLASS = {"toString", "apply", "split"}
"""Methods of Delta Lake that are called here of other things alone."""


def test_whatever_is_called_of_delta_lake_is_tested_first(spark) -> None:
    known = delta_entry_points.ENTRY_POINTS
    tested = {signature.partition("(")[0] for each in known.values() for signature in each} | OF_EVERY_CLASS
    called = set(re.findall(r"\.(\w+)\(", Path(delta_internals.__file__).read_text()))
    for name in known:
        found = spark._jvm.py4j.reflection.ReflectionUtil.classForName(f"org.apache.spark.sql.delta.{name}")
        methods = str(spark._jvm.scala.runtime.ScalaRunTime.stringOf(found.getMethods()))
        offered = set(re.findall(r"sql\.delta\.[\w.$]+\.(\w+)\(", methods))
        assert offered & called <= tested, name
