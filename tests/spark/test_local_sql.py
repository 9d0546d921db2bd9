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


_GIVEN = "MERGE INTO rules USING (SELECT * FROM VALUES {} AS g (x, y)) AS g ON {} WHEN {}"
_UPDATES = "MATCHED THEN UPDATE SET expression = g.y"
LEFT_TO_SPARK = [
    _GIVEN.format("('d', 'b'), ('d', 'i')", "rules.rule_id = g.x", _UPDATES),
    _GIVEN.format("('d', 1)", "rules.rule_id = g.x", _UPDATES),
    _GIVEN.format("('d')", "rules.rule_id = g.x", _UPDATES),
    _GIVEN.format("('d', 'b')", "rules.rule_id = g.z", _UPDATES),
    _GIVEN.format("('d', 'b')", "rules.rule_id = rules.rule_id", _UPDATES),
    _GIVEN.format("('d', 'b')", "rules.rule_id = upper(g.x)", _UPDATES),
    _GIVEN.format("('d', true)", "rules.enabled = g.y", "MATCHED THEN UPDATE SET owner = g.x"),
    _GIVEN.format("('d', 'b')", "rules.rule_id = g.x", "MATCHED THEN UPDATE SET expression = g.y || 'x'"),
    _GIVEN.format("('d', 'b')", "rules.rule_id = g.x", "MATCHED THEN UPDATE SET expression = rules.owner"),
    _GIVEN.format("('d', 'b')", "rules.rule_id = g.x", "MATCHED AND g.y = 'b' THEN DELETE"),
    _GIVEN.format("('d', 'b')", "rules.rule_id = g.x", "NOT MATCHED THEN INSERT (rule_id, rule_id) VALUES (g.x, g.y)"),
    "MERGE INTO rules USING (SELECT * FROM VALUES ('d') AS g (x)) AS g ON rules.rule_id = g.x",
    "MERGE INTO rules USING watch ON rules.rule_id = watch.account WHEN MATCHED THEN DELETE",
    "SELECT 1.5, 2",
    "SELECT 3000000000",
    "SELECT -1",
    "SELECT 1 + 1",
    "SELECT 1 LIMIT 0",
    "SELECT s.i FROM s",
    "SELECT i + 1 FROM s",
    "SELECT i FROM s JOIN rules ON TRUE",
    "SELECT i FROM s, rules",
    "SELECT x.i FROM s x, rules",
    "SELECT i FROM s x JOIN s y ON x.pk = y.pk",
    "SELECT x.i FROM s x JOIN s y ON x.f = y.f",
    "SELECT x.i FROM s x JOIN s y ON x.m5 = y.m18",
    "SELECT x.i FROM s x JOIN s y ON x.i = y.m5",
    "SELECT x.i FROM s x JOIN s y ON x.i = x.l",
    "SELECT x.i FROM s x JOIN s y ON x.i < y.i",
    "SELECT x.i FROM s x LEFT JOIN s y ON x.i = y.i AND x.b",
    "SELECT x.i FROM s x LEFT JOIN s y ON x.i = y.i AND x.l < y.l",
    "SELECT x.i FROM s x LEFT JOIN s y ON x.i = y.i AND 1 / y.i > 0",
    "SELECT x.i FROM s x LEFT JOIN s y ON x.i = y.i WHERE 1 / y.i > 0",
    "SELECT x.i FROM s x LEFT JOIN s y ON x.i = y.i AND i > 0",
    "SELECT x.i FROM s x LEFT JOIN s y ON x.i = y.i OR x.l = y.l",
    "SELECT x.i FROM s x FULL JOIN s y ON x.i = y.i AND y.b",
    "SELECT i FROM s x FULL JOIN s y USING (i)",
    "SELECT y.i FROM s x LEFT SEMI JOIN s y ON x.i = y.i",
    "SELECT x.i FROM s x LEFT ANTI JOIN s y ON x.i = y.i WHERE y.b",
    "SELECT x.i FROM s x ANTI JOIN s y ON x.i = y.i AND x.b",
    "SELECT * FROM s x SEMI JOIN s y USING (i)",
    "SELECT x.i FROM s x CROSS JOIN s y",
    "SELECT x.i FROM s x LEFT JOIN s y",
    "SELECT x.i FROM s x LEFT JOIN s y ON x.i = y.i JOIN s z ON x.i = z.i",
    "SELECT x.i FROM s x JOIN s y USING (i) JOIN s z USING (i)",
    "SELECT * FROM s x JOIN s y USING (i)",
    "SELECT x.i FROM s x NATURAL JOIN s y",
    "SELECT s.pk FROM s JOIN words w ON s.s = w.word",
    "SELECT x FROM s x JOIN words w ON x.s = w.word",
    "SELECT x IS NULL AS n FROM s x JOIN words w ON x.s = w.word",
    "SELECT x.i FROM s x JOIN words w ON x.s = w.word WHERE 1 / i > 0",
    "SELECT s.e FROM s LATERAL VIEW explode(sa) AS e",
    "SELECT v.e FROM s LATERAL VIEW explode(sa) v AS e",
    "SELECT i FROM s LATERAL VIEW explode(sa) AS i",
    "SELECT e FROM s LATERAL VIEW OUTER explode(sa) AS e",
    "SELECT e FROM s LATERAL VIEW explode(i) AS e",
    "SELECT e FROM s LATERAL VIEW explode(mp) AS e",
    "SELECT e FROM s LATERAL VIEW explode(sa) AS e LATERAL VIEW explode(e) AS f",
    "SELECT e FROM s LATERAL VIEW explode(sa) AS e LATERAL VIEW explode(ai) AS e",
    "SELECT e FROM s LATERAL VIEW posexplode(sa) AS p, e",
    "SELECT e FROM s LATERAL VIEW explode(sa) AS e WHERE 1 / i > 0",
    "SELECT sum(m38) FROM s",
    "SELECT avg(m38) FROM s",
    "SELECT DISTINCT f FROM s",
    "SELECT DISTINCT i, count(*) FROM s GROUP BY i",
    "SELECT DISTINCT i FROM s ORDER BY l",
    "SELECT DISTINCT st.x FROM s ORDER BY st.x",
    "SELECT b FROM s GROUP BY b HAVING count(*) > 1 ORDER BY count(*)",
    "SELECT b, max(i) AS i FROM s GROUP BY b ORDER BY max(i)",
    "SELECT * FROM s GROUP BY i",
    "SELECT count(i, l) FROM s",
    "SELECT sum(DISTINCT i) FROM s",
    "SELECT sum(count(*)) FROM s",
    "SELECT avg(f) FROM s",
    "SELECT avg(l * 1000000000) FROM s",
    "SELECT stddev(i) FROM s",
    "SELECT count(*) OVER (ORDER BY i) AS n FROM s",
    "SELECT count(*) FILTER (WHERE b) AS n FROM s",
    "SELECT i, count(*) FROM s GROUP BY CUBE (i)",
    "SELECT i, count(*) FROM s GROUP BY i WITH ROLLUP",
    "SELECT i, count(*) FROM s GROUP BY ALL",
    "SELECT i, l FROM s GROUP BY i",
    "SELECT i + 1 AS l, count(*) FROM s GROUP BY i HAVING l > 1",
    "SELECT -i AS l FROM s ORDER BY l + 1",
    "SELECT 'x' AS t, count(*) FROM s GROUP BY 1",
    "SELECT now() AS t FROM s",
    "SELECT rand() AS t FROM s",
    "SELECT soundex(s) AS t FROM s",
    "SELECT array(i) AS t FROM s",
    "SELECT NULL AS t FROM s",
    "SELECT ts - INTERVAL 1 DAY - ts AS t FROM s",
    "SELECT i AS n, n + 1 AS m FROM s",
    "SELECT i FROM s WHERE i IN (SELECT 1)",
    "SELECT i FROM s WHERE reverse(s) = 'x' AND rand() > 2",
    "SELECT i FROM s GROUP BY l",
    "SELECT f, count(*) FROM s GROUP BY f",
    "SELECT i FROM s LIMIT 1 + 1",
    "SELECT i FROM s LIMIT 3000000000",
    "SELECT i FROM s WHERE 1 / (i - i) > 1",
    "SELECT nothing FROM s",
    "SELECT i FROM nothing",
    "SELECT i FROM s VERSION AS OF 99",
    "SELECT /*+ COALESCE(1) */ i FROM s",
    "SELECT null, true FROM s",
    "INSERT INTO rules SELECT * FROM rules",
    "INSERT INTO rules (rule_id, scope) VALUES ('a')",
    "INSERT INTO rules (rule_id, scope, expression) VALUES (1, 's', 'b')",
    "INSERT INTO rules (rule_id, scope, expression) VALUES (concat('a', 'b'), 's', 'b')",
    "INSERT INTO rules (rule_id, scope, expression, labels) VALUES ('a', 's', 'b', map('k', 'v', 'k', 'w'))",
    "INSERT INTO rules (rule_id, scope, expression, priority) VALUES ('a', 's', 'b', 3000000000)",
    "INSERT INTO rules (rule_id, scope, expression, valid_from) VALUES ('a', 's', 'b', '2024-01-01')",
    "INSERT INTO rules (rule_id, scope, expression, valid_to) VALUES ('a', 's', 'b', TIMESTAMP'+20000-01-01 00:00:00')",
    "INSERT INTO s (i) VALUES (1)",
    "UPDATE rules SET expression = upper(expression)",
    "UPDATE rules SET nothing = 1",
    "UPDATE rules SET enabled = 'yes'",
    "DELETE FROM s",
    "DELETE FROM rules WHERE rule_id IN (SELECT account FROM watch)",
    "TRUNCATE TABLE rules",
    "DESCRIBE HISTORY rules",
]


