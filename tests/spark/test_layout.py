"""How tables lie in files: what is asked for most is found without reading the rest."""

from __future__ import annotations

from collections import Counter

import pytest
from deltalake import DeltaTable

from pipelines.compile import compile_scopes
from pipelines.tag import tag_stream
from tests.cases import soak_but, soak_rest, some_of

STREAM = {"source": "lake/source", "key": ["id"]}
BY = "text STRING, day DATE, n SMALLINT, flag BOOLEAN, amount DECIMAL(9,2)"
ROWS = """
    SELECT id, element_at(array('a', 'a/b', 'x=1', 'a b', 'a%20b', 'ü', '..', NULL, '', '__HIVE_DEFAULT_PARTITION__'),
        CAST(id % 10 AS INT) + 1) AS text, date'2024-01-01' + CAST(id % 3 AS INT) AS day, CAST(id % 2 AS SMALLINT) AS n,
        IF(id % 7 = 0, NULL, id % 2 = 0) AS flag, CAST(id % 2 AS DECIMAL(9,2)) AS amount
    FROM range(60)
"""


def read(workspace, name: str):
    return workspace.spark.read.format("delta").load(workspace.lake.uri(name))


def partitioned(workspace, columns: str, by: str, rows: str, more: str = "") -> str:
    path = workspace.configuration.streams["s"].source
    workspace.spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta PARTITIONED BY ({by}) {more}")
    workspace.spark.sql(f"INSERT INTO delta.`{path}` {rows}")
    return path


def tagged(workspace, add_rules, *rules) -> None:
    add_rules(workspace, *rules)
    assert not [each.error for each in compile_scopes(workspace) if each.error]
    tag_stream(workspace, "s")


def test_a_tagged_table_is_partitioned_as_its_source(new_workspace, add_rules) -> None:
    workspace = new_workspace({"s": STREAM})
    path = partitioned(workspace, f"id BIGINT, {BY}", "text, day, n, flag, amount", ROWS)
    tagged(workspace, add_rules, ("some", "s", "text = 'a/b' OR day = date'2024-01-02' OR flag"), ("all", "s", "TRUE"))
    table = DeltaTable(workspace.lake.uri("s_tagged"))
    assert table.metadata().partition_columns == ["text", "day", "n", "flag", "amount"]
    rows, source = read(workspace, "s_tagged"), workspace.spark.read.format("delta").load(path)
    assert Counter(rows.select(source.columns).collect()) == Counter(source.collect())
    found = {row["id"] for row in rows.filter("array_contains(rule_ids, 'some')").collect()}
    assert found == {r["id"] for r in source.filter("text = 'a/b' OR day = date'2024-01-02' OR flag").collect()}
    footers = table.file_uris()
    assert len(footers) == len(set(footers)) >= 10
    # each partition is found by its value, and only its files are read
    partitions: dict[tuple, list[int]] = {}
    for row in source.sort("id").collect():
        partitions.setdefault((row["text"], row["day"]), []).append(row["id"])
    for text, day in some_of([*{text: (text, day) for text, day in partitions}.values()], 3):
        part = rows.filter(rows["text"].eqNullSafe(text) & (rows["day"] == day))
        assert sorted(r["id"] for r in part.collect()) == partitions[text, day]
    workspace.spark.sql(f"VACUUM delta.`{workspace.lake.uri('s_tagged')}` RETAIN 168 HOURS")
    assert rows.count() == 60


CHOICES = {
    "off": ({"partition_by": []}, "day", []),
    "another": ({"partition_by": ["n"]}, "day", ["n"]),
    "clustered": ({"cluster_by": ["n"]}, "day", []),
    "a type of many spellings": ({}, "t", []),
    "mapped": ({}, "`the day`", ["the day"]),
}


@pytest.mark.parametrize("choice", soak_but(("another", "a type of many spellings", "mapped"), CHOICES))
def test_what_partitions_a_tagged_table(new_workspace, add_rules, choice: str) -> None:
    settings, by, expected = CHOICES[choice]
    workspace = new_workspace({"s": {**STREAM, **settings}})
    day = "`the day`" if choice == "mapped" else "day"
    more = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')" if choice == "mapped" else ""
    rows = "SELECT id, date'2024-01-01', id % 2, timestamp'2024-01-01' FROM range(10)"
    partitioned(workspace, f"id BIGINT, {day} DATE, n INT, t TIMESTAMP", by, rows, more)
    tagged(workspace, add_rules, ("all", "s", "n = 1"))
    detail = workspace.spark.sql(f"DESCRIBE DETAIL delta.`{workspace.lake.uri('s_tagged')}`").first()
    assert detail["partitionColumns"] == expected
    assert read(workspace, "s_tagged").filter("n = 1 AND size(rule_ids) = 1").count() == 5


def test_a_partition_column_that_is_not_there_is_told(new_workspace, add_rules) -> None:
    workspace = new_workspace({"s": {**STREAM, "partition_by": ["month"]}})
    partitioned(workspace, "id BIGINT, day DATE", "day", "VALUES (1, date'2024-01-01')")
    add_rules(workspace, ("all", "s", "TRUE"))
    (error,) = [each.error for each in compile_scopes(workspace)]
    assert "partition_by month" in str(error)


@pytest.mark.parametrize("writer", soak_rest(1, ["workers", "spark"]))
def test_what_people_ask_for_has_bounds_however_many_columns_there_are(new_workspace, add_rules, writer: str) -> None:
    workspace = new_workspace({"s": {**STREAM, "event_time": "t"}})
    path = workspace.configuration.streams["s"].source
    odd = "1 AS `odd name`, " if writer == "spark" else ""
    columns = ", ".join(f"id AS c{number}" for number in range(40))
    rows = workspace.spark.sql(f"SELECT {odd}{columns}, id, date'2024-01-01' AS t FROM range(100)")
    rows.write.format("delta").option("delta.columnMapping.mode", "name").save(path)
    tagged(workspace, add_rules, ("all", "s", "id > 50"))
    for filtered in ("id = -1", "t > '2024-01-01'", "source_version = 9", "rules_version = 99", "tagged_at < '2020'"):
        assert read(workspace, "s_tagged").filter(filtered).inputFiles() == [], filtered
    assert read(workspace, "s_tagged").filter("id >= 0 AND c0 >= 0").count() == 100


@pytest.mark.parametrize("number", soak_rest(1, ["double", "float"]))
def test_nan_is_found_in_tagged_rows_as_the_largest_number(new_workspace, add_rules, number: str) -> None:
    workspace = new_workspace({"s": {"source": "lake/source"}})
    rows = workspace.spark.sql(f"SELECT id, CAST(IF(id % 5 = 0, 'NaN', string(id)) AS {number}) AS x FROM range(100)")
    rows.coalesce(1).write.format("delta").save(workspace.configuration.streams["s"].source)
    tagged(workspace, add_rules, ("large", "s", "x > 1000"))
    found = read(workspace, "s_tagged")
    assert found.filter("x > 1000").count() == found.filter("array_contains(rule_ids, 'large')").count() == 20
