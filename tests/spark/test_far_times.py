"""Times of any year in tables that Spark writes, as other clients read them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from pipelines.compile import compile_scopes
from pipelines.tag import tag_stream

TIMES = [datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC), datetime(2024, 2, 29, tzinfo=UTC)]


def test_every_client_reads_the_times_that_spark_has_written(new_workspace, add_rules, tmp_path: Path) -> None:
    ids = pa.array([None] * len(TIMES), pa.int64())
    source = pa.table({"id": ids, "t": pa.array(TIMES, pa.timestamp("us", "UTC")), "text": ["a"] * len(TIMES)})
    write_deltalake(str(tmp_path / "source"), source)
    workspace = new_workspace({"s": {"source": str(tmp_path / "source"), "key": ["id"]}}, runner="spark")
    add_rules(workspace, ("a", "s", "soundex(text) = 'A000'"))
    compile_scopes(workspace)
    assert tag_stream(workspace, "s").quarantined == len(TIMES)
    uri = workspace.lake.uri("quarantine_s")
    assert sorted(pl.read_delta(uri)["t"].to_list()) == sorted(TIMES)
    assert sorted(DeltaTable(uri).to_pyarrow_table()["t"].to_pylist()) == sorted(TIMES)
