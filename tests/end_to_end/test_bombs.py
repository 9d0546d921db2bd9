"""A predicate that ends Spark stops neither the other rules of its stream nor the other streams and joins."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from pipelines.compile import compile_scopes
from pipelines.status import status
from pipelines.workspace import Workspace
from tests.cases import SOAK
from tests.java import SHORT_LIVED
from tests.lakes import make_tables, write_rules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
ROWS = 60
SETTINGS = f"""
[lake]
root = "lake"
[spark]
"spark.master" = "local[2]"
"spark.driver.memory" = "1g"
"spark.driver.extraJavaOptions" = "{SHORT_LIVED}"
"spark.sql.shuffle.partitions" = "2"
[streams.first]
source = "source"
key = ["id"]
[streams.second]
source = "source"
[streams.third]
source = "source"
key = ["id"]
[streams.left]
source = "source"
event_time = "t"
[streams.right]
source = "source"
event_time = "t"
[joins.both]
streams = ["left", "right"]
on = ["id"]
window = "1 hour"
"""


class Runs:
    """A lake with rules that this process compiles, and commands over it that let bombs in."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.folder, self.spark = folder, spark
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "DELTATAG_SCRATCH": str(folder / "scratch")}
        self.limit("10 min")
        make_tables(self.workspace())
        self.append(0)

    def workspace(self) -> Workspace:
        """The lake as it is configured now, with the session of other tests."""
        return Workspace.open(self.folder / "deltatag.toml", self.spark)

    def limit(self, time: str) -> None:
        """Bound the time of each micro-batch: a machine that is busy needs some, a bomb that never ends uses all."""
        (self.folder / "deltatag.toml").write_text(f'[rules]\ntime_limit = "{time}"\n{SETTINGS}')

    def append(self, start: int) -> None:
        """A file of rows; the third one has no key."""
        numbers = range(start, start + ROWS)
        ids = [None if number == 2 else number for number in numbers]
        columns = {"id": ids, "i": numbers, "s": ["abcabcab"] * ROWS}
        rows = pl.DataFrame(columns, schema={"id": pl.Int64, "i": pl.Int64, "s": pl.String})
        rows = rows.with_columns(t=pl.lit("2024-01-01").str.to_datetime(time_unit="us", time_zone="UTC"))
        rows.write_delta(self.folder / "source", mode="append")

    def write_rules(self, *rules: tuple[str, str, str]) -> None:
        """The whole table of rules anew."""
        write_rules(self.workspace(), rules, "overwrite")
        assert [result.error for result in compile_scopes(self.workspace()) if result.error] == []

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command's end."""
        program = [sys.executable, str(ROOT / "tests" / "end_to_end" / "bombs.py"), *arguments]
        done = subprocess.run(
            program, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=900
        )
        for raw in ("Connection refused", "not supposed to happen", "Traceback", "py4j", "Py4J"):
            assert raw not in done.stdout + done.stderr, done.stdout + done.stderr
        return done

    def read(self, name: str) -> pl.DataFrame:
        """A table of the lake."""
        return pl.read_delta(self.folder / "lake" / name)

    def runs(self, scope: str) -> list[dict]:
        """The micro-batches of a scope."""
        return self.read("runs").filter(pl.col("scope") == scope).sort("batch").to_dicts()

    def of(self, i: int, bomb: str, low: str) -> list[str]:
        """The rules of a row of those two: where one part of the bomb's is unknown, the other one decides."""
        return [*([bomb] if i == 50 else []), *([low] if i < 30 else [])]

    def require(self, stream: str, bomb: str, rules: Callable[[int], list[str]]) -> None:
        """The stream's one micro-batch has every row, with these rules, and the bomb's errors."""
        tagged = {row["i"]: row["rule_ids"] for row in self.read(f"{stream}_tagged").to_dicts()}
        assert tagged == {i: rules(i) for i in range(ROWS) if i != 2}
        (batch,) = self.runs(stream)
        assert batch["errors"] == {bomb: ROWS - 1}
        assert (batch["state"], batch["rows"], batch["quarantined"]) == ("done", ROWS, 1)
        assert self.read(f"quarantine_{stream}").height == 1
        assert self.read(f"{stream}_matches").height == sum(map(len, tagged.values()))


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Runs:
    return Runs(tmp_path, spark)


GOOD = [("low", "first", "i < 30"), ("backwards", "first", "reverse(s) LIKE 'bacb%' AND i < 10")]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("bomb", ["oom", pytest.param("stack", marks=pytest.mark.soak)])
def test_other_rules_and_streams_are_tagged(lake: Runs, bomb: str) -> None:
    """One bomb ends the JVM of one stream; another, of another stream, never ends, until its time is up: that one in
    `make soak`, since tests/end_to_end/test_stopped.py has work beyond its time limit too."""
    others = [("all", "second", "i >= 0"), ("few", "third", "i < 30")]
    endless = ("endless", "third", "initcap(concat(s, 'endless')) = 'x' OR i = 50")
    lake.write_rules(
        *GOOD,
        *others,
        ("bomb", "first", f"initcap(concat(s, '{bomb}')) = 'x' OR i = 50"),
        *([endless] if SOAK else []),
    )
    lake.limit("25 s" if SOAK else "10 min")
    done = lake.command("tag", "first", "second", "third")
    lake.limit("10 min")
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if "micro-batch 0" in line]
    assert any("bomb" in line for line in told)
    assert any("endless" in line for line in told) == SOAK
    lake.require("first", "bomb", lambda i: [*(["backwards"] if i < 10 else []), *lake.of(i, "bomb", "low")])
    if SOAK:
        lake.require("third", "endless", lambda i: lake.of(i, "endless", "few"))
    assert lake.read("second_tagged")["rule_ids"].to_list() == [["all"]] * ROWS
    first, second, third, *_ = status(lake.workspace())
    assert "bomb" in " ".join(first.notices) and not second.notices
    assert ("endless" in " ".join(third.notices)) == SOAK
    # the rules are taken back: nothing stands in the way of the next rows, in `make soak` through Spark too
    lake.write_rules(*(GOOD if SOAK else GOOD[:1]), *others)
    lake.append(ROWS)
    assert lake.command("tag", "first", *(["third"] if SOAK else [])).returncode == 0
    for stream in ("first", "third") if SOAK else ("first",):
        assert not lake.runs(stream)[1]["errors"]
        assert lake.read(f"{stream}_tagged").height == 2 * ROWS - 1


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_joins_go_on(lake: Runs) -> None:
    lake.write_rules(
        ("bomb", "both", "initcap(concat(left.s, 'oom')) = 'x' OR left.i = 50"),
        ("low", "both", "left.i < 30 AND right.i < 20"),
    )
    done = lake.command("join", "both")
    assert done.returncode == 0, done.stderr
    assert "bomb" in done.stdout and "micro-batch 0" in done.stdout
    joined = {row["left"]["i"]: row["rule_ids"] for row in lake.read("both_tagged").to_dicts()}
    assert joined == {i: ["low"] if i < 20 else ["bomb"] for i in [*range(20), 50] if i != 2}
    (batch,) = lake.runs("both")
    assert list(batch["errors"]) == ["bomb"] and batch["state"] == "done"
