"""Queries without Spark read only the row groups that may have rows which satisfy their condition."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import WriterProperties, write_deltalake

from pipelines.errors import NeedsSparkError
from pipelines.local_sql import row_groups, tables
from pipelines.local_sql.statement import execute, local_result

ROWS, GROUP = 600, 50
FIRST = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of row groups that each statement reads; 0 for a file that is read whole."""
    found: list[int] = []
    original = tables.files_to_read

    def noted(*arguments: Any) -> Any:
        files = original(*arguments)
        found.append(sum(len(file.groups or ()) for file in files))
        return files

    monkeypatch.setattr(row_groups, "_SMALL_FILE", 0)
    monkeypatch.setattr(tables, "files_to_read", noted)
    return found


def rows(chance: random.Random) -> pa.Table:
    """Sorted numbers, so that row groups differ, with NULLs, NaN and texts beyond ASCII among the other columns."""
    places = range(ROWS)
    texts = [chance.choice(["a", "b" * 70, "é", "ÿ", "", "\U0001f600"]) + f"{n // 100}" for n in places]
    columns = {
        "n": pa.array(places, pa.int32()),
        "k": pa.array([None if n % 100 > 60 else n * n for n in places], pa.int64()),
        "s": pa.array([None if n % 9 == 0 else text for n, text in enumerate(texts)]),
        "x": pa.array([math.nan if n % 150 == 7 else n / 7 for n in places]),
        "p": pa.array([Decimal(n) / 4 for n in places], pa.decimal128(9, 2)),
        "d": pa.array([date(2024, 1, 1) + timedelta(n // 7) for n in places]),
        "t": pa.array([FIRST + timedelta(microseconds=n * 700) for n in places], pa.timestamp("us", "UTC")),
        "u": pa.array([FIRST + timedelta(seconds=n) for n in places], pa.timestamp("us", "UTC")),
        "o": pa.array([{"n": n} for n in places]),
    }
    return pa.table(columns)


def conditions(chance: random.Random) -> list[str]:
    sign, n = chance.choice(["=", "<", "<=", ">", ">=", "<>", "<=>"]), chance.randint(-5, ROWS + 5)
    at = FIRST + timedelta(microseconds=n * 700 + chance.choice([-1, 0, 1]))
    return [
        f"n {sign} {n}", f"n BETWEEN {n} AND {n + 20}", f"n IN ({n}, {n + 200})", f"k {sign} {n * n}", "k IS NULL",
        f"k IS NULL AND n < {n}", f"s {sign} 'a{n // 100}'", f"s {sign} 'ÿ{n // 100}'", f"s > '{'b' * 70}3'",
        f"x {sign} {n / 7}D", "isnan(x)", f"p {sign} {n / 4}", f"d {sign} DATE'{date(2024, 1, 1) + timedelta(n // 7)}'",
        f"t {sign} TIMESTAMP'{at:%Y-%m-%d %H:%M:%S.%f}+00:00'", f"o.n {sign} {n}", f"n < {n} OR k = {n * n}",
        f"NOT (n > {n})", f"u >= TIMESTAMP'2024-01-01 00:0{n % 9}:00+00:00' AND u < DATE'2024-01-02'",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_rows_are_those_of_whole_files(
    new_workspace, tmp_path: Path, read, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    source = write(tmp_path, rows(chance), rows(chance))
    lake = new_workspace({"s": {"source": source}}, spark=False)
    for condition in conditions(chance):
        text = f"SELECT n, k, s FROM s WHERE {condition}"
        pruned = local_result(lake, text)
        with monkeypatch.context() as whole:
            whole.setattr(row_groups, "_SMALL_FILE", 1 << 40)
            expected = local_result(lake, text)
        assert pruned is not None and expected is not None and pruned.equals(expected), condition
    assert len(set(read)) > 4 and np.mean(read) < 2 * ROWS / GROUP


def test_only_the_row_groups_that_are_read_count_as_bytes_to_read(
    new_workspace, tmp_path: Path, read, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path, rows(random.Random(0)))
    (file,) = (tmp_path / "source").glob("*.parquet")
    lake = new_workspace({"s": {"source": source}}, spark=False)
    monkeypatch.setattr(tables, "MOST_BYTES", file.stat().st_size // 4)
    assert execute(lake, "SELECT count(*) FROM s WHERE n >= 130 AND n < 190").to_pylist() == [{"count(1)": 60}]
    assert read == [2]
    for condition in ("n < 500", "x < 1D", "n / n = 1"):
        with pytest.raises(NeedsSparkError, match="to read"):
            execute(lake, f"SELECT count(*) FROM s WHERE {condition}")
    monkeypatch.setattr(row_groups, "_MOST_FILES", 1)
    with pytest.raises(NeedsSparkError, match="to read"):
        execute(lake, "SELECT count(*) FROM s WHERE n = 130")


def write(folder: Path, *parts: pa.Table) -> str:
    """A table with a file of several row groups for each part."""
    for part in parts:
        properties = WriterProperties(max_row_group_size=GROUP)
        write_deltalake(str(folder / "source"), part, mode="append", writer_properties=properties)
    return str(folder / "source")
