"""Statements that this process executes: what is read for them, edits at the same time, and no JVM anywhere."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.authoring.versions import history
from pipelines.errors import NeedsSparkError, StatementError
from pipelines.lake.folder_log import FolderLog
from pipelines.local_sql import aggregation
from pipelines.local_sql.grammar import parse_statement
from pipelines.local_sql.statement import execute, local_result
from pipelines.local_sql.syntax import (
    ALL_COLUMNS,
    Aggregate,
    Change,
    Insert,
    Item,
    Merge,
    Numbers,
    Select,
    SortKey,
    TableName,
    Term,
)
from pipelines.sources.readable_features import why_spark_reads
from pipelines.workspace import Workspace
from tests.cases import quick_first


@pytest.fixture
def lake(new_workspace, tmp_path: Path) -> Workspace:
    """A stream of ten files with ten rows each, whose numbers ascend."""
    for first in range(0, 100, 10):
        write_deltalake(str(tmp_path / "source"), pa.table({"n": pa.array(range(first, first + 10))}), mode="append")
    found: Workspace = new_workspace({"s": {"source": str(tmp_path / "source")}}, spark=False)
    return found


def test_statements() -> None:
    table = TableName("rules")
    assert parse_statement("select * from rules") == Select(table, (ALL_COLUMNS,))
    assert parse_statement("SELECT 1, 007 AS `a b`") == Numbers((("1", 1), ("a b", 7)))
    assert parse_statement("DELETE FROM delta.`/a b` WHERE (a = ')' OR b[0] > 1) -- why") == Change(
        TableName("/a b", True), "(a = ')' OR b[0] > 1)"
    )
    assert parse_statement("UPDATE rules SET a = (1, 2), b = 'x, y' WHERE c") == Change(
        table, "c", (("a", "(1, 2)"), ("b", "'x, y'"))
    )
    assert parse_statement("INSERT INTO rules VALUES (f(1, 2), NULL), ('a', -1)") == Insert(
        table, None, (("f(1, 2)", "NULL"), ("'a'", "-1"))
    )
    merge = "MERGE INTO rules AS r USING (SELECT * FROM VALUES ('x', 1) AS v (a, b)) w ON w.a = r.c AND r.d = w.b WHEN "
    updated = "MATCHED THEN UPDATE SET r.e = w.b, f = (1) WHEN NOT MATCHED THEN INSERT (c, d) VALUES (w.a, 'y')"
    assert parse_statement(merge + updated) == Merge(
        table,
        ("a", "b"),
        (("'x'", "1"),),
        (("c", "a"), ("d", "b")),
        (("e", Term("b")), ("f", Term(text="(1)"))),
        (("c", Term("a")), ("d", Term(text="'y'"))),
    )
    assert parse_statement(
        "SELECT a, count(1) n FROM rules VERSION AS OF 3 WHERE a > 1 GROUP BY 1 ORDER BY n DESC LIMIT 5"
    ) == (
        Select(
            TableName("rules", version=3),
            (Item(("a",)), Item(Aggregate("count"), "n")),
            "a > 1",
            (1,),
            None,
            (SortKey(("n",), True, True),),
            5,
        )
    )


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a FROM b LIMIT 3000000000",
        "",
        "SELECT",
        "SELECT a FROM",
        "DELETE FROM rules WHERE",
        "INSERT INTO rules VALUES ((1)",
        "MERGE INTO rules USING (SELECT * FROM VALUES (1) AS v (a)) w ON w.a = rules.c",
        "MERGE INTO rules USING (SELECT * FROM VALUES (1) AS v (a)) w ON w.a = rules.c WHEN MATCHED THEN UPDATE SET",
    ],
)
def test_texts_that_end_too_early(text: str) -> None:
    with pytest.raises(NeedsSparkError):
        parse_statement(text)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("SELECT n FROM s JOIN rules ON TRUE", "without equal columns"),
        ("SELECT _metadata FROM s", "the table has no column _metadata"),
        ("SELECT n AS m, m FROM s", "the table has no column m"),
        ("SELECT n, count(*) FROM s GROUP BY ALL", "an expression that a rule cannot have"),
        ("SELECT n AS m, m + 1 AS o FROM s", "an expression that a rule cannot have"),
        ("SELECT n FROM s WHERE delta.n > 1", "only Spark evaluates delta.n"),
        ("SELECT n FROM s WHERE soundex(n) = 'x'", "only Spark evaluates soundex"),
        ("ALTER TABLE s ADD COLUMNS (m INT)", "it has a form that only Spark executes"),
        ("DELETE FROM s", "only rules and lists are edited"),
        ("SELECT n and FROM s", "an expression without one"),
        ("SELECT count(*) div FROM s", "an expression without one"),
        ("SELECT n AS m, n AS M FROM s ORDER BY m", "several columns of the result are called m"),
        ("SELECT n FROM delta.`/nowhere@v1`", "the path may name a version"),
        ("SELECT n FROM s" + " " * (1 << 20), "it has more than 1,048,576 characters"),
    ],
)
def test_a_statement_for_spark_has_a_reason(lake: Workspace, statement: str, reason: str) -> None:
    with pytest.raises(NeedsSparkError, match=reason):
        execute(lake, statement)


@pytest.mark.slow
@pytest.mark.parametrize("call", ["count(", "count((1 + count(", "abs(", "-(", "CASE WHEN ", "n + (", "sum(abs("])
def test_deep_nesting_is_left_to_spark(lake: Workspace, call: str) -> None:
    text = call * 20_000 + "n" + ")" * (call.count("(") * 20_000)
    for statement in (f"SELECT {text} AS m FROM s", f"SELECT n FROM s GROUP BY n HAVING {text} > 1"):
        with pytest.raises(NeedsSparkError):
            execute(lake, statement)


@pytest.mark.slow
def test_many_expressions(lake: Workspace) -> None:
    listed = ", ".join(f"n + {number % 1_000} AS c{number}" for number in range(5_000))
    found = execute(lake, f"SELECT {listed} FROM s WHERE n = 7")
    assert found["c4999"].to_pylist() == [1006] and found.num_columns == 5_000


def test_more_groups_than_rows_are_kept(lake: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregation, "KEPT_ROWS", 15)
    asked = "SELECT n % 60 AS m, count(*) AS c, count(DISTINCT n) AS d, avg(n) AS a FROM s GROUP BY m ORDER BY m"
    found = execute(lake, asked).to_pylist()
    assert found[:2] == [{"m": 0, "c": 2, "d": 2, "a": 30.0}, {"m": 1, "c": 2, "d": 2, "a": 31.0}]
    assert len(found) == 60 and found[-1] == {"m": 59, "c": 1, "d": 1, "a": 59.0}
    assert execute(lake, "SELECT count(DISTINCT n % 7) AS d FROM s").to_pylist() == [{"d": 7}]


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("SELECT n FROM ruels", r"no table ruels; did you mean 'rules'\? Tables that have a name are: rules"),
        ("INSERT INTO ruels (rule_id) VALUES ('a')", "no table ruels"),
        ("SELECT n FROM delta.`/nowhere/at/all`", "no Delta table in the folder /nowhere/at/all"),
        ("SELECT nn FROM s", r"The table s has no column nn; did you mean 'n'\?"),
        ("SELECT n FROM s WHERE nn > 1", "no column 'nn'.*about the table s"),
        ("SELECT count(nn) FROM s", "no column nn"),
        ("SELECT 2 * nn AS m FROM s", "no column 'nn'.*about the table s"),
        ("SELECT n FROM s ORDER BY abs(nn)", "no column 'nn'.*about the table s"),
        ("SELECT n, count(*) FROM s GROUP BY nn", "no column nn"),
        ("SELECT n FROM s ORDER BY nn", "no column nn"),
        ("INSERT INTO rules (rule) VALUES ('a')", "no column rule; did you mean 'rule_id'"),
        ("UPDATE rules SET onwer = 'a' WHERE rule_id = 'none has it'", "no column onwer"),
        ("DELETE FROM rules WHERE onwer = 'a'", "no column 'onwer'"),
    ],
)
def test_a_name_that_nothing_has_is_told_at_once(
    lake: Workspace, monkeypatch: pytest.MonkeyPatch, statement: str, told: str
) -> None:
    with pytest.raises(StatementError, match=told):
        execute(lake, statement)
    if "/nowhere" not in statement:
        monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")  # its catalog may have the name
        with pytest.raises(NeedsSparkError):
            execute(lake, statement)


def test_a_folder_within_a_table_is_left_to_spark(lake: Workspace, tmp_path: Path) -> None:
    with pytest.raises(NeedsSparkError, match="a part of one"):
        execute(lake, f"SELECT n FROM delta.`{tmp_path}/source/n=1`")


def test_names_that_look_like_patterns(new_workspace, tmp_path: Path) -> None:
    columns = {"^x$": [10, 20], "x": [1, 2], "*": [7, 7], "0": [3, 4]}
    write_deltalake(str(tmp_path / "source"), pa.table(columns))
    lake = new_workspace({"s": {"source": str(tmp_path / "source")}}, spark=False)
    found = execute(lake, "SELECT min(`^x$`), max(x) FROM s")
    assert found.to_pydict() == {"min(^x$)": [10], "max(x)": [2]}
    found = execute(lake, "SELECT count(*), `*`, max(`0`) FROM s GROUP BY `*`")
    assert found.to_pydict() == {"count(1)": [2], "*": [7], "max(0)": [4]}


def test_only_files_that_can_have_rows_are_read(lake: Workspace, tmp_path: Path) -> None:
    log = FolderLog(str(tmp_path / "source"))
    gone = [add["path"] for add in log.files(log.latest()) if json.loads(add["stats"])["numRecords"]][:-1]
    kept = pl.concat([pl.read_parquet(tmp_path / "source" / path) for path in gone])["n"].to_list()
    last = next(number for number in range(100) if number not in kept)
    for path in gone:
        (tmp_path / "source" / path).unlink()
    found = local_result(lake, f"SELECT n FROM s WHERE n = {last}")
    assert found is not None and found.to_pylist() == [{"n": last}]
    assert local_result(lake, "SELECT n FROM s WHERE n >= 0") is None  # Spark tells what is lost


def test_column_mapping_of_an_older_protocol_is_left_to_spark(lake: Workspace, tmp_path: Path) -> None:
    """Such a table names no features, and its files may call a column otherwise."""
    log = tmp_path / "source" / "_delta_log" / f"{10:020d}.json"
    first = (tmp_path / "source" / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    metadata = next(action["metaData"] for action in map(json.loads, first) if "metaData" in action)
    schema = json.loads(metadata["schemaString"])
    name, number = "delta.columnMapping.physicalName", "delta.columnMapping.id"
    schema["fields"][0] |= {"name": "renamed", "metadata": {name: "n", number: 1}}
    mapping = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
    metadata |= {"schemaString": json.dumps(schema), "configuration": mapping}
    actions = [{"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, {"metaData": metadata}]
    log.write_text("\n".join(map(json.dumps, actions)))
    assert "columnMapping" in FolderLog(str(tmp_path / "source")).latest().features
    assert local_result(lake, "SELECT renamed FROM s") is None
    stream = lake.configuration.stream("s")
    assert why_spark_reads(stream) == "its source has column mapping"
    assert why_spark_reads(stream, 9) is None


def test_a_limit_ends_the_reading(lake: Workspace) -> None:
    found = local_result(lake, "SELECT n FROM s LIMIT 7")
    assert found is not None and found.num_rows == 7
    found = local_result(lake, "SELECT n FROM s ORDER BY n DESC LIMIT 3")
    assert found is not None and found["n"].to_pylist() == [99, 98, 97]


def test_a_field_of_a_struct_with_the_name_of_the_table_is_left_to_spark(new_workspace, tmp_path: Path) -> None:
    """There `s.n` is the table's column `n`, if it has one."""
    write_deltalake(str(tmp_path / "source"), pa.table({"n": [1], "s": [{"n": 2}]}))
    lake = new_workspace({"s": {"source": str(tmp_path / "source")}}, spark=False)
    with pytest.raises(NeedsSparkError, match="s is the name of the table and of something else"):
        execute(lake, "SELECT n FROM s WHERE S.n = 1")
    found = local_result(lake, "SELECT n FROM s WHERE s IS NOT NULL")
    assert found is not None and found.num_rows == 1
    found = local_result(lake, f"SELECT n FROM delta.`{tmp_path / 'source'}` WHERE s.n = 2")
    assert found is not None and found.num_rows == 1


