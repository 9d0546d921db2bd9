"""Re-tags after columns of the source have changed: rules that do not name them go on, others are told what to do."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pipelines.errors import IndexOutdatedError, SourceChangedError
from pipelines.retag import reproduce_tags, retag
from pipelines.tag import tag_stream
from tests.tables import columns_of
from tests.unit.pipelines.retagged_rows import structs, write_rules

STREAM = {"source": "lake/source", "key": ["id"]}


def tagged(new_workspace: Any, count: int, rules: dict[str, str], **options: str) -> tuple[Any, str]:
    """A workspace whose stream `s` has tagged rows with a STRUCT of one field, and the stream's source."""
    workspace = new_workspace({"s": {**STREAM, **options}}, runner="local")
    source: str = workspace.configuration.streams["s"].source
    write_deltalake(source, structs(range(count), "x"))
    write_rules(workspace, rules)
    tag_stream(workspace, "s")
    return workspace, source


@pytest.mark.parametrize("output", ["all", "matched"])
def test_a_version_that_reads_a_column_without_a_row_yet(new_workspace, output: str) -> None:
    workspace, source = tagged(new_workspace, 4, {"r": "n > 2"}, output=output)
    wide = structs(range(0), "x").append_column("c", pa.array([], pa.int32()))
    write_deltalake(source, wide, mode="append", schema_mode="merge")
    write_rules(workspace, {"r": "n > 2", "c": "c IS NULL AND n < 2"})
    spark = new_workspace({"s": {**STREAM, "output": output}})
    reproduce_tags(spark, "s", workspace.lake.version("rules"), "as_it_was")
    ids = dict(columns_of(workspace, "as_it_was", "id", "rule_ids"))
    assert ids == {0: ["c"], 1: ["c"], 3: ["r"], **({2: []} if output == "all" else {})}


# tests/unit/pipelines/test_local_retag.py has a table of all rows
def test_a_field_that_a_struct_gets_stops_no_retag_of_matched_rows(new_workspace) -> None:
    workspace, source = tagged(new_workspace, 9, {"same": "n > 2"}, output="matched")
    write_deltalake(source, structs(range(0), "x", "z"), mode="append", schema_mode="merge")
    write_rules(workspace, {"same": "n > 2", "new": "n < 2"})
    assert retag(workspace, "s").rows_changed == 2
    ids = dict(columns_of(workspace, "s_tagged", "id", "rule_ids"))
    assert ids == {**{n: ["new"] for n in range(2)}, **{n: ["same"] for n in range(3, 9)}}
    write_rules(workspace, {"same": "n > 2", "new": "n < 2", "named": "u.x = 2"})
    assert retag(workspace, "s").rows_changed == 1
    write_deltalake(source, structs(range(9, 10), "x", "z"), mode="append")
    tag_stream(new_workspace({"s": {**STREAM, "output": "matched"}}), "s")
    write_rules(workspace, {"same": "n > 3", "new": "n < 2", "field": "u.z IS NULL AND n = 2"})
    assert retag(workspace, "s").rows_changed == 2


def test_a_field_that_the_tagged_table_does_not_have_yet(new_workspace) -> None:
    workspace, source = tagged(new_workspace, 3, {"r": "u.x > 0"})
    write_deltalake(source, structs(range(0), "x", "z"), mode="append", schema_mode="merge")
    write_rules(workspace, {"r": "u.x > 0", "z": "u.z IS NULL"})
    spark = new_workspace({"s": STREAM})
    with pytest.raises(SourceChangedError, match=r"read u\.z, which s_tagged does not have yet\. .*deltatag tag s"):
        retag(spark, "s")
    assert retag(workspace, "s").rows_changed == 3  # without Spark the field is NULL
    write_deltalake(source, structs(range(3, 5), "x", "z"), mode="append")
    tag_stream(spark, "s")  # gives the table the field
    assert retag(spark, "s").rows_changed == 0
    assert dict(columns_of(workspace, "s_tagged", "id", "rule_ids")) == {
        0: ["z"], 1: ["r", "z"], 2: ["r", "z"], 3: ["r"], 4: ["r"]
    }  # fmt: skip


