"""Queries of fields of STRUCTs that this process answers, and those that it leaves to Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pipelines.errors import NeedsSparkError
from pipelines.local_sql.statement import execute
from pipelines.workspace import Workspace


@pytest.fixture
def joined(new_workspace, tmp_path: Path) -> Workspace:
    """A stream whose columns are STRUCTs, as those of a join's table are; its second row has no `a`."""
    kind = pa.struct([("k", pa.string()), ("n", pa.int64()), ("in", pa.struct([("m", pa.int32())])), ("s", pa.int8())])
    rows = [{"k": "x", "n": 3, "in": {"m": 1}}, None, {"k": "y", "n": 1, "in": None}, {"k": "x", "n": 4}]
    columns = {"a": pa.array(rows, kind), "k": ["1", "2", "3", "4"], "s": pa.array([{"k": "odd"}] * 4)}
    write_deltalake(str(tmp_path / "source"), pa.table(columns))
    found: Workspace = new_workspace({"s": {"source": str(tmp_path / "source")}}, spark=False)
    return found


@pytest.mark.parametrize(
    ("statement", "names", "found"),
    [
        ("SELECT a.K, A.`in`.m AS m FROM s", ["K", "m"], [("x", 1), (None, None), ("y", None), ("x", None)]),
        ("SELECT a.*, k FROM s WHERE a.n > 3", ["k", "n", "in", "s", "k"], [("x", 4, None, None, "4")]),
        ("SELECT k FROM s ORDER BY a.n DESC NULLS FIRST LIMIT 2", ["k"], [("2",), ("4",)]),
        ("SELECT a.n AS k FROM s ORDER BY k", ["k"], [(None,), (1,), (3,), (4,)]),
        (
            "SELECT a.k, count(*), sum(a.n) AS t, max(a.in.m) FROM s GROUP BY a.k ORDER BY a.k",
            ["k", "count(1)", "t", "max(a.in.m)"],
            [(None, 1, None, None), ("x", 2, 7, 1), ("y", 1, 1, None)],
        ),
        (
            "SELECT a.k, count(a.n) AS c FROM s GROUP BY 1 ORDER BY c DESC, k",
            ["k", "c"],
            [("x", 2), ("y", 1), (None, 0)],
        ),
        (
            "SELECT a.k AS z, count(a.n) FROM s GROUP BY z ORDER BY z",
            ["z", "count(a.n)"],
            [(None, 0), ("x", 2), ("y", 1)],
        ),
        ("SELECT count(a.n) AS n FROM s GROUP BY a.k ORDER BY a.k", ["n"], [(0,), (2,), (1,)]),
    ],
)
def test_fields_of_structs(
    joined: Workspace, statement: str, names: list[str], found: list[tuple[object, ...]]
) -> None:
    result = execute(joined, statement)
    assert result.column_names == names
    assert list(zip(*(column.to_pylist() for column in result.columns), strict=True)) == found


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT s.k FROM s",  # the table's column k
        "SELECT a.s.k FROM s",
        "SELECT s.* FROM s",
        "SELECT a.none FROM s",
        "SELECT k.n FROM s",
        "SELECT k.* FROM s",
        "SELECT k AS a FROM s ORDER BY a.n",
        "SELECT a.k, s, k FROM s ORDER BY k",
        "SELECT a.k, a.K FROM s ORDER BY k",  # the table's column k
        "SELECT a.n, count(*) FROM s GROUP BY n",
        "SELECT a.k, count(*) AS a FROM s GROUP BY a.k ORDER BY a.k",
    ],
)
def test_paths_that_may_mean_something_else_are_left_to_spark(joined: Workspace, statement: str) -> None:
    with pytest.raises(NeedsSparkError):
        execute(joined, statement)