def test_timestamps_are_in_the_time_zone_of_rules(new_workspace, tmp_path: Path) -> None:
    noon = datetime(2024, 7, 1, 12, tzinfo=UTC)
    write_deltalake(str(tmp_path / "source"), pa.table({"t": [noon], "ts": [[noon]]}))
    lake = new_workspace({"s": {"source": str(tmp_path / "source")}}, {"time_zone": "Europe/Berlin"}, spark=False)
    found = local_result(lake, "SELECT t, ts FROM s")
    assert found is not None
    (row,) = found.to_pylist()
    assert row["t"].isoformat() == row["ts"][0].isoformat() == "2024-07-01T14:00:00+02:00"


@pytest.mark.slow
def test_edits_at_the_same_time(lake: Workspace) -> None:
    """None is lost, and none is executed twice."""

    def edit(number: int) -> None:
        insert = f"INSERT INTO rules (rule_id, scope, expression) VALUES ('{number}', 's', 'n = {number}')"
        assert local_result(lake, insert) is not None
        update = local_result(lake, f"UPDATE rules SET priority = {number} WHERE rule_id = '{number}'")
        assert update is not None and update.to_pylist() == [{"num_affected_rows": 1}]

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(edit, range(8)))
    rules = DeltaTable(lake.lake.uri("rules")).to_pyarrow_table().to_pylist()
    assert sorted((row["rule_id"], row["priority"]) for row in rules) == [(str(n), n) for n in range(8)]


