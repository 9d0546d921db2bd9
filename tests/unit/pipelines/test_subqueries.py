"""Subqueries of a WHERE, as deltatag executes them without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pipelines.errors import NeedsSparkError
from pipelines.local_sql.statement import execute, local_result
from pipelines.local_sql.subqueries import resolved
from pipelines.local_sql.syntax import Select
from pipelines.workspace import Workspace

QUERY = "SELECT v FROM given"


@pytest.fixture
def lake(new_workspace, tmp_path: Path) -> Workspace:
    """The stream s: ids and texts, one of them NULL."""
    texts = ["a", "b", "it's", "ü\\", None]
    write_deltalake(str(tmp_path / "source"), pa.table({"id": pa.array(range(5), pa.int64()), "t": texts}))
    found: Workspace = new_workspace({"s": {"source": str(tmp_path / "source")}}, spark=False)
    return found


def ids(lake: Workspace, where: str) -> list[int]:
    found: list[int] = execute(lake, f"SELECT id FROM s WHERE {where} ORDER BY id")["id"].to_pylist()
    return found


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("t IN (SELECT t FROM s WHERE id > 1)", [2, 3]),
        ("t NOT IN (SELECT t FROM s WHERE id > 1)", []),  # there is a NULL among them
        ("t NOT IN (SELECT t FROM s WHERE id IN (0, 2))", [1, 3]),
        ("t NOT IN (SELECT t FROM s WHERE id > 9)", [0, 1, 2, 3, 4]),  # nothing is in nothing, not even NULL
        ("t IN (SELECT t FROM s WHERE id > 9)", []),
        ("id > 3 OR s.t IN (SELECT min(x.t) FROM s x)", [0, 4]),
        ("id = (SELECT max(id) FROM s WHERE t IS NOT NULL) OR t = (SELECT max(t) FROM s WHERE id = 2)", [2, 3]),
        ("CASE WHEN t IS NULL THEN id >= (SELECT count(*) - 1 AS n FROM s) ELSE t > (SELECT max(t) FROM s) END", [4]),
    ],
)
def test_rows_of_subqueries(lake: Workspace, where: str, expected: list[int]) -> None:
    assert ids(lake, where) == expected


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("a IN (SELECT v FROM given)", "a IN LIST('subquery.0')"),
        ("x or t.a  not  in(SELECT v FROM given)", "x or t.a NOT IN LIST('subquery.0')"),
        (
            "a NOT IN (SELECT v FROM given) AND `b c` IN (SELECT v FROM given)",
            "a NOT IN LIST('subquery.0') AND `b c` IN LIST('subquery.1')",
        ),
        ("a > 1 -- (SELECT", "a > 1 -- (SELECT"),
        ("a = '(SELECT v FROM given)'", "a = '(SELECT v FROM given)'"),
        ("a = (SELECT max(v) FROM given)", "a = 'it\\'s'"),
        (
            "CASE a WHEN 1 THEN b END = 1 AND c IN (SELECT v FROM given)",
            "CASE a WHEN 1 THEN b END = 1 AND c IN LIST('subquery.0')",
        ),
    ],
)
def test_what_stands_in_place_of_subqueries(where: str, text: str) -> None:
    def one_value(query: Select) -> pa.Table:
        assert query.table.name == "given"
        return pa.table({"v": ["it's"]})

    assert resolved(where, one_value).where == text


@pytest.mark.parametrize(
    "where",
    [
        f"upper(a) IN ({QUERY})",
        f"a + b IN ({QUERY})",
        f"NOT a IN ({QUERY})",
        f"(a IN ({QUERY}))",
        f"a IN ({QUERY}) = b",
        f"CASE WHEN a THEN b AND c IN ({QUERY}) AND d END IS NULL",
        f"CASE WHEN a THEN b ELSE c AND d IN ({QUERY}) END",
        f"IN ({QUERY})",
        f"NOT IN ({QUERY})",
        f". IN ({QUERY})",
        f"a. IN ({QUERY})",
        f"a IN ({QUERY} LIMIT 1)",
        f"a IN ({QUERY} WHERE v IN ({QUERY}))",
        f"a IN (SELECT v FROM given WHERE EXISTS ({QUERY}))",
        f"EXISTS ({QUERY})",
        f"a = ({QUERY})",
        f"a = {QUERY}",
        "a = (SELECT max(v) FROM given GROUP BY w)",
        "a IN (SELECT * FROM given)",
        "a IN (SELECT v, w FROM given)",
        "a IN (SELECT 1)",
        f"a IN ({QUERY}",
        f"a IN ({QUERY}) OR b IN LIST('subquery.0')",
        "SELECT",
        "(SELECT",
    ],
)
def test_other_subqueries_are_left_to_spark(where: str) -> None:
    with pytest.raises(NeedsSparkError):
        resolved(where, lambda _: pa.table({"v": ["x"]}))


def test_a_number_keeps_its_type_and_sign() -> None:
    def least(_: Select) -> pa.Table:
        return pa.table({"v": pa.array([-3], pa.int64())})

    assert resolved("1 -(SELECT min(v) FROM given) > a", least).where == "1 -CAST(-3 AS BIGINT) > a"


def test_a_null_within_case_is_no_false(lake: Workspace) -> None:
    with pytest.raises(NeedsSparkError):
        ids(lake, "CASE WHEN id >= 0 THEN TRUE AND t IN (SELECT t FROM s WHERE id > 9) AND TRUE END IS NULL")


def test_a_column_of_the_outer_query_is_left_to_spark(lake: Workspace) -> None:
    with pytest.raises(NeedsSparkError):
        ids(lake, "id IN (SELECT n FROM quarantine_s)")
    with pytest.raises(NeedsSparkError):
        ids(lake, "id IN (SELECT x.id FROM s x WHERE x.id = s.id)")


def test_deep_nesting_is_left_to_spark(lake: Workspace) -> None:
    where = "id IN (SELECT id FROM s WHERE " * 5_000 + "TRUE" + ")" * 5_000
    with pytest.raises(NeedsSparkError):
        ids(lake, where)


@pytest.mark.parametrize("operator", ["=", "<", "<=>"])
@pytest.mark.parametrize(
    ("column", "asked", "is_left_to_spark"),
    [("ntz", "at", True), ("day", "at", True), ("at", "at", False), ("ntz", "ntz", False), ("at", "ntz", False)],
)
def test_no_cast_is_moved_to_the_time_of_a_subquery(
    new_workspace, tmp_path: Path, column: str, asked: str, is_left_to_spark: bool, operator: str
) -> None:
    """The local time 02:30, which clocks skip, is cast to 03:30. It equals the time 03:30 of a subquery, and not that
    of a literal, to which Spark moves the cast."""
    times = pa.table(
        {
            "at": pa.array([1711848600000000] * 2, pa.timestamp("us", "UTC")),
            "ntz": pa.array([1711852200000000, 1711855800000000], pa.timestamp("us")),
            "day": pa.array([19813, 19814], pa.date32()),
        }
    )
    lake = new_workspace({"s": {"source": str(tmp_path / "source")}}, {"time_zone": "Europe/Berlin"}, spark=False)
    query = f"SELECT * FROM s WHERE {column} {operator} (SELECT max({asked}) FROM s)"
    write_deltalake(str(tmp_path / "source"), times)
    assert (local_result(lake, query) is None) == is_left_to_spark


def test_a_subquery_and_its_opposite_are_left_to_spark(lake: Workspace) -> None:
    """For Spark `t IN (...) OR t NOT IN (...)` is TRUE, also of NULL."""
    query = "(SELECT t FROM s WHERE id > 1)"
    with pytest.raises(NeedsSparkError):
        ids(lake, f"t IN {query} OR T NOT IN {query}")
    assert ids(lake, f"t IN {query} OR t NOT IN (SELECT t FROM s WHERE id < 2)") == [2, 3]
