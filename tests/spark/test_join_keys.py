"""Keys of joins: those that Spark's `=` finds equal join, and no file that has them is passed over."""

from __future__ import annotations

import itertools
from functools import reduce
from urllib.parse import unquote

import pytest
from pyspark.sql import DataFrame, functions

from pipelines.compile import compile_scopes
from pipelines.join import join_streams
from pipelines.joining.sides import _compared_keys
from pipelines.joining.statistics import FileRanges, RangesOfNewFiles, file_ranges
from pipelines.spark.delta_internals import TableLog
from tests.cases import SOAK, soak_but, soak_rest

LONG = "'" + "x" * 40
LONG_DECIMALS = ("decimal(38,18)", "decimal(25,5)")
DECIMALS = ("decimal(5,2)", "decimal(7,1)", "int")
VALUES = {
    "decimals": (DECIMALS, "1.50 1.5 -1.5 0 2 10 9 100 -0.0 -12.5"),
    "long decimals": (LONG_DECIMALS, "12345678901234567890.12345 12345678901234567890.12346 -9999999999"),
    "integers": (("tinyint", "bigint", "float"), "1 -1 10 9 -10 100 0"),
    "doubles": (("double", "float"), "NaN -0.0 0.0 1 1.0 1e1 Infinity -Infinity 10"),
    "dates": (("date",), "2024-01-01 1969-12-31 9999-12-31 +10000-01-01 -0001-01-01 0001-01-01"),
    "times": (("timestamp", "timestamp_ntz", "date"), "2024-01-01 2024-03-31T02:30:00.0000019 2024-03-31T03:30:00"),
    "texts": (("string", "varchar(80)"), f"a A ä é e z Z {LONG}a {LONG}b {LONG}\U0001f600 a%20b a/b __x 1.50 1.5 ''"),
    "padded": (("char(4)", "char(6)"), "a b ab abc"),
    "flags": (("boolean",), "true false"),
    "bytes": (("binary",), "a b 1.5 aa"),
}  # fmt: skip


def tables(spark, folder, types: tuple[str, ...], texts: str) -> list[tuple[str, str]]:
    """Tables of the values with each type, in files of a value each by their partitions, and in files of some."""
    made = []
    rows = spark.createDataFrame([(None if text == "''" else text,) for text in texts.split()], "k string")
    for number, data_type in enumerate(types):
        for by in ((), ("k",)):
            path = str(folder / f"{number}{len(by)}")
            partition = f"PARTITIONED BY ({by[0]})" if by else ""
            padded = data_type.startswith(("char", "varchar"))
            if padded:  # what no DataFrame has
                spark.sql(f"CREATE TABLE delta.`{path}` (id INT, t TIMESTAMP, k {data_type}) USING delta {partition}")
            kept = rows.select(
                functions.lit(1).alias("id"),
                functions.expr("timestamp'2024-01-01'").alias("t"),
                functions.expr(f"try_cast(k AS {'string' if padded else data_type})").alias("k"),
            )
            if padded:
                length = int(data_type.split("(")[1][:-1])
                kept = kept.filter(functions.length("k") <= length)
            spread = kept.coalesce(1) if by else kept.repartition(2, "k")
            written = spread.write.format("delta").mode("append")
            (written.partitionBy("k") if by else written).save(path)
            made.append((data_type, path))
    return made


@pytest.mark.parametrize("kind", soak_but(("decimals", "doubles", "texts"), VALUES))
def test_no_file_with_an_equal_key_is_passed_over(spark, tmp_path, kind: str) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", "true")
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    files: dict[str, dict[str, FileRanges]] = {}
    rows: dict[str, DataFrame] = {}
    types, texts = VALUES[kind]
    for data_type, path in tables(session, tmp_path, types if SOAK else types[:2], texts):
        log = TableLog(session, path)
        keys = _compared_keys(["k"], log.fields(log.latest()))
        for add in log.files(log.latest()):
            name = unquote(add["path"]).rsplit("/", 1)[-1]
            files.setdefault(data_type, {})[name] = file_ranges(add, "t", keys, "Europe/Berlin")
        file = functions.element_at(functions.split("_metadata.file_path", "/"), -1)
        table = session.read.format("delta").load(path).select("k", file.alias("file"))
        rows[data_type] = rows[data_type].union(table) if data_type in rows else table
    passed_over = pairs = 0
    joins = []
    for one, other in itertools.combinations_with_replacement(files, 2):
        a, b = rows[one].alias("a"), rows[other].alias("b")
        joined = a.join(functions.broadcast(b), functions.expr("a.k = b.k"))
        joins.append(joined.select(functions.lit(one), functions.lit(other), "a.file", "b.file"))
    found = {tuple(row) for row in reduce(DataFrame.unionAll, joins).collect()}
    for one, other in itertools.combinations_with_replacement(files, 2):
        equal = {(name, partner) for a, b, name, partner in found if (a, b) == (one, other)}
        for (name, mine), (partner, theirs) in itertools.product(files[one].items(), files[other].items()):
            met = RangesOfNewFiles([theirs]).may_join(mine, 0, 0)
            assert met or (name, partner) not in equal
            passed_over, pairs = passed_over + (not met), pairs + ((name, partner) in equal)
    assert pairs
    assert passed_over or kind in ("doubles", "flags", "bytes", "padded", "times")


