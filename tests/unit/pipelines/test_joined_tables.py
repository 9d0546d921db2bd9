"""Queries of two tables that are joined: against Polars, in pieces, and of the files that are needed."""

from __future__ import annotations

import random
from pathlib import Path

import polars as pl
import pytest
from deltalake import write_deltalake

import rules_index as ri
from pipelines.local_sql import partners
from pipelines.local_sql.statement import local_result
from pipelines.workspace import Workspace

STREAMS = ("s", "t")


@pytest.fixture
def frames(tmp_path: Path) -> dict[str, pl.DataFrame]:
    """Two tables whose keys repeat and may be NULL; each of the files of s has its own day."""
    draw = random.Random(1)
    keys = [None, *range(8)]
    s = pl.DataFrame({"id": range(60), "k": draw.choices(keys, k=60), "day": [number // 20 for number in range(60)]})
    t = pl.DataFrame({"id": range(40), "k": draw.choices(keys, k=40), "w": draw.choices("abc", k=40)})
    for day in range(3):
        write_deltalake(tmp_path / "s", s.filter(pl.col("day") == day).to_arrow(), mode="append")
    write_deltalake(tmp_path / "t", t.to_arrow())
    return {"s": s, "t": t}


@pytest.fixture
def lake(new_workspace, tmp_path: Path, frames: dict[str, pl.DataFrame]) -> Workspace:
    found: Workspace = new_workspace({name: {"source": str(tmp_path / name)} for name in STREAMS}, spark=False)
    return found


@pytest.mark.parametrize("most_pairs", [1, 7, 1 << 20])
@pytest.mark.parametrize("tables", ["s JOIN t ON s.k = t.k", "t JOIN s USING (k)", "t INNER JOIN s ON k = k"])
def test_pairs_of_rows(
    lake: Workspace, frames: dict[str, pl.DataFrame], monkeypatch: pytest.MonkeyPatch, tables: str, most_pairs: int
) -> None:
    monkeypatch.setattr(partners, "_MOST_PAIRS", most_pairs)
    query = (
        f"SELECT s.id, t.id AS other, w FROM {tables} WHERE day <> 1 AND (t.id > 5 OR s.id < 30) ORDER BY s.id, other"
    )
    if "ON k" in tables:  # both have it
        assert local_result(lake, query) is None
        return
    pairs = (
        frames["s"]
        .join(frames["t"].rename({"id": "other"}), on="k")
        .filter((pl.col("day") != 1) & ((pl.col("other") > 5) | (pl.col("id") < 30)))
    )
    found = local_result(lake, query)
    assert found is not None and found.column_names == ["id", "other", "w"]
    assert pl.DataFrame(pl.from_arrow(found)).rows() == pairs.select("id", "other", "w").sort("id", "other").rows()
    assert pairs.height > 50
    counted = local_result(lake, f"SELECT w, count(*) AS n FROM {tables} GROUP BY w ORDER BY w")
    assert counted is not None
    expected = frames["s"].join(frames["t"], on="k").group_by("w").len().sort("w")
    assert [tuple(row.values()) for row in counted.to_pylist()] == expected.rows()


def test_only_files_that_a_condition_needs_are_read(lake: Workspace, tmp_path: Path) -> None:
    query = "SELECT count(*) AS n FROM s x JOIN t USING (k) WHERE x.day = 2 AND t.w <= 'b'"
    before = local_result(lake, query)
    assert before is not None
    for add in lake_files(tmp_path / "s", 0) + lake_files(tmp_path / "s", 1):
        add.unlink()
    assert local_result(lake, query) == before
    nothing = local_result(lake, "SELECT x.id FROM s x JOIN t USING (k) WHERE x.day = 7")
    assert nothing is not None and nothing.num_rows == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["", "LEFT ", "FULL "])
def test_a_condition_of_very_many_parts_is_compiled_a_few_times(
    lake: Workspace, frames: dict[str, pl.DataFrame], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    compiles, compile_rules = [], ri.compile_rules
    monkeypatch.setattr(ri, "compile_rules", lambda *given, **more: compiles.append(1) or compile_rules(*given, **more))
    parts = " AND ".join(f"s.id <> {1_000 + number} AND w <> 'x{number}'" for number in range(1_000))
    found = local_result(lake, f"SELECT count(*) AS n FROM s {kind}JOIN t ON s.k = t.k WHERE {parts} AND w = 'a'")
    assert 0 < len(compiles) <= 8  # the whole, what is left of it, and up to three times for each table
    expected = frames["s"].join(frames["t"].filter(pl.col("w") == "a"), on="k").height
    assert found is not None and found.to_pylist() == [{"n": expected}]
    compiles.clear()
    parts = " AND ".join(f"t.id <> {1_000 + number}" for number in range(1_000))
    found = local_result(lake, f"SELECT count(*) AS n FROM s SEMI JOIN t ON s.k = t.k AND {parts} AND w = 'a'")
    assert 0 < len(compiles) <= 5
    assert found is not None and found.to_pylist() == [
        {"n": frames["s"].join(frames["t"].filter(pl.col("w") == "a"), on="k", how="semi").height}
    ]


def lake_files(table: Path, day: int) -> list[Path]:
    """The files of a table that hold a day."""
    return [path for path in table.glob("*.parquet") if pl.read_parquet(path)["day"][0] == day]


@pytest.mark.parametrize("tables", ["s JOIN t USING (k)", "s LEFT JOIN t USING (k)", "s SEMI JOIN t USING (k)"])
def test_only_spark_knows_the_order_of_columns_with_using(lake: Workspace, tables: str) -> None:
    """Spark puts the columns of USING first, also among those of one table."""
    assert local_result(lake, f"SELECT s.* FROM {tables}") is None
    assert local_result(lake, f"SELECT s.day, s.id FROM {tables}") is not None
