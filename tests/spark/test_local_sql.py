"""What is executed without Spark gives what Spark gives: names, types, rows, their order, and what an edit leaves."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from pipelines.local_sql.statement import local_result
from pipelines.settings.configuration import parse_configuration
from pipelines.sql import statement_result
from pipelines.workspace import Workspace
from tests.cases import SOAK, cases
from tests.java import INTERPRETED
from tests.lakes import make_tables, write_rules
from tests.random_rows import rows
from tests.spark.random_queries import Queries
from tests.spark.sql_statements import HERE, LEFT_TO_SPARK
from tests.spark.tagged_rules import reference_session

ZONE = "Europe/Berlin"
QUERIES = cases(96)
"""Random queries of one seed."""

BOUNDED = {"delta.dataSkippingStatsColumns": "pk,i,l,s,t,dt,ts,nt,d"}
"""delta-rs rounds the bounds of long decimals to doubles, and Spark passes over files because of them."""


def told(rows: pa.Table, is_ordered: bool) -> list[str]:
    """The rows as texts, in their order where that is asked for."""
    found = [repr(row) for row in zip(*(numbered(column).to_pylist() for column in rows.columns), strict=True)]
    return found if is_ordered else sorted(found)


def numbered(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as numbers: Python has not all of them."""
    if pa.types.is_date(column.type):
        return column.cast(pa.int32())
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def assert_same(local: pa.Table, spark: pa.Table, statement: str) -> None:
    """The same names, types and rows."""
    assert local.column_names == spark.column_names, statement
    for mine, other in zip(local.schema, spark.schema, strict=True):
        assert mine.type.equals(other.type), (statement, mine, other)
    ordered = "ORDER BY" in statement
    ours, theirs = told(local, ordered), told(spark, ordered)
    if re.search(r"\b(min|max)\(", statement, re.IGNORECASE):
        # which of the equal 0.0 and -0.0 it is depends on the order of rows
        ours, theirs = ([re.sub(r"-0\.0\b", "0.0", row) for row in each] for each in (ours, theirs))
    assert sorted(ours) == sorted(theirs) if not ordered else ours == theirs, statement


def workspace(spark: SparkSession, folder: Path, source: str, runner: str) -> Workspace:
    """A lake of the stream s, and of the list watch; its rules are in another time zone than the machine's."""
    document = {
        "lake": {"root": str(folder), "runner": runner},
        "rules": {"time_zone": ZONE},
        "streams": {"s": {"source": source}},
        "spark": INTERPRETED,
        "lists": {name: {"source": str(folder / name)} for name in ("watch", "words", "numbers")},
    }
    found = Workspace(parse_configuration(document, folder / "deltatag.toml"), reference_session(spark, ZONE))
    make_tables(found)
    write_deltalake(str(folder / "watch"), pa.table({"account": ["x", "y"]}))
    table = pa.concat_tables([rows(120, 11), rows(120, 12)])
    for name, column, key in (("words", "s", "word"), ("numbers", "i", "number")):
        keys = table[column].unique().drop_null()
        write_deltalake(str(folder / name), pa.table({key: keys, f"rank_{name}": pa.array(range(len(keys)))}))
    return found


@pytest.fixture
def lakes(spark: SparkSession, tmp_path: Path) -> tuple[Workspace, Workspace]:
    """A lake for this process and one for Spark over the same source, which has two files."""
    source = str(tmp_path / "source")
    for seed in (11, 12):
        table = rows(120, seed)
        keys = pa.array([seed * 1000 + key for key in table["pk"].to_pylist()], table.schema.field("pk").type)
        made = table.set_column(table.schema.get_field_index("pk"), "pk", keys)
        write_deltalake(source, made, mode="append", configuration=BOUNDED)
    local, other = (workspace(spark, tmp_path / runner, source, runner) for runner in ("local", "spark"))
    return local, other


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))])
def test_random_queries(lakes: tuple[Workspace, Workspace], seed: int) -> None:
    local, spark = lakes
    queries = Queries(seed, "s", rows(1, 11).schema)
    executed = 0
    for _ in range(QUERIES):
        query = queries.query()
        found = local_result(local, query)
        if found is not None:
            executed += 1
            assert_same(found, statement_result(spark, query), query)
    assert executed >= QUERIES // 3