def test_rows_that_match_only_now_by_a_renamed_column(new_workspace) -> None:
    workspace = new_workspace({"s": {**STREAM, "output": "matched"}})
    source = workspace.configuration.streams["s"].source
    tables = [source, *(workspace.lake.uri(name) for name in ("s_tagged", "quarantine_s"))]

    def run(statement: str, *of: str) -> None:
        for table in of or tables:
            workspace.spark.sql(statement.format(f"delta.`{table}`"))

    mapped = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    run("CREATE TABLE {} (id BIGINT, n BIGINT, z BIGINT) USING delta " + mapped, source)
    run("INSERT INTO {} SELECT id, id, 9 FROM range(6)", source)
    write_rules(workspace, {"r": "id > 4"})
    tag_stream(workspace, "s")
    run("ALTER TABLE {} SET " + mapped)
    run("ALTER TABLE {} RENAME COLUMN n TO m")
    run("ALTER TABLE {} DROP COLUMN z", source)
    write_rules(workspace, {"r": "id > 4", "m": "m < 2"})
    assert retag(workspace, "s").rows_changed == 2
    assert sorted(columns_of(workspace, "s_tagged", "id", "m", "z")) == [(0, 0, 9), (1, 1, 9), (5, 5, 9)]
    run("ALTER TABLE {} RENAME COLUMN m TO k")
    write_rules(workspace, {"r": "id > 4", "m": "k < 3"})
    with pytest.raises(IndexOutdatedError, match=r"rule m of s, as it was .*'m'.*deltatag tag s --restart"):
        retag(workspace, "s")


@pytest.mark.parametrize("order", ["a BIGINT, b BIGINT", "b BIGINT, a BIGINT"])
def test_names_that_moved_from_column_to_column(new_workspace, order: str) -> None:
    workspace = new_workspace({"s": {**STREAM, "output": "matched"}})
    source = workspace.configuration.streams["s"].source
    tables = [source, *(workspace.lake.uri(name) for name in ("s_tagged", "quarantine_s"))]

    def rename(old: str, new: str, *of: str) -> None:
        for table in of or tables:
            if table != source:
                mapped = "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
                workspace.spark.sql(f"ALTER TABLE delta.`{table}` {mapped}")
            workspace.spark.sql(f"ALTER TABLE delta.`{table}` RENAME COLUMN {old} TO {new}")

    mapped = "USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    workspace.spark.sql(f"CREATE TABLE delta.`{source}` (id BIGINT, {order}) {mapped}")
    workspace.spark.sql(f"INSERT INTO delta.`{source}` (id, a, b) VALUES (0, 1, 100), (1, 1, 200)")
    write_rules(workspace, {"r": "b > 100"})
    tag_stream(workspace, "s")
    rename("a", "x")
    workspace.spark.sql(f"INSERT INTO delta.`{source}` (id, x, b) VALUES (2, 1, 300)")
    tag_stream(workspace, "s")
    rename("b", "a")
    workspace.spark.sql(f"INSERT INTO delta.`{source}` (id, x, a) VALUES (3, 1, 400)")
    write_rules(workspace, {"r": "a > 100"})
    tag_stream(workspace, "s")
    reproduce_tags(workspace, "s", workspace.lake.version("rules"), "again")
    expected = [(1, 1, 200), (2, 1, 300), (3, 1, 400)]
    assert sorted(columns_of(workspace, "again", "id", "x", "a")) == expected
    for old, new in (("x", "y"), ("a", "x"), ("y", "a")):
        rename(old, new, source)
    with pytest.raises(SourceChangedError, match="were renamed or replaced"):
        reproduce_tags(workspace, "s", workspace.lake.version("rules"), "again")


def test_a_column_of_another_type_is_told(new_workspace) -> None:
    workspace, source = tagged(new_workspace, 3, {"r": "n > 0", "x": "u.x > 1"})
    rows = structs(range(3), "x")
    wide = rows.set_column(1, "n", rows["n"].cast(pa.int64()))
    write_deltalake(source, wide, mode="overwrite", schema_mode="overwrite")
    write_rules(workspace, {"r": "n > 0", "x": "u.x > 1"})
    with pytest.raises(
        SourceChangedError, match=r"read n, which is BIGINT .* INT in s_tagged.*deltatag tag s --restart"
    ):
        retag(workspace, "s")
    tag_stream(workspace, "s", restart=True)
    assert retag(workspace, "s").rows_changed == 0
    assert sum(map(len, dict(columns_of(workspace, "s_tagged", "id", "rule_ids")).values())) == 3
