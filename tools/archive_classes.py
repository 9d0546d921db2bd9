"""Creates the class data archive of Spark: a JVM writes it after it has done what every run does.

Run by `tools/setup.py` with the environment's Python. The archive is optional: without it each start takes longer.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from pyspark import SparkContext

from pipelines.compile import compile_scopes
from pipelines.join import join_streams
from pipelines.settings.configuration import parse_configuration
from pipelines.spark.class_archive import QUIET, archive_folder, archive_name
from pipelines.spark.runtime import find_java
from pipelines.sql import run_statement
from pipelines.table_definitions import LAKE_TABLES
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace

NEWEST_JAVA = 17
"""Later Javas ignore any archive, because Spark's launcher puts a folder on the class path."""
DUMP_SECONDS = 300
RULES = """INSERT INTO rules (rule_id, scope, expression) VALUES
    ('high', 's', 'x > 50'), ('named', 's', "name LIKE '%7' OR x IN (1, 2)"), ('both', 'j', 's.x > 90 AND other.x > 5')
"""


def archive() -> None:
    """Create the archive for the installed Java, if that Java can use it; all other archives are deleted."""
    java, folder = find_java(), archive_folder()
    shutil.rmtree(folder, ignore_errors=True)  # a JVM that uses an archive does not write one
    if java.version > NEWEST_JAVA:
        return
    with tempfile.TemporaryDirectory(prefix="deltatag-") as name:
        made = Path(name) / "spark.jsa"
        run_once(Path(name) / "lake", f"-XX:ArchiveClassesAtExit={made} {QUIET}")
        folder.mkdir(parents=True)
        shutil.move(made, folder / archive_name(java, made.stat().st_size))


def run_once(folder: Path, options: str) -> None:
    """Edit, compile, tag and join in a new lake, then stop the JVM and wait until it has written its archive."""
    streams = {name: {"source": f"lake/{name}", "key": ["id"], "event_time": "t"} for name in ("s", "other")}
    document = {
        "lake": {"root": "lake"},
        "spark": {"spark.driver.extraJavaOptions": options, "spark.sql.shuffle.partitions": "2"},
        "streams": {**streams, "s": {**streams["s"], "checks": {"sane": "x >= 0"}}},
        "joins": {"j": {"streams": ["s", "other"], "on": ["id"], "window": "1 hour"}},
    }
    configuration = parse_configuration(document, folder / "deltatag.toml")
    workspace = Workspace(configuration, quiet=True)
    for name in LAKE_TABLES:
        workspace.lake.create(name)
    append(workspace)
    run_statement(workspace, RULES)
    compile_scopes(workspace)
    for _ in range(2):
        tag_stream(workspace, "s")
        join_streams(workspace, "j")
        append(workspace)
    context = SparkContext._active_spark_context
    gateway = SparkContext._gateway
    assert context is not None and gateway is not None
    context.stop()
    gateway.proc.stdin.close()
    gateway.proc.wait(DUMP_SECONDS)


def append(workspace: Workspace) -> None:
    """Append a few rows to the sources of both streams."""
    rows = 200
    table = pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "x": pa.array([number % 100 for number in range(rows)], pa.int64()),
            "name": [f"n{number}" for number in range(rows)],
            "t": pa.array([number * 1_000_000 for number in range(rows)], pa.timestamp("us", "UTC")),
        }
    )
    for stream in workspace.configuration.streams.values():
        write_deltalake(stream.source, table, mode="append")
