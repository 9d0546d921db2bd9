"""Files of a tagged table written anew with new ids, beside the rows that they should have."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rules_index as ri
from rules_index.workers.retagged_files import FileTask, KeptMatches, count_changes, write_file
from rules_index.workers.retagged_rows import ReplacedIds

ROWS = 500
SCHEMA = pa.schema({"n": pa.int64(), "t": pa.timestamp("us", "UTC"), "later": pa.string()})
RULES = [("b", "n > 300 AND later IS NULL"), ("d", "t < TIMESTAMP'2024-01-01 02:00:00'"), ("a", "later = 'x'")]


@pytest.mark.parametrize("int96", [False, True])
@pytest.mark.parametrize("everything", [False, True])
def test_a_file_written_anew(tmp_path: Path, int96: bool, everything: bool) -> None:
    folder = tmp_path / "w=a b"
    folder.mkdir()
    numbers = list(range(ROWS))
    times = [datetime(2024, 1, 1, n % 24, tzinfo=UTC) if n % 5 else None for n in numbers]
    ids = [["c", "z"] if n % 3 else ["b", "c"] for n in numbers]
    columns = {"n": numbers, "t": pa.array(times, SCHEMA.field("t").type), "rest": [f"{n}" for n in numbers]}
    table = pa.table({**columns, "rule_ids": ids, "rules_version": pa.array([1] * ROWS, pa.int64())})
    table = table.append_column("index_fingerprint", pa.array(["f"] * ROWS))
    path = folder / "part-1.parquet"
    pq.write_table(table, path, row_group_size=120, use_deprecated_int96_timestamps=int96, store_schema=False)
    compiled = ri.compile_rules(RULES, SCHEMA, time_zone="UTC")
    stats = {"numRecords": ROWS, "minValues": {"n": 0, "rules_version": 1}, "maxValues": {"n": 499, "rules_version": 1}}
    stats["nullCount"] = {"n": 0, "rules_version": 0}
    add = {"path": quote("w=a b/part-1.parquet", "/="), "partitionValues": {"w": "a b"}, "stats": json.dumps(stats)}
    replaced = ReplacedIds(pa.string(), pa.array(["b", "z"]), everything)
    stamps = {"rules_version": pa.scalar(4, pa.int64()), "index_fingerprint": pa.scalar("g")}
    task = FileTask(str(tmp_path), replaced, SCHEMA, "zstd", stamps)
    expected = []
    for n, moment, old in zip(numbers, times, ids, strict=True):
        found = {"b"} if n > 300 else set()
        found |= {"d"} if moment is not None and moment < datetime(2024, 1, 1, 2, tzinfo=UTC) else set()
        expected.append(sorted(found | (set() if everything else set(old) - {"b", "z"})))
    changed = sum(new != old for new, old in zip(expected, ids, strict=True))
    emptied = sum(new != old and not new for new, old in zip(expected, ids, strict=True))
    assert count_changes(compiled, task, add) == (changed, emptied)
    entry = write_file(compiled, task, add)
    assert entry["partitionValues"] == {"w": "a b"} and entry["path"].startswith(quote("w=a b/", "/="))
    written = tmp_path / "w=a b" / os.path.basename(entry["path"])
    assert entry["size"] == written.stat().st_size
    found = pq.ParquetFile(written).read()
    assert found["rule_ids"].to_pylist() == expected
    assert set(found["rules_version"].to_pylist()) == {4}
    assert set(found["index_fingerprint"].to_pylist()) == {"g"}
    new = ["rule_ids", "rules_version", "index_fingerprint"]
    assert found.drop_columns(new).equals(pq.ParquetFile(path).read().drop_columns(new))
    now = json.loads(entry["stats"])
    assert (now["minValues"], now["maxValues"]) == ({"n": 0, "rules_version": 4}, {"n": 499, "rules_version": 4})
    assert pq.ParquetFile(written).metadata.num_row_groups == 5
    # what cannot be written leaves no file behind
    before = sorted(folder.iterdir())
    wrong = FileTask(str(tmp_path), replaced, SCHEMA, "unknown", stamps)
    with pytest.raises(pa.ArrowException, match="unknown"):
        write_file(compiled, wrong, add)
    assert sorted(folder.iterdir()) == before


@pytest.mark.slow
@pytest.mark.parametrize("removed", [False, True])
def test_more_ids_than_a_dictionary_holds(tmp_path: Path, removed: bool) -> None:
    """Parquet's writers begin with a dictionary, and write texts once it is full."""
    count = 40_000
    ids = [f"{number % count:064}" for number in range(3 * count)]
    lists = [sorted({ids[2 * n], ids[2 * n + 1], "b" * (n % 7 == 0)} - {""}) for n in range(count)]
    rows = pa.table({"n": pa.array(range(count)), "rule_ids": lists})
    pq.write_table(rows, tmp_path / "part-1.parquet", row_group_size=count // 2, dictionary_pagesize_limit=1 << 16)
    footer = pq.read_metadata(tmp_path / "part-1.parquet").row_group(0).column(1)
    assert footer.path_in_schema == "rule_ids.list.element" and footer.total_uncompressed_size > 20 << 16
    rules = [] if removed else [("z", "n % 3 = 0"), ("b", "n > 10")]
    compiled = ri.compile_rules(rules, pa.schema({"n": pa.int64()})) if rules else None
    task = FileTask(str(tmp_path), ReplacedIds(pa.string(), pa.array(["b"])), pa.schema({"n": pa.int64()}), "snappy")
    expected = []
    for n, old in enumerate(lists):
        found = set() if removed else {rule for rule, holds in (("z", n % 3 == 0), ("b", n > 10)) if holds}
        expected.append(sorted((set(old) - {"b"}) | found))
    changed = sum(new != old for new, old in zip(expected, lists, strict=True))
    add = {"path": "part-1.parquet", "partitionValues": {}}
    for kept in (None, KeptMatches(0), KeptMatches(1 << 30)):
        assert count_changes(compiled, task, add, kept) == (changed, 0)
        entry = write_file(compiled, task, add, kept)
        found = pq.ParquetFile(tmp_path / entry["path"]).read()
        assert found["rule_ids"].to_pylist() == expected and found["n"].equals(rows["n"])


@pytest.mark.parametrize("stamped", [False, True])
@pytest.mark.parametrize("element", ["element", "item"])
def test_ids_of_a_row_group_in_which_no_row_changes_are_copied(tmp_path: Path, stamped: bool, element: str) -> None:
    lists = pa.array([["c"], []] * 200, pa.list_(pa.field(element, pa.string())))
    rows = pa.table({"n": range(400), "rule_ids": lists, "rules_version": pa.array([1] * 400, pa.int64())})
    options = {"use_compliant_nested_type": element == "element", "store_schema": False}
    pq.write_table(rows, tmp_path / "part-1.parquet", row_group_size=100, use_dictionary=False, **options)
    compiled = ri.compile_rules([("a", "n = 150"), ("d", "n = 320")], pa.schema({"n": pa.int64()}))
    stamps = {"rules_version": pa.scalar(2, pa.int64())} if stamped else {}
    nothing = pa.array([], pa.string())
    task = FileTask(str(tmp_path), ReplacedIds(pa.string(), nothing), pa.schema({"n": pa.int64()}), "snappy", stamps)
    expected = [[*("a" * (n == 150)), *old, *("d" * (n == 320))] for n, old in enumerate(lists.to_pylist())]
    add = {"path": "part-1.parquet", "partitionValues": {}}
    for kept in (None, KeptMatches(1 << 30)):
        assert count_changes(compiled, task, add, kept) == (2, 0)
        path = tmp_path / write_file(compiled, task, add, kept)["path"]
        found = pq.ParquetFile(path).read()
        assert found["rule_ids"].to_pylist() == expected
        assert set(found["rules_version"].to_pylist()) == {2 if stamped else 1}
        footer = pq.read_metadata(path)
        written = ["RLE_DICTIONARY" in footer.row_group(number).column(1).encodings for number in range(4)]
        # lists whose items have another name than this process gives them are all written anew
        assert written == ([False, True, False, True] if element == "element" else [True] * 4)
