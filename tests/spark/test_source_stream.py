"""A stream that reads what another one has tagged: its tables are those of a stream that reads the source itself."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pipelines.compile import compile_scopes
from pipelines.due import tag_is_due
from pipelines.errors import NotImpliedError, SourceChangedError, SourceError
from pipelines.lake.runs import batches
from pipelines.run import OpenGates, run_due
from pipelines.status import status
from pipelines.tag import tag_stream
from pipelines.writing import spark_output
from tests.cases import soak_rest
from tests.tables import columns_of, rows_of

BASE: dict[str, Any] = {"key": ["id"], "event_time": "t", "output": "matched", "checks": {"sane": "x > -50"}}
STREAMS: dict[str, Any] = {
    "late": {**BASE, "source_stream": "all"},
    "all": {**BASE, "source": "lake/source"},
}
DIRECT: dict[str, Any] = {"direct": {**BASE, "source": "lake/source"}}
ORIGIN = {
    "low": "x < 20",
    "high": "x >= 70",
    "named": "name LIKE 'n%' AND x > 60",
    "sound": "soundex(name) = 'N000' AND x < 30",
}
READER = {
    "both": "x < 10 OR x > 80",
    "n1": "name = 'n1' AND x BETWEEN 65 AND 90",
    "s": "soundex(name) = 'N000' AND x BETWEEN 2 AND 29",
}


class Lake:
    """A workspace with the streams; `direct`, where it is one, always has the rules of `late`."""

    def __init__(self, workspace, add_rules) -> None:
        self.workspace, self._add_rules = workspace, add_rules
        self.is_local = workspace.configuration.lake.runner == "local"

    def set_rules(self, origin: dict[str, str], reader: dict[str, str]) -> None:
        """Replace all rules, but for those that the runner cannot evaluate; ids begin with the scope's name."""
        self.workspace.lake.delta("rules").delete()
        scopes = {name: origin if name == "all" else reader for name in self.workspace.configuration.streams}
        listed = [
            (f"{scope}:{name}", scope, text)
            for scope, rules in scopes.items()
            for name, text in rules.items()
            if not (self.is_local and "soundex" in text)
        ]
        self._add_rules(self.workspace, *listed)

    def append(self, start: int, stop: int) -> None:
        first, numbers = datetime(2024, 1, 1, tzinfo=UTC), range(start, stop)
        columns = {
            "id": pa.array([None if n % 20 == 7 else n for n in numbers], pa.int64()),
            "x": pa.array([-100 if n % 30 == 9 else n % 97 for n in numbers], pa.int64()),
            "name": [None if n % 11 == 0 else f"n{n % 5}" for n in numbers],
            "t": pa.array([first + timedelta(seconds=n) for n in numbers], pa.timestamp("us", "UTC")),
            "place": [{"city": n % 3, "seq": n} for n in numbers],
        }
        write_deltalake(self.workspace.configuration.stream("all").source, pa.table(columns), mode="append")

    def others(self, new_workspace, streams: dict[str, Any]) -> Any:
        """A workspace of the same lake and runner over other streams."""
        return new_workspace(streams, runner="local" if self.is_local else "auto", spark=not self.is_local)

    def run(self) -> dict[str, str]:
        """One run of everything; gives its failures."""
        return run_due(self.workspace, OpenGates()).failures

    def rows(self, stream: str) -> Counter[str]:
        """The stream's tagged rows, by their columns and the rules that they satisfy."""
        names = ("id", "x", "name", "t", "place", "rule_ids")
        found = columns_of(self.workspace, f"{stream}_tagged", *names)
        return Counter(repr(row).replace(f"{stream}:", "") for row in found)

    def pairs(self, stream: str) -> Counter[str]:
        pairs = columns_of(self.workspace, f"{stream}_matches", "rule_id", "id", "t")
        return Counter(repr(row).replace(f"{stream}:", "") for row in pairs)

    def read(self, name: str) -> list[dict[str, Any]]:
        return rows_of(self.workspace, name)

    def assert_exact(self, first: int | None = None) -> None:
        """`late` has, each row once, what is found in (the first rows of) the source by its first rules: by Spark's own
        WHERE, or by that of Polars where there is no Spark."""
        source = self.workspace.configuration.stream("all").source
        where = "id IS NOT NULL AND x > -50" + ("" if first is None else f" AND id < {first}")
        names = ("id", "x", "name", "t", "place")
        kept: dict[str, set[int]] = {}
        for name, text in sorted(READER.items()):
            if not self.is_local:
                query = f"SELECT id FROM delta.`{source}` WHERE {where} AND ({text})"
                kept[name] = {row["id"] for row in self.workspace.spark.sql(query).collect()}
            elif "soundex" not in text:
                found = pl.read_delta(source).filter(pl.sql_expr(f"{where} AND ({text})"))
                kept[name] = set(found["id"])
        expected: Counter[str] = Counter()
        for row in pl.read_delta(source).to_arrow().to_pylist():
            ids = [name for name, of in kept.items() if row["id"] in of]
            if ids:
                expected[repr((*(row[name] for name in names), ids))] += 1
        assert expected and self.rows("late") == expected
        assert sum(self.pairs("late").values()) == sum(map(len, kept.values()))


