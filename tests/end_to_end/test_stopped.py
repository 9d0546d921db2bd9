"""A JVM that has stopped Spark and lives on is of no use: that is told as the end of Spark, and another one follows.
So it does behind work that takes longer than its time limit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.java import SHORT_LIVED

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
from pathlib import Path
from pipelines.errors import SparkEndedError
from pipelines.recovery.jvm_restart import batch_time_limit, step
from pipelines.settings.configuration import parse_configuration
from pipelines.spark.session import open_session
from pipelines.workspace import Workspace

settings = {"spark.master": "local[1]", "spark.driver.memory": "1g", "spark.driver.extraJavaOptions": sys.argv[1]}
document = {"lake": {"root": "lake"}, "rules": {"time_limit": "2 s"}, "spark": settings}
configuration = parse_configuration(document, Path("deltatag.toml").absolute())

def stop_spark(workspace):
    assert workspace.spark.range(3).count() == 3
    try:
        with step(workspace, "tag s"):
            workspace.spark.sparkContext._jsc.sc().stop()
            workspace.spark.range(3).count()
    except SparkEndedError as error:
        print(f"{error.usable}: {error}")

workspace = Workspace(configuration)
stop_spark(workspace)
print(workspace.spark.range(3).count())
loops = "id + x0 < 0"
for depth in range(6):
    loops = f"exists(sequence(1, 10000), x{depth} -> {loops})"
try:
    with step(workspace, "tag s"), batch_time_limit(workspace, "tag s", (), 1):
        workspace.spark.range(1).selectExpr(loops).collect()
except SparkEndedError as error:
    print(f"{error.usable}: {error}")
print(workspace.spark.range(3).count())
stop_spark(Workspace(configuration, open_session(configuration)))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The lines that the program prints: of a workspace that starts its JVMs, and of one that is given the last."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    program = [sys.executable, "-c", PROGRAM, SHORT_LIVED]
    folder = tmp_path_factory.mktemp("stopped")
    done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_another_jvm_follows_one_that_was_stopped_and_one_that_took_longer_than_its_limit(told: list[str]) -> None:
    stopped, again, ended, once_more, _ = told
    assert stopped.startswith("True:") and "Could not tag s: Spark " in stopped
    assert "start the session" not in stopped
    assert (again, once_more) == ("3", "3")
    assert ended.startswith("True: Could not tag s: it took longer than 2 seconds ([rules] time_limit)")


def test_a_given_session_that_was_stopped_while_its_jvm_lives(told: list[str]) -> None:
    stopped = told[-1]
    assert stopped.startswith("False") and "Could not tag s: Spark " in stopped
    assert "start the session" in stopped
