"""Sources whose columns have any names, and names that come to mean another column."""

from __future__ import annotations

import json

import pytest
from deltalake import DeltaTable

from pipelines.compile import compile_scopes
from pipelines.errors import SourceChangedError
from pipelines.join import join_streams
from pipelines.lint import lint_scopes
from pipelines.sql import statement_result
from pipelines.status import status
from pipelines.tag import tag_stream
from quality.gates import source_gate
from tests.cases import soak_but

ODD = [
    "a b", "a.b", "a,b", "a`b", "a'b", 'a"b', "a=b", "a(b)", "[a]", "{a}", "a;b", "ä ß", "a\nb", "a\tb", "a%20b", "a/b",
    "a\\b", "*", " ", "a#b", "#key0", "1", "select", "\U0001f600 x", "a:b", "$a", "@ b", "-- a", "?", "a--\nb",
]  # fmt: skip
MAPPED = "'delta.columnMapping.mode' = 'name'"


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def read(workspace, name: str):
    return workspace.spark.read.format("delta").load(workspace.lake.uri(name))


def make(workspace, stream: str, names: list[str], rows: int = 3) -> None:
    """A source with a column of integers for each name, a STRUCT whose fields have these names, a time and an id."""
    path = workspace.configuration.streams[stream].source
    columns = ", ".join(f"{quoted(name)} BIGINT" for name in names)
    fields = ", ".join(f"{quoted(name)}: BIGINT" for name in names)
    workspace.spark.sql(
        f"CREATE TABLE delta.`{path}` (`the id` BIGINT, `the time` TIMESTAMP, {columns}, `s t` STRUCT<{fields}>) "
        f"USING delta TBLPROPERTIES ({MAPPED})"
    )
    values = ", ".join(f"id + {number}" for number in range(len(names)))
    workspace.spark.sql(
        f"INSERT INTO delta.`{path}` SELECT id, timestamp'2024-01-01', {values}, struct({values}) FROM range({rows})"
    )


def compiled(workspace) -> None:
    results = compile_scopes(workspace)
    rejects = workspace.lake.arrow("rule_rejects").to_pylist()
    assert not [each.error for each in results if each.error] and not rejects


def test_columns_of_any_names_are_tagged_joined_and_queried(new_workspace, add_rules) -> None:
    stream = {"source": "lake/s", "key": ["the id", "a.b"], "event_time": "the time", "cluster_by": ["a b", "a.b"]}
    streams = {"s": {**stream, "checks": {"sane": "`a=b` > 6"}}, "u": {**stream, "source": "lake/u"}}
    joins = {"j": {"streams": ["s", "u"], "on": ["a.b", "a`b"], "window": "1 h", "lateness": "1 h"}}
    workspace = new_workspace(streams, joins=joins)
    for name in streams:
        make(workspace, name, ODD)
    rules = [(f"r{number:02}", "s", f"{quoted(name)} = {number + 1}") for number, name in enumerate(ODD)]
    rules += [(f"n{number:02}", "s", f"`s t`.{quoted(name)} >= {number}") for number, name in enumerate(ODD)]
    rules += [("spark", "s", "soundex(string(`a b`)) IS NOT NULL AND `a.b` + `a,b` > 0")]
    rules += [("join", "j", "s.`a.b` = u.`a.b` AND u.`s t`.`a b` >= 0 AND s.`a b` + u.`a=b` > 0")]
    add_rules(workspace, *rules)
    compiled(workspace)
    result = tag_stream(workspace, "s")
    assert (result.rows, result.quarantined) == (3, 1)
    tagged = read(workspace, "s_tagged")
    assert tagged.columns[: len(ODD) + 3] == ["the id", "the time", *ODD, "s t"]
    assert [field.name for field in tagged.schema["s t"].dataType.fields] == ODD
    rows = {row["the id"]: row for row in tagged.collect()}
    assert set(rows) == {1, 2}
    assert rows[2][ODD[4]] == 6 and rows[2]["s t"][ODD[4]] == 6
    equal = [f"r{number:02}" for number in range(len(ODD))]
    assert rows[1]["rule_ids"] == sorted([*equal, *(f"n{number:02}" for number in range(len(ODD))), "spark"])
    matches = statement_result(
        workspace, "SELECT `the id`, `a.b`, count(*) AS n FROM s_matches GROUP BY ALL ORDER BY 1"
    )
    assert matches.to_pylist() == [{"the id": 1, "a.b": 2, "n": 61}, {"the id": 2, "a.b": 3, "n": 31}]
    assert statement_result(workspace, "SELECT `the id`, reason FROM quarantine_s").to_pylist() == [
        {"the id": 0, "reason": "the check sane is FALSE"}
    ]
    assert join_streams(workspace, "j").joined == 3
    joined = read(workspace, "j_tagged").select("s.`a.b`", "u.`s t`.`a b`").collect()
    assert sorted(map(tuple, joined)) == [(1, 0), (2, 1), (3, 2)]
    assert [each.problem for each in status(workspace) if each.scope != "u"] == [None, None]
    lint_scopes(workspace)
    assert tag_stream(workspace, "s").batches == 0