THROUGH_SPARK = pytest.mark.parametrize("runner", ["auto"])


@pytest.fixture(params=["local", pytest.param("auto", marks=pytest.mark.soak)])
def runner(request) -> str:
    """Who tags: this process, or Spark."""
    return request.param


@pytest.fixture
def lake(new_workspace, add_rules, runner: str) -> Lake:
    made = Lake(new_workspace(STREAMS, runner=runner, spark=runner != "local"), add_rules)
    made.append(0, 100)
    made.set_rules(ORIGIN, READER)
    return made


# the other tests here compare with the source too: test_a_killed_run_is_repeated_exactly_whatever_was_edited by Spark
@pytest.mark.soak
def test_rows_and_tags_are_those_of_the_source_over_runs_and_edits(new_workspace, add_rules) -> None:
    lake = Lake(new_workspace({**STREAMS, **DIRECT}), add_rules)
    lake.append(0, 100)
    lake.set_rules(ORIGIN, READER)
    assert lake.run() == {}  # one run from nothing compiles and tags all
    (batch,) = batches(lake.workspace.lake, "late")
    assert batch.rows == len(lake.read("all_tagged")) < 80
    assert lake.run() == {} and not tag_is_due(lake.workspace, "late")
    # other rules of the origin that imply the reader's as well, together
    lake.set_rules({"rest": "x <= 90 OR name IS NULL", "top": "x > 90", "sound": "soundex(name) = 'N000'"}, READER)
    lake.append(100, 160)
    assert lake.run() == {}
    lake.set_rules({"any": "TRUE"}, {**READER, "more": "x = 33"})
    lake.append(230, 340)
    assert lake.run() == {}
    for stream in ("late", "direct"):
        assert any("'more'" in row for row in lake.rows(stream))
    assert lake.rows("late") == lake.rows("direct")
    assert lake.pairs("late") == lake.pairs("direct")
    assert [*lake.read("late_tagged")[0]] == [*lake.read("direct_tagged")[0]]


# tests/unit/pipelines/test_origin.py has it without Spark, but for what only may be implied
@pytest.mark.soak
@THROUGH_SPARK
def test_a_rule_of_the_reader_that_is_not_implied_is_refused_and_the_others_go_on(lake: Lake) -> None:
    assert lake.run() == {}
    lake.set_rules(ORIGIN, {**READER, "wide": "x > 30", "odd": "soundex(name) = 'M000'"})
    lake.append(100, 200)
    assert lake.run() == {}
    refused = {row["rule_id"]: row["message"] for row in lake.read("rule_rejects") if row["error"] == "NOT_IMPLIED"}
    assert set(refused) == {"late:wide", "late:odd"} and "it could not be shown" in refused["late:odd"]
    assert "source in place of source_stream" in refused["late:wide"]
    lake.assert_exact()
    # rules that were compiled stop the reader once an edit of the origin's rules takes rows from them
    lake.set_rules({"low": "x < 20"}, READER)
    lake.append(200, 220)
    failures = lake.run()
    assert set(failures) == {"late"} and "rules of late are not implied" in failures["late"]
    standing = {each.scope: each for each in status(lake.workspace)}
    assert (standing["all"].lag_versions, standing["late"].lag_versions) == (0, 1)
    assert standing["late"].source_version == lake.workspace.lake.version("all_tagged")


