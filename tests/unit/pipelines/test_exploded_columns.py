"""Queries of rows that are exploded: by rule, or by the keys and values of a map."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pipelines.local_sql import lateral_view
from pipelines.local_sql.grammar import parse_statement
from pipelines.local_sql.statement import local_result
from pipelines.local_sql.syntax import Item, LateralView, Select, TableName


def test_columns_are_exploded() -> None:
    text = "SELECT a FROM rules r LATERAL VIEW explode(r.labels) AS k, v LATERAL VIEW EXPLODE(`x`) t y WHERE k = 'team'"
    views = (LateralView(("r", "labels"), ("k", "v")), LateralView(("x",), ("y",)))
    assert parse_statement(text) == Select(TableName("rules", alias="r"), (Item(("a",)),), "k = 'team'", views=views)


def test_rows_and_sums_by_rule(new_workspace, tmp_path: Path) -> None:
    rows = pa.table(
        {
            "amount": pa.array([Decimal("0.10"), Decimal("0.20"), None, Decimal("-7.00")], pa.decimal128(10, 2)),
            "rule_ids": [["a", "b"], ["b"], ["b", None], []],
            "errors": pa.array([[("a", 1)], None, [("a", 2), ("b", 3)], []], pa.map_(pa.string(), pa.int64())),
        }
    )
    write_deltalake(str(tmp_path / "source"), rows)
    lake = new_workspace({"s": {"source": str(tmp_path / "source")}}, spark=False)
    by_rule = "SELECT r, count(*) AS n, sum(amount) AS m, avg(amount) AS a FROM s LATERAL VIEW explode(rule_ids) AS r"
    found = local_result(lake, f"{by_rule} GROUP BY r ORDER BY r NULLS LAST")
    assert found is not None
    assert found.schema.types == [pa.string(), pa.int64(), pa.decimal128(20, 2), pa.decimal128(14, 6)]
    assert [tuple(map(str, row.values())) for row in found.to_pylist()] == [
        ("a", "1", "0.10", "0.100000"),
        ("b", "3", "0.30", "0.150000"),
        ("None", "1", "None", "None"),
    ]
    of_maps = "SELECT k, sum(n) AS n FROM s LATERAL VIEW explode(errors) e AS k, n WHERE n > 1 GROUP BY k ORDER BY k"
    found = local_result(lake, of_maps)
    assert found is not None and found.to_pylist() == [{"k": "a", "n": 2}, {"k": "b", "n": 3}]


@pytest.mark.parametrize("most_rows", [4, 7, 1 << 20])
def test_rows_that_come_to_many_are_exploded_in_slices(
    new_workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_rows: int
) -> None:
    lists = [["a", "b"], None, ["c"], [], ["a", "b"], ["b", "a"]]
    write_deltalake(str(tmp_path / "source"), pa.table({"n": pa.array(range(6), pa.int64()), "rule_ids": lists}))
    lake = new_workspace({"s": {"source": str(tmp_path / "source")}}, spark=False)
    monkeypatch.setattr(lateral_view, "MOST_ROWS", most_rows)
    pairs = "s LATERAL VIEW explode(rule_ids) AS r LATERAL VIEW explode(rule_ids) AS q"
    found = local_result(lake, f"SELECT n, r, q FROM {pairs} ORDER BY n, r, q")
    assert found is not None
    expected = [(n, r, q) for n, ids in enumerate(lists) for r in sorted(ids or ()) for q in sorted(ids or ())]
    assert [tuple(row.values()) for row in found.to_pylist()] == expected
    # eight pairs of the first row alone
    more = local_result(lake, f"SELECT count(*) AS n FROM {pairs} LATERAL VIEW explode(rule_ids) AS t")
    assert (more is None) == (most_rows < 8)