HERE = [
    "SELECT x.i, X.st.x, x.* FROM s x WHERE x.i IS NOT NULL AND `x`.l <> 0 ORDER BY x.pk",
    "SELECT DISTINCT i, b FROM s AS x ORDER BY 1, x.b",
    "SELECT DISTINCT b, i IS NULL AS n FROM s",
    "SELECT DISTINCT * FROM watch",
    "SELECT count(DISTINCT i), count(DISTINCT s), count(i) FROM s",
    "SELECT b, count(DISTINCT i) AS n, count(DISTINCT s) m FROM s GROUP BY b ORDER BY n DESC, b",
    "SELECT count(DISTINCT i) FROM s WHERE i > 100000000",
    "SELECT avg(i), avg(l % 1000) AS a, count_if(b) FROM s",
    "SELECT b, avg(i) FROM s WHERE i > 1 GROUP BY b ORDER BY avg(i)",
    "SELECT avg(i), sum(i), count_if(b), count(DISTINCT i), min(i) FROM s WHERE i > 100000000",
    "SELECT count(*) AS n FROM s HAVING count(*) > 1",
    "SELECT count(*) AS n FROM s HAVING n < 1",
    "SELECT b, count(*) AS n FROM s GROUP BY b HAVING n > 1 AND b IS NOT NULL ORDER BY n DESC, b",
    "SELECT b FROM s GROUP BY b HAVING min(i) < 0 OR max(s) > 'b' ORDER BY b",
    "SELECT b FROM s GROUP BY b ORDER BY CAST(max(i) AS BIGINT) - min(i) DESC, b",
    "SELECT year(ts) AS y, count(*) AS n FROM s GROUP BY year(ts) ORDER BY n DESC, y",
    "SELECT YEAR( ts ) AS y, count(*) AS n FROM s GROUP BY y ORDER BY 2 DESC, 1",
    "SELECT to_date(ts) AS d, count(DISTINCT pk) AS n FROM s GROUP BY 1 ORDER BY d",
    "SELECT CASE WHEN i > 3 THEN 'more' WHEN i IS NULL THEN NULL ELSE 'less' END AS k, count(*) AS n FROM s GROUP BY k",
    "SELECT round(100 * count_if(b) / count(*), 1) AS share, sum(CASE WHEN b THEN 1 ELSE 0 END) AS n FROM s",
    "SELECT sum(i) / count(i) AS mean, max(i) - CAST(min(i) AS BIGINT) AS span FROM s",
    "SELECT b, abs(i % 3) AS u, count(*) FROM s GROUP BY b, ABS(i % 3) ORDER BY u, b NULLS LAST",
    "SELECT b AS c, count(*) AS n FROM s GROUP BY c HAVING c ORDER BY c",
    "SELECT 'x' AS label, 1 AS one, i FROM s ORDER BY i, pk",
    "SELECT 2 * 3 AS six FROM s",
    "SELECT i FROM s ORDER BY i % 7 DESC, length(s), pk LIMIT 7",
    "SELECT st.x AS x, st.x % 5 AS y FROM s ORDER BY st.x, pk",
    "SELECT x.st.x FROM s x ORDER BY x.st.x, x.pk",
    "SELECT count(x.st.x), max(x.i) FROM s x",
    "SELECT i AND_MORE FROM s",
    "SELECT *, i IS NULL AS n FROM s ORDER BY pk",
    "SELECT i IS NULL AS n, x.*, pk FROM s x ORDER BY x.pk",
    "SELECT st.x AS z, count(*) FROM s GROUP BY z ORDER BY z",
    "SELECT count(*) AS n FROM s GROUP BY st.x ORDER BY st.x",
    "SELECT count(*) AS n FROM s GROUP BY i, b ORDER BY i DESC, b",
    "SELECT count(*) AS n FROM s GROUP BY year(ts), b ORDER BY year(ts), b",
    "SELECT e, count(*), sum(m18) m FROM s LATERAL VIEW explode(sa) AS e WHERE e IS NOT NULL GROUP BY e ORDER BY e",
    "SELECT x.*, e FROM s x LATERAL VIEW explode(x.ai) v e WHERE e > 1 AND b ORDER BY pk, e",
    "SELECT k, w, x.i FROM s x LATERAL VIEW explode(mp) v AS k, w ORDER BY x.pk, k",
    "SELECT count(*) FROM s LATERAL VIEW explode(sa) AS e",
    "SELECT a, c, count(*) FROM s LATERAL VIEW explode(sa) AS a LATERAL VIEW explode(sa) v c WHERE a < c GROUP BY a, c",
    "SELECT pk, a, c, w FROM s LATERAL VIEW explode(ai) AS a LATERAL VIEW explode(mp) AS c, w ORDER BY pk, a, c",
    "SELECT x.pk, y.pk AS p, y.i FROM s x JOIN s y ON x.i = y.i WHERE x.b AND y.l > 0 AND x.pk < y.pk ORDER BY x.pk, p",
    "SELECT x.*, word FROM s x JOIN words w ON x.s = word",
    "SELECT rank_words, word, count(*), sum(m5) m FROM s x JOIN words ON word = x.s GROUP BY 1, word ORDER BY 1",
    "SELECT * FROM numbers n JOIN s x ON number = i AND n.number = x.i2",
    "SELECT pk, i, x.s, y.s AS t, y.st.x FROM s x INNER JOIN s AS y USING (pk, i) WHERE x.b OR y.l > 3 ORDER BY pk",
    "SELECT count(*) FROM s x JOIN s y USING (i)",
    "SELECT x.i, max(y.ts), count(DISTINCT y.pk) FROM s x JOIN s y ON x.dt = y.dt GROUP BY x.i ORDER BY x.i",
    "SELECT e, count(*) FROM s x JOIN words w ON x.s = w.word LATERAL VIEW explode(sa) AS e GROUP BY e ORDER BY e",
    "SELECT x.pk, a.word FROM s x JOIN words VERSION AS OF 0 a ON a.word = x.s2 WHERE rank_words % 2 = 0 ORDER BY x.pk",
    "SELECT a.pk, c.pk AS p, c.s, c.st.x FROM s a LEFT JOIN s c ON a.i = c.l ORDER BY a.pk, p",
    "SELECT x.pk, y.* FROM s x LEFT OUTER JOIN s y ON x.pk = y.l AND y.b WHERE x.i > 3 OR y.i IS NULL ORDER BY x.pk",
    "SELECT x.pk, y.pk AS p FROM s x LEFT JOIN s y ON x.i = y.i WHERE y.b IS NOT TRUE ORDER BY x.pk, p",
    "SELECT x.pk, y.pk AS p FROM s x LEFT JOIN s y ON x.i = y.i WHERE y.i > 3 AND x.b ORDER BY x.pk, p",
    "SELECT x.pk, word FROM s x LEFT JOIN words w ON x.s = w.word WHERE rank_words IS NULL ORDER BY x.pk",
    "SELECT x.pk, word FROM words w RIGHT JOIN s x ON x.s = word AND rank_words < 5 ORDER BY x.pk",
    "SELECT word, count(x.pk) AS n, sum(m5) FROM words w LEFT JOIN s x ON x.s2 = w.word GROUP BY word ORDER BY word",
    "SELECT number, w.word FROM numbers n FULL JOIN words w ON n.rank_numbers = w.rank_words ORDER BY number, word",
    "SELECT number, word FROM numbers FULL OUTER JOIN words ON number = rank_words WHERE word IS NULL OR number > 2",
    "SELECT i, count(*) AS n, count(y.pk) AS m FROM s x LEFT JOIN s y USING (i) WHERE i > 0 GROUP BY i ORDER BY i",
    "SELECT l, x.l AS a, y.l AS b FROM s x RIGHT JOIN s y USING (l) WHERE l IS NULL OR l > 0 ORDER BY l, a, b",
    "SELECT x.* FROM s x LEFT SEMI JOIN words ON word = s ORDER BY pk",
    "SELECT * FROM s x SEMI JOIN numbers n ON n.number = x.i AND rank_numbers % 2 = 0 AND x.b ORDER BY pk",
    "SELECT pk, i FROM s x LEFT ANTI JOIN numbers n ON n.rank_numbers = i2 AND number > 3 WHERE b ORDER BY pk",
    "SELECT word FROM words w ANTI JOIN s x ON x.s2 = w.word AND x.s = w.word",
    "SELECT count(*) FROM words w ANTI JOIN s x ON x.s2 = w.word AND x.b",
    "SELECT count(*), max(pk) FROM s x SEMI JOIN s y USING (i, t)",
    "SELECT x.pk, e FROM s x LEFT JOIN words w ON x.s = w.word LATERAL VIEW explode(sa) AS e ORDER BY x.pk, e",
    "SELECT x.pk, word FROM s x INNER JOIN words ON x.s = word AND rank_words > 2 AND x.b ORDER BY x.pk",
    "SELECT word, n.number FROM words w LEFT JOIN numbers VERSION AS OF 0 n ON n.number = rank_words AND FALSE",
    "SELECT sum(m5), avg(m5), sum(m18), avg(m18), sum(m20), avg(m20) FROM s",
    "SELECT avg(m5), avg(m20), sum(m5) FROM s WHERE i > 100000000",
    "SELECT b, avg(m5) AS short, avg(m20) AS long, avg(CAST(i AS DECIMAL(11, 1))) AS m FROM s GROUP BY b ORDER BY b",
    "SELECT i % 7 AS k, avg(CAST(i AS DECIMAL(28, 9))) m FROM s GROUP BY k HAVING sum(m5) > 1 ORDER BY 1",
]


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
