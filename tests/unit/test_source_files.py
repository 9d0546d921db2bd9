"""Rows of a table's files, read with the columns that its log defines."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rules_index.workers.source_file_reader import SourceFile, read_batches


def test_a_file_older_than_a_column_of_few_texts(tmp_path: Path) -> None:
    """Arrow's reader refuses a name that a file does not have, and to read some encodings of texts as dictionaries."""
    columns = {"n": [1] * 100, "s": ["x"] * 100, "l": [["y"]] * 100}
    pq.write_table(pa.table(columns).select(["n"]), tmp_path / "old")
    pq.write_table(pa.table(columns), tmp_path / "new")
    pq.write_table(pa.table(columns), tmp_path / "other", use_compliant_nested_type=False)
    encodings = {"s": "DELTA_BYTE_ARRAY", "l.list.element": "DELTA_LENGTH_BYTE_ARRAY"}
    pq.write_table(pa.table(columns), tmp_path / "delta", use_dictionary=False, column_encoding=encodings)
    files = [SourceFile(str(tmp_path / name), {}, 0) for name in ("old", "new", "other", "delta")]
    schema = pa.schema({"n": pa.int64(), "s": pa.string(), "l": pa.list_(pa.string())})
    for coded in ((), ("l",)):
        batches = list(read_batches(files, schema, coded=coded))
        assert [set(batch["s"].to_pylist()) for batch in batches] == [{None}, {"x"}, {"x"}, {"x"}]
        assert [batch["l"].to_pylist() for batch in batches] == [[None] * 100, *([["y"]] * 100 for _ in range(3))]
        assert {pa.types.is_dictionary(batch["l"].type.value_type) for batch in batches} == {bool(coded)}
