"""All predicates of SQLite's sqllogictest: each table's predicates are one rule set, matched in one pass."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rules_index as ri
from tests.cases import soak_rest

pytestmark = pytest.mark.data

PREDICATES = 38_370
# What SQLite calls INTEGER, FLOAT and TEXT, as columns of a Delta table; the floats have at most two decimals.
COLUMNS = {int: pa.int32(), str: pa.string()}
FLOATS = {"double": pa.float64(), "decimal": pa.decimal128(12, 2)}


@pytest.fixture(scope="module")
def tables(data_folder: Path) -> list[dict[str, Any]]:
    """One dictionary a table: `columns`, `rows` and `queries`, each with a `where` and the keys it keeps, `pks`."""
    with gzip.open(data_folder / "sqllogictest" / "where_predicates.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


def arrow_table(table: dict[str, Any], floats: pa.DataType) -> pa.Table:
    """The table's rows; a column's type follows from its values."""
    columns = {}
    for name, values in zip(table["columns"], zip(*table["rows"], strict=True), strict=True):
        kinds = {type(value) for value in values if value is not None}
        if kinds <= {int, float} and float in kinds:
            exact = pa.array([None if value is None else f"{value:.2f}" for value in values])
            columns[name] = exact.cast(floats)
        else:
            (kind,) = kinds
            columns[name] = pa.array(values, COLUMNS[kind])
    return pa.table(columns)


@pytest.mark.slow
@pytest.mark.parametrize(("floats", "engine"), soak_rest(1, [("decimal", "asc"), ("double", "scan")]))
def test_every_predicate_keeps_the_rows_that_sqlite_keeps(
    tables: list[dict[str, Any]], engine: str, floats: str
) -> None:
    compared, differing, rejected = 0, [], []
    for table in tables:
        rows = arrow_table(table, FLOATS[floats])
        expected = {number: sorted(query["pks"]) for number, query in enumerate(table["queries"])}
        rules = [(number, query["where"]) for number, query in enumerate(table["queries"])]
        compiled = ri.compile_rules(rules, rows.schema, engine=engine)
        rejected += [(table["file"], reject) for reject in compiled.rejects.to_pylist()]
        kept: dict[int, list[int]] = {number: [] for number in expected}
        for key, numbers in zip(rows["pk"].to_pylist(), compiled.match(rows).to_pylist(), strict=True):
            for number in numbers:
                kept[number].append(key)
        compared += len(expected)
        differing += [
            (table["file"], rules[number][1], "SQLite", keys, "deltatag", sorted(kept[number]))
            for number, keys in expected.items()
            if sorted(kept[number]) != keys
        ]
        assert compiled.derived == ()
        assert compiled.errors == {}
    assert rejected == []
    assert differing == []
    assert compared == PREDICATES