LONG = "i = 0 OR " * 40 + "i ="
"""The beginning of texts that differ beyond what a file's statistics hold of them."""
EDITS = [
    "INSERT INTO rules (rule_id, scope, expression) VALUES ('a', 's', 'i > 1'), ('b', 's', \"s = 'x'\")",
    "INSERT INTO rules (expression, rule_id, scope, enabled) VALUES ('i IN (1, 2)', 'O''Brien \\\\ \"q\"', 's', false)",
    """INSERT INTO TABLE rules (rule_id, scope, expression, valid_from, valid_to, priority, labels) VALUES
    ('ü\\n', 's', r'\\d', TIMESTAMP'2024-03-31 02:30:00', TIMESTAMP'2024-01-01 00:00:00Z', -3, map('k', 'v', 'l', 'w'))
    """,
    "INSERT INTO rules VALUES ('d', 's', 'i = 3', NULL, NULL, NULL, 7, NULL, 'me', 'what it is for')",
    "INSERT INTO rules (rule_id, scope, expression) VALUES ('a' 'b', 's', 'b')",
    "INSERT INTO rules (rule_id, scope, expression, valid_to) VALUES (lower('C'), 's', 'b', to_timestamp('2024-03'))",
    "UPDATE rules SET expression = 'i > 2', enabled = TRUE WHERE rule_id = 'a'",
    "UPDATE rules SET valid_from = NULL, valid_to = TIMESTAMP'2024-10-27 02:30:00.000001' WHERE rule_id IN ('a', 'd')",
    "UPDATE rules SET priority = 5 WHERE priority IS NOT NULL AND scope = 's'",
    "UPDATE rules SET enabled = NULL, owner = 'it''s \\\\ me'",
    "UPDATE rules SET owner = 'nobody' WHERE rule_id = 'zzz'",
    "UPDATE rules SET owner = 'q' WHERE rule_id = 'O''Brien \\\\ \"q\"'",
    """MERGE INTO rules USING (SELECT * FROM VALUES ('a', 'i > 7', 3), ('new', "s = 'é'", NULL), (NULL, 'b', -1)
    AS given (rule_id, text, priority)) AS given ON rules.rule_id = given.rule_id
    WHEN MATCHED THEN UPDATE SET expression = given.text, rules.enabled = true, owner = 'm''e',
    priority = given.priority
    WHEN NOT MATCHED THEN INSERT (rule_id, scope, expression, priority, labels, valid_from)
    VALUES (given.rule_id, 's', given.text, given.priority, map('k', 'v'), TIMESTAMP'2024-03-31 02:30:00')""",
    """MERGE INTO rules r USING (SELECT * FROM VALUES ('d', 's'), ('d', 't') g(x, y)) g ON g.x = r.rule_id
    AND r.scope = g.y WHEN MATCHED THEN UPDATE SET valid_from = NULL, priority = 1""",
    """MERGE INTO rules USING (SELECT * FROM VALUES ('d', 's'), ('e', 't') g(x, y)) g ON g.x = rules.rule_id
    WHEN NOT MATCHED THEN INSERT (scope, rule_id) VALUES (g.y, g.x)""",
    f"""INSERT INTO rules (rule_id, scope, expression, enabled, valid_to) VALUES ('d', 's', 'i > 7', NULL, NULL),
    ('d', 's', '{LONG} 8', true, TIMESTAMP'2024-10-27 02:30:00.000001'), ('d', 's', '{LONG} 9', NULL, NULL),
    (NULL, 's', 'i = 1', NULL, NULL), (NULL, 's', NULL, false, NULL), (NULL, 's', 'i = 2', NULL, NULL)""",
    "UPDATE rules SET enabled = FALSE WHERE rule_id = 'd' AND expression = 'i > 7'",
    f"DELETE FROM rules WHERE expression = '{LONG} 9' OR expression = 'nothing' OR rule_id = 'new'",
    "UPDATE rules SET owner = 'late' WHERE valid_to > TIMESTAMP'2024-10-27 02:30:00' AND enabled",
    "DELETE FROM rules WHERE rule_id IS NULL AND expression IS NULL",
    "UPDATE rules SET owner = 'none' WHERE rule_id IS NULL OR enabled = FALSE",
    "DELETE FROM rules WHERE rule_id LIKE 'ü%' OR expression = \"s = 'x'\"",
    "DELETE FROM rules WHERE length(rule_id) > 3 AND enabled IS NULL",
    "DELETE FROM rules WHERE rule_id = 'zzz'",
    "DELETE FROM rules",
]


