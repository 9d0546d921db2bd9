"""`deltatag sql`: rules are edited with plain SQL, and everything is queried by name."""

from __future__ import annotations

import datetime

import pytest

from pipelines.authoring.versions import history
from pipelines.compile import compile_scopes
from pipelines.errors import StatementError
from pipelines.settings.configuration import parse_configuration
from pipelines.sql import register_tables, run_statement, statement_result
from pipelines.status import status
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from tests.cases import soak_rest
from tests.lakes import make_tables

STREAMS = {"flights": {"source": "lake/flights", "key": ["id"]}}


@pytest.fixture
def workspace(new_workspace):
    found = new_workspace(STREAMS)
    rows = found.spark.range(0, 10, 1, 1).selectExpr("id", "id * 2 AS delay")
    rows.write.format("delta").save(found.configuration.streams["flights"].source)
    return found


def sql(workspace, statement: str) -> list[dict]:
    return statement_result(workspace, statement).to_pylist()


# tests/spark/test_local_sql.py::test_edits executes each of them by Spark too
@pytest.mark.soak
def test_rules_are_edited_with_plain_sql_from_spark_and_delta_rs(workspace) -> None:
    sql(workspace, "INSERT INTO rules (rule_id, scope, expression) VALUES ('a', 'flights', 'delay > 4')")
    sql(workspace, "INSERT INTO rules (rule_id, scope, expression) VALUES ('b', 'flights', 'delay > 6')")
    sql(workspace, "UPDATE rules SET expression = 'delay > 8' WHERE rule_id = 'b'")
    sql(
        workspace,
        "MERGE INTO rules AS r USING (SELECT 'c' AS i, 'delay = 0' AS e) AS n ON r.rule_id = n.i "
        "WHEN MATCHED THEN UPDATE SET expression = n.e "
        "WHEN NOT MATCHED THEN INSERT (rule_id, scope, expression) VALUES (n.i, 'flights', n.e)",
    )
    sql(workspace, "DELETE FROM rules WHERE rule_id = 'a'")
    workspace.lake.delta("rules").update(predicate="rule_id = 'c'", new_values={"enabled": False})
    rows = sql(workspace, "SELECT rule_id, expression, enabled FROM rules ORDER BY 1")
    assert rows == [
        {"rule_id": "b", "expression": "delay > 8", "enabled": None},
        {"rule_id": "c", "expression": "delay = 0", "enabled": False},
    ]
    assert [result.rules for result in compile_scopes(workspace)] == [1]
    tag_stream(workspace, "flights")
    query = "SELECT f.id FROM flights f JOIN flights_matches m USING (id) WHERE m.rule_id = 'b' ORDER BY f.id"
    assert [row["id"] for row in sql(workspace, query)] == [5, 6, 7, 8, 9]
    assert sql(workspace, "SELECT count(*) AS n FROM flights_tagged WHERE array_contains(rule_ids, 'b')") == [{"n": 5}]


def test_results_of_every_type(workspace) -> None:
    (row,) = sql(
        workspace,
        "SELECT parse_json('{\"a\":1}') AS v, INTERVAL '1-2' YEAR TO MONTH AS y, date'2024-02-29' AS d, 1 AS x, "
        "2 AS x2, map('k', array(1)) AS m, CAST(NULL AS VOID) AS n",
    )
    assert row["v"] == '{"a":1}'
    assert row["d"] == datetime.date(2024, 2, 29)
    assert row["m"] == [("k", [1])]


def test_names_are_listed(workspace) -> None:
    names = {row["tableName"] for row in sql(workspace, "SHOW TABLES")}
    assert {"rules", "rule_rejects", "rule_index", "runs", "flights"} <= names


def another_lake(workspace, root: str, streams=STREAMS) -> Workspace:
    document = {"lake": {"root": root}, "streams": streams}
    found = Workspace(parse_configuration(document, workspace.configuration.path), workspace.spark)
    make_tables(found)
    return found


def test_lakes_over_one_metastore_do_not_share_names(workspace, add_rules) -> None:
    other = another_lake(workspace, "other's lake", {})
    register_tables(workspace)
    register_tables(other)
    workspace.spark.sql("INSERT INTO rules (rule_id, scope, expression) VALUES ('a', 'flights', 'TRUE')")
    assert [lake.arrow("rules").num_rows for lake in (workspace.lake, other.lake)] == [1, 0]
    assert "flights" not in {row["tableName"] for row in sql(other, "SHOW TABLES")}
    with pytest.raises(StatementError, match="Tables that have a name are: rules"):
        sql(other, "SELECT * FROM flights")


def test_a_name_is_given_up_only_where_it_means_another_table(workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    query = "SELECT count(*) AS n FROM flights, (SELECT count(*) FROM rules)"
    assert sql(workspace, query) == [{"n": 10}]
    same = another_lake(workspace, "lake")
    statements = []
    run = same.spark.sql
    monkeypatch.setattr(same.spark, "sql", lambda text: statements.append(text) or run(text))
    assert sql(same, query) == [{"n": 10}]
    assert not [text for text in statements if text.startswith(("DROP", "CREATE TABLE"))]

    workspace.spark.range(7).write.format("delta").save(str(workspace.configuration.path.parent / "moved"))
    moved = another_lake(workspace, "lake", {"flights": {"source": "moved"}})
    assert sql(moved, query) == [{"n": 7}]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT * FROM flights_tagged", "deltatag tag flights"),
        ("SELECT * FROM nothing", "Tables that have a name are: rules"),
        ("SELEC 1", "PARSE_SYNTAX_ERROR"),
        ("SELECT 1 / 0", "DIVIDE_BY_ZERO"),
        ("SELECT nope FROM rules", "nope"),
    ],
)
def test_a_statement_that_fails_says_why(workspace, statement: str, message: str) -> None:
    with pytest.raises(StatementError, match=message) as raised:
        sql(workspace, statement)
    assert "JVM stacktrace" not in str(raised.value) and "\n\n" not in str(raised.value)
    assert "Project [" not in str(raised.value)