@pytest.mark.slow
@pytest.mark.parametrize("matched", quick_first(1, ["", "WHEN MATCHED THEN UPDATE SET owner = g.b "]))
def test_one_of_several_merges_of_a_key_inserts_it(lake: Workspace, matched: str) -> None:
    def merge(number: int) -> int:
        given = f"MERGE INTO rules USING (SELECT * FROM VALUES ('x', '{number}') AS g (a, b)) AS g"
        inserted = "WHEN NOT MATCHED THEN INSERT (rule_id, scope, expression) VALUES (g.a, 's', 'n = 1')"
        found = local_result(lake, f"{given} ON rules.rule_id = g.a {matched}{inserted}")
        assert found is not None and found["num_updated_rows"].to_pylist() in ([0], [1] if matched else [0])
        return int(found["num_inserted_rows"][0].as_py())

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(merge, range(8))) == 1
    assert DeltaTable(lake.lake.uri("rules")).to_pyarrow_table().num_rows == 1


@pytest.mark.slow
def test_the_history_tells_who_has_edited(lake: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    insert = "INSERT INTO rules (rule_id, scope, expression) VALUES ('1', 's', 'n = 1')"
    merge = "MERGE INTO rules USING (SELECT * FROM VALUES ('1') AS g (a)) AS g ON rules.rule_id = g.a"
    merge += " WHEN MATCHED THEN UPDATE SET priority = 2"
    for edit in (insert, "UPDATE rules SET priority = 1", merge, "DELETE FROM rules"):
        assert local_result(lake, edit) is not None
    told = [(each["operation"], each["user"]) for each in history(lake, "1")]
    assert told == [("DELETE", "ada"), ("MERGE", "ada"), ("UPDATE", "ada"), ("WRITE", "ada")]


@pytest.mark.slow
def test_the_history_names_nobody_for_an_edit_whose_author_is_not_known(
    lake: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert = "INSERT INTO rules (rule_id, scope, expression) VALUES ('{0}', 's', 'n = 1')"
    for rule, user in (("1", "ada"), ("2", "bob")):
        monkeypatch.setenv("LOGNAME", user)
        assert local_result(lake, insert.format(rule)) is not None
    rules = DeltaTable(lake.lake.uri("rules"))
    rules.update({"priority": "7"}, predicate="rule_id = '1'")  # by another program, which names nobody
    assert [(each["operation"], each["user"]) for each in history(lake, "1")] == [("UPDATE", None), ("WRITE", "ada")]

    # the files of earlier versions go, so that the oldest version that is left is an edit of another rule
    rules.optimize.compact()
    assert local_result(lake, "UPDATE rules SET priority = 8 WHERE rule_id = '2'") is not None
    rules.update_incremental()
    rules.vacuum(0, dry_run=False, enforce_retention_duration=False)
    (left,) = history(lake, "1")
    assert (left["operation"], left["user"], left["priority"]) == (None, None, 7)
    assert left["version"] == rules.version() - 2  # VACUUM makes two commits


def rules_held(lake: Workspace) -> list[tuple[str | None, str, bool | None]]:
    columns = ["rule_id", "expression", "enabled"]
    rules = DeltaTable(lake.lake.uri("rules")).to_pyarrow_table(columns=columns).to_pylist()
    return sorted((tuple(rule.values()) for rule in rules), key=repr)


@pytest.mark.slow
def test_one_of_several_rules_with_one_id_is_edited(lake: Workspace, add_rules) -> None:
    add_rules(lake, ("a", "s", "n > 1"), ("a", "s", "n > 2"), (None, "s", "n > 3"), (None, "s", "n > 4"))
    add_rules(lake, ("a", "s", "n > 1"), ("a", "s", "n > 5"), ("b", "s", "n > 2"), ("c", "s", "n > 9"))
    for edit, count in (
        ("UPDATE rules SET enabled = FALSE WHERE rule_id = 'a' AND expression = 'n > 2'", 1),
        ("DELETE FROM rules WHERE rule_id = 'a' AND expression LIKE '%1'", 2),
        ("DELETE FROM rules WHERE rule_id IS NULL AND expression = 'n > 4' OR rule_id = 'c'", 2),
        ("DELETE FROM rules WHERE enabled IS NULL AND expression = 'n > 5'", 1),
    ):
        found = local_result(lake, edit)
        assert found is not None and found["num_affected_rows"].to_pylist() == [count], edit
    assert rules_held(lake) == [("a", "n > 2", False), ("b", "n > 2", None), (None, "n > 3", None)]


@pytest.mark.slow
def test_labels_are_given(lake: Workspace, add_rules) -> None:
    add_rules(lake, ("a", "s", "n > 1"), ("b", "s", "n > 2"))
    for labels in ("map('k', 'v\\'w', 'l', NULL)", "map('k', NULL)", "NULL"):
        assert local_result(lake, f"UPDATE rules SET labels = {labels} WHERE rule_id = 'a'") is not None
    versions = [DeltaTable(lake.lake.uri("rules"), version) for version in range(1, 5)]
    held = [
        dict(zip(*each.to_pyarrow_table().select(["rule_id", "labels"]).to_pydict().values(), strict=True))
        for each in versions
    ]
    given = [None, [("k", "v'w"), ("l", None)], [("k", None)], None]
    assert held == [{"a": each, "b": None} for each in given]


def test_columns_that_only_spark_compares_name_no_row(lake: Workspace, add_rules) -> None:
    for labels in ([("k", "v")], [("k", "w")]):
        add_rules(lake, {"rule_id": "a", "scope": "s", "expression": "n > 1", "labels": labels})
    assert local_result(lake, "DELETE FROM rules WHERE labels['k'] = 'v'") is None
    assert len(rules_held(lake)) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "firsts",
    [
        pa.array([{"a": 1}, {"a": 2}]),
        pa.array([[1], [2]]),
        pa.array([1, 300_000_000_000_000_000], pa.timestamp("us", "UTC")),
    ],
    ids=["struct", "array", "year 11476"],
)
def test_a_list_whose_first_column_is_no_key_is_left_to_spark(new_workspace, tmp_path: Path, firsts: pa.Array) -> None:
    write_deltalake(str(tmp_path / "named"), pa.table({"first": firsts, "v": ["a", "b"]}))
    found = new_workspace(spark=False, lists={"named": {"source": str(tmp_path / "named"), "column": "v"}})
    for statement in ("DELETE FROM named WHERE v = 'a'", "UPDATE named SET v = 'c' WHERE v = 'b'"):
        with pytest.raises(NeedsSparkError, match="tells rows apart by values of first"):
            execute(found, statement)