def test_edits(lakes: tuple[Workspace, Workspace]) -> None:
    """Each edit is executed here over one lake and by Spark over another: it tells the same, and leaves the same."""
    local, spark = lakes
    for number, edit in enumerate(EDITS):
        found = local_result(local, edit)
        assert found is not None, edit
        assert found.to_pylist() == statement_result(spark, edit).to_pylist(), edit
        assert stored(local) == stored(spark), edit
        if SOAK or number in (4, 10, 13):  # behind inserts, updates and merges
            assert sorted(map(repr, local.lake.frame("rules").collect())) == sorted(
                map(repr, spark.lake.frame("rules").collect())
            )
    assert local_result(local, "INSERT INTO watch VALUES ('z'), (NULL)") is not None
    assert local_result(local, "DELETE FROM watch WHERE account IN ('x', 'y')") is not None
    assert local_result(local, "SELECT account FROM watch ORDER BY 1").column(0).to_pylist() == [None, "z"]


def stored(lake: Workspace) -> list[str]:
    """The rows of `rules`."""
    return sorted(map(repr, lake.lake.arrow("rules").to_pylist()))


def test_statements_that_need_no_spark(lakes: tuple[Workspace, Workspace]) -> None:
    local, spark = lakes
    for statement in HERE:
        found = local_result(local, statement)
        assert found is not None, statement
        assert_same(found, statement_result(spark, statement), statement)


def test_what_is_left_to_spark(lakes: tuple[Workspace, Workspace]) -> None:
    local, spark = lakes
    write_rules(local, [("a", "s", "b")])
    before = local.lake.version("rules")
    assert [statement for statement in LEFT_TO_SPARK if local_result(local, statement) is not None] == []
    assert local.lake.version("rules") == before
    assert local_result(spark, "SELECT i FROM s") is None
    numbers = "SELECT 1, 007, 2 AS two, 3 `x y`, 2147483647 two"
    found = local_result(local, numbers)
    assert found is not None
    assert_same(found, statement_result(spark, numbers), numbers)


def test_tables_that_only_spark_reads(lakes: tuple[Workspace, Workspace]) -> None:
    local, spark = lakes
    folder = local.lake.uri("odd")
    spark.spark.sql(f"CREATE TABLE delta.`{folder}` (i INT, c CHAR(3)) USING delta PARTITIONED BY (i)")
    spark.spark.sql(f"INSERT INTO delta.`{folder}` VALUES (1, 'a'), (NULL, 'b')")
    query = f"SELECT i FROM delta.`{folder}` ORDER BY i"
    found = local_result(local, query)
    assert found is not None
    assert_same(found, statement_result(spark, query), query)
    assert local_result(local, f"SELECT c FROM delta.`{folder}`") is None
    spark.spark.sql(f"ALTER TABLE delta.`{folder}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.spark.sql(f"INSERT INTO delta.`{folder}` SELECT /*+ COALESCE(1) */ 1, * FROM VALUES ('c'), ('d')")
    spark.spark.sql(f"DELETE FROM delta.`{folder}` WHERE trim(c) = 'c'")
    assert pa.table(DeltaTable(folder).deletion_vectors()).num_rows == 1
    found = local_result(local, query)
    assert found is not None and found.num_rows == 3
    assert_same(found, statement_result(spark, query), query)
    spark.spark.sql(f"ALTER TABLE delta.`{folder}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    assert local_result(local, query) is None
    rules = local.lake.uri("rules")
    spark.spark.sql(f"ALTER TABLE delta.`{rules}` ADD CONSTRAINT named CHECK (rule_id <> '')")
    assert local_result(local, "INSERT INTO rules (rule_id, scope, expression) VALUES ('', 's', 'b')") is None
    assert local_result(local, "SELECT rule_id FROM rules") is not None
