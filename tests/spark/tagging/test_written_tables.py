"""Tables that are left to Spark, and the statistics of files that workers write."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pipelines.compile import compile_scopes
from pipelines.errors import (
    TableError,
)
from pipelines.tag import tag_stream
from pipelines.writing.files import layout_of
from rules_index.workers.delta_file_writer import Layout
from tests.cases import SOAK
from tests.java import INTERPRETED
from tests.spark.tagging.rows import (
    append,
    assert_exact,
    read,
)


@pytest.fixture
def spark_settings() -> Mapping[str, str]:
    """What is compiled is not the subject, but what is written and read."""
    return INTERPRETED


def test_a_table_with_a_constraint_is_left_to_spark_which_keeps_it(prepared, spark) -> None:
    workspace = prepared()
    tag_stream(workspace, "s")
    place = f"delta.`{workspace.lake.uri('s_tagged')}`"
    spark.sql(f"ALTER TABLE {place} ADD CONSTRAINT few CHECK (x < 50 OR t < TIMESTAMP '2024-01-01 10:00:00')")
    append(spark, workspace, 800, 810)
    tag_stream(workspace, "s")
    append(spark, workspace, 860, 870)
    with pytest.raises(TableError, match="few"):
        tag_stream(workspace, "s")
    spark.sql(f"ALTER TABLE {place} DROP CONSTRAINT few")
    tag_stream(workspace, "s")
    assert_exact(workspace)


def test_workers_do_not_write_a_table_that_refuses_nulls(new_workspace, spark) -> None:
    lake = new_workspace({}).lake
    wanted = spark.sql("SELECT 1L AS id, 's' AS name").schema.jsonValue()["fields"]
    for name, id_type in (("free", "BIGINT"), ("strict", "BIGINT NOT NULL")):
        spark.sql(f"CREATE TABLE delta.`{lake.uri(name)}` (id {id_type}, name STRING) USING DELTA")
    assert layout_of(lake, "free", wanted) == Layout()
    assert layout_of(lake, "strict", wanted) is None


EXTREMES = """VALUES
    (1, 'NaN'::DOUBLE, TIMESTAMP '0001-01-01 00:00:00', DATE '0001-01-01', '\uffee', 0.1BD, 127Y),
    (2, -0.0D, TIMESTAMP '2024-01-01 00:00:00.001999', DATE '9999-12-31', 'a', 99999999.9BD, -128Y),
    (3, 'Infinity'::DOUBLE, TIMESTAMP '1500-02-01 12:00:00', DATE '1582-10-20', repeat('z', 70), NULL, 0Y),
    (4, NULL, TIMESTAMP '294000-01-01 00:00:00', NULL, concat(repeat('z', 63), '\U0001f600\U0001f600'), -0.1BD, NULL),
    (5, '-Infinity'::DOUBLE, NULL, DATE '-0044-03-15', '', 0.0BD, 1Y)
    AS v(id, f, t, d, s, n, b)"""


def test_statistics_of_written_files_hide_no_row(new_workspace, add_rules, spark) -> None:
    """Each row in a file of its own; each value looked for by every comparison, files passed over or not."""
    workspace = new_workspace({"s": {"source": "lake/source", "key": ["id"], "max_bytes_per_batch": 1}})
    for row in range(1, 6):
        frame = spark.sql(f"SELECT * FROM {EXTREMES} WHERE id = {row}").coalesce(1)
        frame.write.format("delta").mode("append").save(workspace.configuration.streams["s"].source)
    add_rules(workspace, ("one", "s", "f > 5 OR s > 'zz'"))
    compile_scopes(workspace)
    assert tag_stream(workspace, "s").batches == 5
    tagged = read(workspace, "s_tagged")
    same = workspace.spark.read.format("delta").load(workspace.configuration.streams["s"].source)
    assert tagged.select(same.columns).exceptAll(same).count() == 0
    columns = ("f", "t", "d", "s", "n", "b")
    values = "UNION ALL ".join(f"SELECT '{c}' AS c, CAST({c} AS STRING) AS v FROM held " for c in columns)
    same.createOrReplaceTempView("held")
    tagged.createOrReplaceTempView("tagged_rows")
    compared = [
        f"{c} {operator} CAST('{v}' AS {dict(same.dtypes)[c]})"
        for c, v in workspace.spark.sql(values).collect()
        if v is not None and not v.startswith(("+", "-0044"))
        for operator in ("=", "<", ">=", "<=>")
    ]
    compared = compared if SOAK else [*compared[::4], *compared[1::8], *compared[6::8]]
    counted = ", ".join(f"count_if({condition})" for condition in compared)
    whole = workspace.spark.sql(f"SELECT {counted} FROM held").first()
    parts = " UNION ALL ".join(
        f"SELECT {i} AS i, count(*) AS n FROM tagged_rows WHERE {c}" for i, c in enumerate(compared)
    )
    found = {row["i"]: row["n"] for row in workspace.spark.sql(parts).collect()}
    assert {c: found[i] for i, c in enumerate(compared)} == dict(zip(compared, whole, strict=True))