def test_a_mark_stands_below_what_is_wrong(workspace) -> None:
    with pytest.raises(StatementError) as raised:
        sql(workspace, "SELECT *\nFORM rules WHERE")
    lines = str(raised.value).splitlines()
    assert "PARSE_SYNTAX_ERROR" in lines[0] and any(set(line) == {"-", "^"} or "^^^" in line for line in lines[1:])


def test_optimize_gives_its_measures(workspace, add_rules) -> None:
    add_rules(workspace, ("a", "flights", "delay > 4"))
    compile_scopes(workspace)
    tag_stream(workspace, "flights")
    for table in ("flights", "flights_matches"):
        (row,) = sql(workspace, f"OPTIMIZE {table}")
        assert row["metrics"]["numFilesAdded"] >= 0


def test_timestamps_are_in_the_time_zone_of_rules(workspace) -> None:
    document = {"lake": {"root": "lake"}, "rules": {"time_zone": "Europe/Berlin"}}
    from pipelines.spark.session import open_session

    configuration = parse_configuration(document, workspace.configuration.path)
    there = Workspace(configuration, open_session(configuration))
    try:
        instant = "TIMESTAMP'2024-07-01 12:00:00'"
        (row,) = sql(
            there,
            f"SELECT {instant} AS ts, hour({instant}) AS h, array({instant}) AS a, map('k', {instant}) AS m, "
            f"named_struct('x', {instant}) AS s, TIMESTAMP_NTZ'2024-07-01 12:00:00' AS n",
        )
    finally:
        workspace.spark.conf.set("spark.sql.session.timeZone", workspace.configuration.rules.time_zone)
    assert row["ts"].isoformat() == "2024-07-01T12:00:00+02:00" and row["h"] == 12
    assert row["a"] == [row["ts"]] and row["s"] == {"x": row["ts"]} and dict(row["m"]) == {"k": row["ts"]}
    assert row["n"] == datetime.datetime(2024, 7, 1, 12)


def test_status_tells_what_is_due_and_how_far_behind(workspace) -> None:
    (before,) = status(workspace)
    assert (before.compile_due, before.index_version, before.lag_rows, before.last_state) == (True, None, 10, None)
    compile_scopes(workspace)
    tag_stream(workspace, "flights")
    (after,) = status(workspace)
    assert (after.compile_due, after.lag_versions, after.lag_rows, after.last_rows) == (False, 0, 0, 10)
    rows = workspace.spark.range(10, 17).selectExpr("id", "id * 2 AS delay")
    rows.write.format("delta").mode("append").save(workspace.configuration.streams["flights"].source)
    sql(workspace, "INSERT INTO rules (rule_id, scope, expression) VALUES ('a', 'flights', 'delay > 4')")
    (behind,) = status(workspace)
    assert (behind.compile_due, behind.rules_version, behind.index_version) == (True, 1, 0)
    assert (behind.lag_versions, behind.lag_rows, behind.tagged_version) == (1, 7, 0)


@pytest.mark.parametrize("name", soak_rest(1, ["`my table`", "mine", "default.mine"]))
@pytest.mark.parametrize(
    "made",
    ["CREATE TABLE {} AS SELECT 1 AS a", "CREATE OR REPLACE TABLE {} (a INT)", "CREATE VIEW {} AS SELECT 1 AS a"],
)
def test_what_would_be_gone_with_the_command_is_refused(new_workspace, name: str, made: str) -> None:
    with pytest.raises(StatementError, match="would be lost"):
        run_statement(new_workspace(), made.format(name))


def test_a_table_with_a_place_stays(new_workspace, tmp_path) -> None:
    run_statement(new_workspace(), f"CREATE TABLE delta.`{tmp_path}/mine` USING delta AS SELECT 1 AS a")
    run_statement(
        new_workspace(), f"CREATE TABLE placed_mine USING delta LOCATION '{tmp_path}/placed' AS SELECT 2 AS a"
    )
    run_statement(new_workspace(), "CREATE TEMPORARY VIEW passing AS SELECT 1 AS a")
    found = [
        run_statement(new_workspace(), f"SELECT a FROM delta.`{tmp_path}/{n}`").collect() for n in ("mine", "placed")
    ]
    assert [row[0]["a"] for row in found] == [1, 2]


def test_history_names_who_edited_through_spark(workspace, monkeypatch) -> None:
    monkeypatch.setenv("LOGNAME", "eve")
    sql(workspace, "INSERT INTO rules (rule_id, scope, expression) VALUES ('a', 'flights', 'delay > 4')")
    workspace.spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", "a note of the caller")
    sql(workspace, "UPDATE rules SET expression = 'delay > 8' WHERE rule_id = 'a'")
    workspace.spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")
    sql(workspace, "UPDATE rules SET expression = 'delay > 9' WHERE rule_id = 'a'")
    workspace.spark.sql("UPDATE rules SET expression = 'delay > 7' WHERE rule_id = 'a'")
    found = [(each["expression"], each["user"]) for each in history(workspace, "a")]
    assert found == [("delay > 7", None), ("delay > 9", "eve"), ("delay > 8", None), ("delay > 4", "eve")]
