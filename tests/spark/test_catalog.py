"""A lake in a catalog: Spark's session catalog over a Hive metastore, in a process of its own, as a JVM has one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pipelines.lake.lake import create_statement
from pipelines.table_definitions import LAKE_TABLES
from tests.cases import SOAK
from tests.java import SHORT_LIVED

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = """
[lake]
catalog = "{catalog}"
[spark]
"spark.master" = "local[2]"
"spark.driver.memory" = "1g"
"spark.driver.extraJavaOptions" = "{java}"
"spark.sql.shuffle.partitions" = "2"
"spark.sql.codegen.wholeStage" = "false"
"spark.sql.codegen.factoryMode" = "NO_CODEGEN"
"spark.sql.catalogImplementation" = "hive"
"spark.sql.warehouse.dir" = "{folder}/warehouse"
"spark.local.dir" = "{folder}/local"
"spark.hadoop.javax.jdo.option.ConnectionURL" = "jdbc:derby:;databaseName={folder}/metastore;create=true"
[streams.s]
source = "raw.source"
key = ["id"]
event_time = "t"
checks = {{ sane = "x < 9" }}
[streams.u]
source = "raw.other"
event_time = "t"
[joins.j]
streams = ["s", "u"]
on = ["id"]
window = "1 hour"
lateness = "1 hour"
"""
CODE = """
import sys
from pathlib import Path
from pipelines.compile import compile_scopes
from pipelines.settings.configuration import load_configuration
from pipelines.initialise import initialise
from pipelines.due import join_is_due
from pipelines.join import join_streams
from pipelines.lint import lint_scopes
from pipelines.spark.session import open_session
from pipelines.sql import statement_result
from pipelines.status import status
from pipelines.due import tag_is_due
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace

path = Path(sys.argv[1])
workspace = Workspace(load_configuration(path))
spark = workspace.spark
for database in ("raw", "tags"):
    spark.sql(f"CREATE DATABASE {database}")
for name in ("source", "other"):
    spark.sql(f"CREATE TABLE raw.{name} USING delta AS SELECT id, id AS x, timestamp'2024-01-01' AS t FROM range(10)")
made = initialise(path, None, lambda _: workspace)
assert made == ["rules", "rule_rejects", "rule_index", "runs"], made
assert initialise(path, None, lambda _: workspace) == []

def sql(text):
    return statement_result(workspace, text).to_pylist()

values = "('a', 's', 'x > 6'), ('b', 's', 'nosuch'), ('c', 'j', 's.x = 7')"
sql(f"INSERT INTO rules (rule_id, scope, expression) VALUES {values}")
assert [(each.error, each.rejects) for each in compile_scopes(workspace)] == [(None, 1), (None, 0), (None, 0)]
assert tag_is_due(workspace, "s") and join_is_due(workspace, "j")
result = tag_stream(workspace, "s")
assert (result.rows, result.matches, result.quarantined) == (10, 2, 1), result
assert sql("SELECT id, rule_ids FROM s_tagged WHERE size(rule_ids) > 0 ORDER BY id") == [
    {"id": 7, "rule_ids": ["a"]}, {"id": 8, "rule_ids": ["a"]}
]
assert sql("SELECT count(*) AS n FROM s_matches") == [{"n": 2}]
assert sql("SELECT id FROM quarantine_s") == [{"id": 9}]
assert join_streams(workspace, "j").joined == 1
assert sql("SELECT u.x FROM j_tagged") == [{"x": 7}]
assert sql("SELECT rule_id, error FROM rule_rejects") == [{"rule_id": "b", "error": "UNKNOWN_COLUMN"}]
assert sql("SELECT count(*) AS n FROM runs") == [{"n": 2}]
assert sql("SELECT count(*) AS n FROM s") == [{"n": 10}]
sql("INSERT INTO s VALUES (8, 8, timestamp'2024-01-02')")
found = {each.scope: each for each in status(workspace)}
assert [each.problem for each in found.values()] == [None, None, None], found
assert (found["s"].tagged_version, found["s"].lag_versions) == (0, 1), found["s"]
result = tag_stream(workspace, "s")
assert (result.rows, result.matches) == (1, 1)
assert tag_stream(workspace, "s").batches == 0
if sys.argv[2] != "soak":
    print("all in order")
    sys.exit()
assert tag_stream(workspace, "s", restart=True).rows == 11
assert sql("SELECT count(*) AS n FROM s_tagged") == [{"n": 10}]
sql("UPDATE rules SET expression = 'x > 7' WHERE rule_id = 'a'")
compile_scopes(workspace)
lint_scopes(workspace)
sql("OPTIMIZE s_matches")
print("all in order")
"""


def test_a_lake_in_a_catalog(tmp_path: Path) -> None:
    path = tmp_path / "deltatag.toml"
    path.write_text(CONFIGURATION.format(catalog="tags", folder=tmp_path, java=SHORT_LIVED))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DELTATAG_SCRATCH": str(tmp_path / "scratch")}
    run = subprocess.run(
        [sys.executable, "-c", CODE, str(path), "soak" if SOAK else "test"],
        capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=600, check=False,
    )  # fmt: skip
    assert run.stdout.endswith("all in order\n"), run.stdout + run.stderr[-4000:]


def test_statements_that_make_tables_are_sql(spark) -> None:
    for name, table in LAKE_TABLES.items():
        statement = create_statement(f"made.{name}", table)
        plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(statement)
        columns = plan.columns()
        comments = [columns.apply(i).comment().get() for i in range(columns.size())]
        assert comments == [column.comment for column in table.columns]