def test_a_source_mapped_by_id_is_the_first_table_that_a_session_reads(
    spark, new_workspace, add_rules, tmp_path
) -> None:
    path = str(tmp_path / "s")
    spark.sql(f"CREATE TABLE delta.`{path}` (x BIGINT) USING delta TBLPROPERTIES ({MAPPED.replace('name', 'id')})")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1), (-1)")
    workspace = new_workspace({"s": {"source": path, "checks": {"positive": "x > 0"}}})
    assert source_gate(workspace, "s").reason is None
    add_rules(workspace, ("all", "s", "x < 5"))
    compiled(workspace)
    assert tag_stream(workspace, "s").rows == 2


def test_column_mapping_comes_only_where_a_name_asks_for_it(new_workspace, add_rules) -> None:
    workspace = new_workspace({"s": {"source": "lake/s", "key": ["x"]}})
    path = workspace.configuration.streams["s"].source
    workspace.spark.sql(f"CREATE TABLE delta.`{path}` (x BIGINT, `a.b` BIGINT) USING delta")
    workspace.spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 2)")
    add_rules(workspace, ("all", "s", "x > 0"))
    compiled(workspace)
    for default, value in (("columnMapping.mode", "name"), ("enableTypeWidening", "true"), ("checkpointPolicy", "v2")):
        workspace.spark.conf.set(f"spark.databricks.delta.properties.defaults.{default}", value)
    tag_stream(workspace, "s")
    for name in ("s_tagged", "s_matches", "quarantine_s"):
        assert DeltaTable(workspace.lake.uri(name)).protocol().min_reader_version == 1
        assert '"name"' not in json.dumps(DeltaTable(workspace.lake.uri(name)).metadata().configuration)
    workspace.spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({MAPPED})")
    workspace.spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN `new one` BIGINT")
    workspace.spark.sql(f"INSERT INTO delta.`{path}` VALUES (2, 3, 4)")
    tag_stream(workspace, "s")
    rows = sorted(map(tuple, read(workspace, "s_tagged").select("x", "`a.b`", "`new one`", "rule_ids").collect()))
    assert rows == [(1, 2, None, ["all"]), (2, 3, 4, ["all"])]
    assert DeltaTable(workspace.lake.uri("s_matches")).protocol().min_reader_version == 1


def test_nulls_of_a_key_are_those_of_the_column_that_has_its_name_now(new_workspace, add_rules) -> None:
    """In files and statistics the name is still that of another column, which has no NULL."""
    workspace = new_workspace({"s": {"source": "lake/s", "key": ["a"], "max_quarantine_share": 1.0}})
    path = workspace.configuration.streams["s"].source
    workspace.spark.sql(f"CREATE TABLE delta.`{path}` (a BIGINT, b BIGINT) USING delta")
    workspace.spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, NULL), (2, 5)")
    alter(workspace, path, f"SET TBLPROPERTIES ({MAPPED})", "RENAME COLUMN a TO z", "RENAME COLUMN b TO a")
    add_rules(workspace, ("all", "s", "z > 0"))
    compiled(workspace)
    assert tag_stream(workspace, "s").quarantined == 1
    assert [(row["z"], row["a"]) for row in read(workspace, "s_tagged").collect()] == [(2, 5)]