@pytest.mark.parametrize("matching", soak_rest(1, [True, False]))
def test_rules_of_the_origin_that_leave_rows_out_stop_the_reader(lake: Lake, matching: bool) -> None:
    assert lake.run() == {}
    # rows are tagged, or all left out, by rules that do not imply the reader's
    lake.set_rules({"low": "x < 20"} if matching else {"none": "x < -1000"}, READER)
    lake.append(100, 200)
    failures = lake.run()
    assert set(failures) == {"late"} and "late:both" in failures["late"]
    # rules that imply them come too late for the rows that were left out
    lake.set_rules(ORIGIN, READER)
    lake.append(200, 240)
    failures = lake.run()
    assert set(failures) == {"late"} and "late:both" in failures["late"]
    assert "deltatag tag all --restart, then deltatag tag late --restart" in failures["late"]
    assert len(batches(lake.workspace.lake, "late")) == 1
    # a reader that begins with the table as it is meets the same rows
    with pytest.raises(NotImpliedError, match="late:both"):
        tag_stream(lake.workspace, "late", restart=True)
    if matching:
        tag_stream(lake.workspace, "all", restart=True)
        tag_stream(lake.workspace, "late", restart=True)
        lake.assert_exact()


def test_a_reader_narrowed_to_what_the_origin_kept_goes_on(lake: Lake) -> None:
    assert lake.run() == {}
    lake.set_rules({"low": "x < 20"}, READER)
    lake.append(100, 200)
    assert set(lake.run()) == {"late"}
    lake.set_rules({"low": "x < 20"}, {"few": "x < 5", "n1": "name = 'n1' AND x < 19"})
    assert lake.run() == {}
    *_, second = batches(lake.workspace.lake, "late")
    kept = [row for row in lake.read("all_tagged") if row["place"]["seq"] >= 100]
    assert second.rows == len(kept)
    few, n1 = (row["x"] < 5 for row in kept), (row["name"] == "n1" and row["x"] < 19 for row in kept)
    assert second.matches == sum(few) + sum(n1) > 4


class DiedError(BaseException):
    """Stands for the end of the process: no `except Exception` may catch it."""


@THROUGH_SPARK
def test_a_killed_run_is_repeated_exactly_whatever_was_edited(lake: Lake, monkeypatch) -> None:
    enter = spark_output.Output._enter

    def enter_then_die(self, name, *arguments):
        enter(self, name, *arguments)
        if name == "late_matches":
            raise DiedError

    compile_scopes(lake.workspace)
    tag_stream(lake.workspace, "all")
    monkeypatch.setattr(spark_output.Output, "_enter", enter_then_die)
    with pytest.raises(DiedError):
        tag_stream(lake.workspace, "late")
    monkeypatch.undo()
    (planned,) = batches(lake.workspace.lake, "late")
    assert planned.state == "planned"
    lake.set_rules({"none": "x < -1000"}, {"none": "x < -2000"})
    lake.append(100, 150)
    assert lake.run() == {}
    first, second = batches(lake.workspace.lake, "late")
    assert dict(first.plan) == dict(planned.plan) and first.fingerprint != second.fingerprint
    lake.assert_exact(100)


def test_a_restart_of_the_origin_stops_the_reader_with_the_way_out(lake: Lake) -> None:
    assert lake.run() == {}
    tag_stream(lake.workspace, "all", restart=True)
    with pytest.raises(SourceChangedError, match=r"deltatag tag all --restart writes it again.*tag late --restart"):
        tag_stream(lake.workspace, "late")
    tag_stream(lake.workspace, "late", restart=True)
    lake.assert_exact()


def test_rows_that_the_origin_refused_by_an_earlier_check_are_missed(lake: Lake, new_workspace, add_rules) -> None:
    assert lake.run() == {}
    # the origin refuses rows that are not sane; then neither it nor the reader does
    without = {name: {**stream, "checks": {}} for name, stream in STREAMS.items()}
    later = Lake(lake.others(new_workspace, without), add_rules)
    later.append(100, 140)
    assert later.run() == {}
    with pytest.raises(SourceError, match="refused rows by the check sane, which late does not have"):
        tag_stream(later.workspace, "late", restart=True)


def test_an_origin_that_keeps_all_rows_needs_to_imply_nothing(lake: Lake, new_workspace, add_rules) -> None:
    streams = {name: {**stream, "output": "all"} for name, stream in STREAMS.items()}
    whole = Lake(lake.others(new_workspace, {**streams, "late": STREAMS["late"]}), add_rules)
    whole.set_rules({"none": "x < -1000"}, READER)
    assert whole.run() == {}
    whole.assert_exact()


def test_before_the_origin_has_begun_nothing_is_due(lake: Lake, new_workspace) -> None:
    assert not tag_is_due(lake.workspace, "late")
    compile_scopes(lake.workspace)
    with pytest.raises(SourceError, match="Run first: deltatag tag all"):
        tag_stream(lake.workspace, "late")
