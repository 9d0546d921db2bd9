"""Timestamps of type INT96, as Spark writes them unless told otherwise, read without Spark or left to it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from pipelines.compile import compile_scopes
from pipelines.errors import SparkRuledOutError
from pipelines.settings.configuration import parse_configuration
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from rules_index.workers.source_file_reader import SourceFile, UnreadableFileError, read_batches

NEAR = ["0001-01-01 00:00:00", "1582-10-04 23:59:59.999999", "1969-12-31 23:59:59.999999", "9999-12-31 23:59:59.999999"]
FAR = ["+294000-01-01 00:00:00", "-100000-01-01 00:00:00.000001", "-4713-11-23 12:00:00", "-4713-11-24 00:00:00"]
FAR += ["-4714-06-01 00:00:00", "-63000-06-01 00:00:00", "10000-01-01 00:00:00", "0000-12-31 23:59:59.999999"]
FORMS = {"t": "TIMESTAMP'{}'", "st": "named_struct('t', TIMESTAMP'{}')", "m": "map('k', array(TIMESTAMP'{}'))"}


LEAVES = {"t": "c", "st": "c.t", "m": "c['k'][0]"}


def write(spark, folder: Path, texts: list[str], form: str) -> list[SourceFile]:
    return write_each(spark, folder, [texts], form)


def write_each(spark, folder: Path, files: list[list[str]], form: str) -> list[SourceFile]:
    """A file for each list of times, written by one job."""
    session = spark.newSession()
    session.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    rows = " UNION ALL ".join(
        f"SELECT {n}L id, {FORMS[form].format(text)} c, {number} file"
        for number, texts in enumerate(files)
        for n, text in enumerate(texts)
    )
    frame = session.sql(rows).coalesce(1)
    written = frame.write.partitionBy("file") if len(files) > 1 else frame.drop("file").write
    written.format("delta").mode("append").save(str(folder))
    found = [SourceFile(str(path), {}, 0) for path in sorted(folder.glob("**/*.parquet"))]
    assert len(found) == len(files)
    assert all("INT96" in {each.physical_type for each in parts(file)} for file in found)
    return found


def parts(file: SourceFile) -> list:
    schema = pq.ParquetFile(file.path).schema
    return [schema.column(number) for number in range(len(schema.names))]


@pytest.mark.parametrize("form", FORMS)
def test_what_arrow_misreads_is_refused(spark, tmp_path: Path, form: str) -> None:
    files = write(spark, tmp_path / "near", NEAR, form)
    schema = pa.schema(DeltaTable(str(tmp_path / "near")).schema().to_arrow())
    (batch,) = read_batches(files, schema)
    query = f"SELECT {leaf(form)} m FROM delta.`{tmp_path / 'near'}` ORDER BY id"
    micros = [row["m"] for row in spark.sql(query).collect()]
    found = sorted(zip(batch["id"].to_pylist(), flat(batch["c"]), strict=True))
    assert [value for _, value in found] == micros
    for file in write_each(spark, tmp_path / "far", [[NEAR[2], text] for text in FAR], form):
        with pytest.raises(UnreadableFileError, match="years 1 to 9999"):
            list(read_batches([file], schema))


def leaf(form: str) -> str:
    return f"unix_micros({LEAVES[form]})"


def flat(column: pa.Array) -> list[int]:
    if pa.types.is_struct(column.type):
        column = column.field(0)
    elif pa.types.is_map(column.type):
        column = column.items.flatten()
    return column.cast(pa.int64()).to_pylist()


def test_such_a_stream_is_left_to_spark_and_tagged_right(new_workspace, add_rules, spark, tmp_path: Path) -> None:
    workspace = new_workspace({"s": {"source": str(tmp_path / "source"), "key": ["id"]}}, runner="local")
    write(spark, tmp_path / "source", [*NEAR, *FAR[:4]], "t")
    early, late = (f"TIMESTAMP'{NEAR[place]}Z'" for place in (0, -1))
    add_rules(workspace, ("early", "s", f"c < {early}"), ("late", "s", f"c > {late}"))
    compile_scopes(workspace)
    with pytest.raises(SparkRuledOutError, match="years 1 to 9999"):
        tag_stream(workspace, "s")
    document = {
        "lake": {"root": str(tmp_path / "lake"), "runner": "spark"},
        "streams": {"s": {"source": str(tmp_path / "source"), "key": ["id"]}},
    }
    tag_stream(Workspace(parse_configuration(document, tmp_path / "deltatag.toml"), spark), "s")
    tagged = {
        row["id"]: row["rule_ids"]
        for row in DeltaTable(workspace.lake.uri("s_tagged")).to_pyarrow_table(columns=["id", "rule_ids"]).to_pylist()
    }
    assert tagged == {**{near: [] for near in range(4)}, 4: ["late"], 5: ["early"], 6: ["early"], 7: ["early"]}