CHANGES = {
    "renamed": ["RENAME COLUMN a TO z"],
    "swapped": ["RENAME COLUMN a TO z", "RENAME COLUMN b TO a", "RENAME COLUMN z TO b"],
    "dropped and added": ["DROP COLUMN a", "ADD COLUMN a BIGINT"],
    "in a struct": ["RENAME COLUMN s.a TO z"],
    "field dropped and added": ["DROP COLUMN s.a", "ADD COLUMN s.a BIGINT"],
}


@pytest.fixture
def mapped(new_workspace, add_rules):
    """A stream and a join over a source with column mapping, tagged once."""
    streams = {name: {"source": f"lake/{name}", "event_time": "t"} for name in ("p", "q")}
    workspace = new_workspace(streams, joins={"j": {"streams": ["p", "q"], "on": ["k"], "window": "1 h"}})
    for name in streams:
        workspace.spark.sql(
            f"CREATE TABLE delta.`{workspace.configuration.streams[name].source}` (k BIGINT, t TIMESTAMP, a BIGINT, "
            f"b BIGINT, s STRUCT<a: BIGINT, b: BIGINT>) USING delta TBLPROPERTIES ({MAPPED})"
        )
        insert(workspace, name, 1)
    add_rules(workspace, ("all", "p", "k > 0"), ("both", "j", "p.k > 0"))
    compiled(workspace)
    tag_stream(workspace, "p")
    join_streams(workspace, "j")
    return workspace


def insert(workspace, stream: str, k: int) -> None:
    path = workspace.configuration.streams[stream].source
    workspace.spark.sql(f"INSERT INTO delta.`{path}` (k, t) VALUES ({k}, timestamp'2024-01-01')")


def alter(workspace, name: str, *changes: str) -> None:
    for change in changes:
        workspace.spark.sql(f"ALTER TABLE delta.`{name}` {change}")


@pytest.mark.parametrize("change", soak_but(("field dropped and added",), CHANGES))
def test_a_name_that_means_another_column_stops_tag_and_join(mapped, change: str) -> None:
    alter(mapped, mapped.configuration.streams["p"].source, *CHANGES[change])
    insert(mapped, "p", 2)
    for action in (lambda: tag_stream(mapped, "p"), lambda: join_streams(mapped, "j")):
        with pytest.raises(SourceChangedError, match=r"renamed or replaced.*--restart"):
            action()
    tag_stream(mapped, "p", restart=True)
    join_streams(mapped, "j", restart=True)
    assert sorted(row["k"] for row in read(mapped, "p_tagged").collect()) == [1, 2]
    assert "z" not in read(mapped, "p_tagged").columns or change == "renamed"
    assert tag_stream(mapped, "p").batches == join_streams(mapped, "j").batches == 0


def test_columns_renamed_alike_in_the_tagged_table_go_on(mapped) -> None:
    source, table = mapped.configuration.streams["p"].source, mapped.lake.uri("p_tagged")
    alter(mapped, source, "RENAME COLUMN a TO z", "DROP COLUMN b", "ADD COLUMN c BIGINT")
    mapped.spark.sql(f"INSERT INTO delta.`{source}` (k, t, z, c) VALUES (2, timestamp'2024-01-01', 7, 9)")
    with pytest.raises(SourceChangedError, match=r"`a` is `z` now.*ALTER TABLE p_tagged RENAME COLUMN `a` TO `z`"):
        tag_stream(mapped, "p")
    alter(mapped, table, f"SET TBLPROPERTIES ({MAPPED})", "RENAME COLUMN `a` TO `z`")
    quarantine = mapped.lake.uri("quarantine_p")
    mapped.spark.sql(f"CREATE TABLE delta.`{quarantine}` (a BIGINT) USING delta TBLPROPERTIES ({MAPPED})")
    with pytest.raises(SourceChangedError, match="in quarantine_p too: ALTER TABLE quarantine_p RENAME COLUMN `a` TO"):
        tag_stream(mapped, "p")
    alter(mapped, quarantine, "RENAME COLUMN `a` TO `z`")
    tag_stream(mapped, "p")
    rows = sorted(map(tuple, read(mapped, "p_tagged").select("k", "z", "b", "c").collect()))
    assert rows == [(1, None, None, None), (2, 7, None, 9)]
    # the column that comes back under the name of a dropped one is another one
    alter(mapped, source, "ADD COLUMN b BIGINT")
    with pytest.raises(SourceChangedError, match="`b` is another column"):
        tag_stream(mapped, "p")