@pytest.fixture
def joined(new_workspace, add_rules, spark):
    """Two streams whose keys are of these types, a row each commit, and what their join and Spark's give."""

    def join(types: tuple[str, str], values: str, method: str, partitioned: bool = False):
        streams = {name: {"source": f"lake/{name}", "event_time": "t"} for name in ("a", "b")}
        join = {"streams": ["a", "b"], "on": ["k"], "window": "1 hour", "method": method}
        workspace = new_workspace(streams, joins={"j": join})
        add_rules(workspace, ("all", "j", "TRUE"))
        names = [workspace.configuration.streams[name].source for name in ("a", "b")]
        for path, data_type in zip(names, types, strict=True):
            by = "PARTITIONED BY (k)" if partitioned else ""
            spark.sql(f"CREATE TABLE delta.`{path}` (v STRING, t TIMESTAMP, k {data_type}) USING delta {by}")
        for path, data_type in zip(names, types, strict=True):
            rows = ", ".join(f"('{value}', timestamp'2024-01-01', {value!r})" for value in values.split())
            cast = "string" if "char" in data_type.lower() else data_type
            texts = f"SELECT v, t, CAST(k AS {cast}) FROM VALUES {rows} AS (v, t, k)"
            spark.sql(f"INSERT INTO delta.`{path}` {texts}")
            if path == names[0]:
                assert [each.error for each in compile_scopes(workspace, ["j"])] == [None]
            join_streams(workspace, "j")
        found = workspace.spark.read.format("delta").load(workspace.lake.uri("j_tagged")).select("a.v", "b.v")
        expected = workspace.spark.sql(
            f"SELECT a.v, b.v FROM delta.`{names[0]}` a JOIN delta.`{names[1]}` b ON a.k = b.k"
        )
        return sorted(map(tuple, found.collect())), sorted(map(tuple, expected.collect()))

    return join


@pytest.mark.parametrize("method", ["batch", pytest.param("pdfa", marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("types", "values", "partitioned", "pairs"),
    [
        (("decimal(5,2)", "decimal(5,1)"), "1.50 2.5 10", True, 3),
        (("double", "float"), "NaN -0.0 0.0 1 Infinity", False, 7),
        (("char(3)", "char(5)"), "a ab", False, 2),
    ],
)
def test_a_join_is_that_of_spark(joined, types, values: str, partitioned: bool, pairs: int, method: str) -> None:
    found, expected = joined(types, values, method, partitioned)
    assert found == expected
    assert len(found) == pairs


@pytest.mark.parametrize("nested", soak_rest(1, ["STRUCT<a: INT>", "ARRAY<INT>", "MAP<STRING, INT>"]))
def test_a_nested_key_is_refused(new_workspace, add_rules, nested: str) -> None:
    streams = {name: {"source": f"lake/{name}", "event_time": "t"} for name in ("a", "b")}
    workspace = new_workspace(streams, joins={"j": {"streams": ["a", "b"], "on": ["k"], "window": "1 hour"}})
    for stream in workspace.configuration.streams.values():
        workspace.spark.sql(f"CREATE TABLE delta.`{stream.source}` (t TIMESTAMP, k {nested}) USING delta")
    add_rules(workspace, ("all", "j", "TRUE"))
    (error,) = [each.error for each in compile_scopes(workspace, ["j"])]
    assert "one number, text, time" in str(error)
