"""A JVM that has stopped Spark and lives on is of no use: that is told as the end of Spark, and another one follows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
from pathlib import Path
from pipelines.errors import SparkEndedError
from pipelines.recovery.survival import step
from pipelines.settings.configuration import parse_configuration
from pipelines.spark.session import open_session
from pipelines.workspace import Workspace

settings = {"spark.master": "local[1]", "spark.driver.memory": "1g"}
configuration = parse_configuration({"lake": {"root": "lake"}, "spark": settings}, Path("deltatag.toml").absolute())
given = open_session(configuration) if sys.argv[1] == "given" else None
workspace = Workspace(configuration, given)
assert workspace.spark.range(3).count() == 3
try:
    with step(workspace, "tag s"):
        workspace.spark.sparkContext._jsc.sc().stop()
        workspace.spark.range(3).count()
except SparkEndedError as error:
    print(f"{error.usable}: {error}")
if given is None:
    print(workspace.spark.range(3).count())
"""


@pytest.mark.parametrize("session", ["own", "given"])
def test_spark_that_was_stopped_while_its_jvm_lives(session: str, tmp_path: Path) -> None:
    program = [sys.executable, "-c", PROGRAM, session]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    told, *after = done.stdout.splitlines()
    assert "Could not tag s: Spark " in told
    assert (told[:5], after) == (("True:", ["3"]) if session == "own" else ("False", []))
    assert ("start the session" in told) == (session == "given")


ENDLESS = """
from pathlib import Path
from pipelines.errors import SparkEndedError
from pipelines.recovery.survival import batch_time_limit, step
from pipelines.settings.configuration import parse_configuration
from pipelines.workspace import Workspace

settings = {"spark.master": "local[1]", "spark.driver.memory": "1g"}
document = {"lake": {"root": "lake"}, "rules": {"time_limit": "2 s"}, "spark": settings}
workspace = Workspace(parse_configuration(document, Path("deltatag.toml").absolute()))
loops = "id + x0 < 0"
for depth in range(6):
    loops = f"exists(sequence(1, 10000), x{depth} -> {loops})"
assert workspace.spark.range(3).count() == 3
try:
    with step(workspace, "tag s"), batch_time_limit(workspace, "tag s", (), 1):
        workspace.spark.range(1).selectExpr(loops).collect()
except SparkEndedError as error:
    print(f"{error.usable}: {error}")
print(workspace.spark.range(3).count())
"""


def test_what_takes_longer_than_its_time_limit_is_ended(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    program = [sys.executable, "-c", ENDLESS]
    done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    told, *after = done.stdout.splitlines()
    assert told.startswith("True: Could not tag s: it took longer than 2 seconds ([rules] time_limit)")
    assert after == ["3"]
