"""Which files of a table are merged, and what the merged ones hold."""

from __future__ import annotations

import errno
import os
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pipelines.lake.folder_log import FolderLog
from pipelines.lake.merging import WHOLE_FILE, FileWriter, NotMergeableError
from pipelines.maintain import maintain
from pipelines.maintaining import lake_tables
from pipelines.maintaining.small_files import LEAST, LEAST_IN_RUN, File, groups_to_merge
from pipelines.run import OpenGates, run_due
from rules_index.workers.delta_file_writer import SORTED_ROWS, DeltaFile, Layout

NOW = datetime.now(UTC)


# which files are merged


@pytest.mark.slow
@pytest.mark.parametrize("least", (LEAST_IN_RUN, LEAST))
@pytest.mark.parametrize(
    "sizes",
    [
        (1_000, 3_000),
        *(pytest.param(each, marks=pytest.mark.slow) for each in ((100, 2 << 20), (1 << 20, 90 << 20))),
    ],
)
def test_files_stay_few_and_each_row_is_written_a_few_times(least: int, sizes: tuple[int, int]) -> None:
    draw, found, added, written, most = random.Random(5), [], 0, 0, 0
    for number in range(3_000):
        found.append(File(f"new{number}", draw.randint(*sizes), ("a", "b")[number % 2 :][:1], number))
        added += found[-1].size
        if least == LEAST_IN_RUN or number % 50 == 0:
            for place, group in enumerate(groups_to_merge(found, least)):
                assert len(group) > 1 and len({file.partition for file in group}) == 1
                gone = {file.path for file in group}
                assert gone <= {file.path for file in found if file.size < WHOLE_FILE}
                found = [file for file in found if file.path not in gone]
                size = sum(file.size for file in group)
                written += size
                pieces = range(-(-size // WHOLE_FILE))
                found += [
                    File(f"{number} {place} {piece}", min(WHOLE_FILE, size - piece * WHOLE_FILE), group[0].partition, 0)
                    for piece in pieces
                ]
        most = max(most, sum(file.size < WHOLE_FILE for file in found))
    assert sum(file.size for file in found) == added
    assert most <= 2 * 4 * LEAST_IN_RUN
    assert written <= 30 * added


def test_what_is_merged_is_not_merged_again() -> None:
    small = [File(str(n), 1_000 * (n + 1), (), n) for n in range(40)]
    (group,) = groups_to_merge(small, LEAST)
    assert [file.path for file in group] == [str(n) for n in range(40)]
    assert groups_to_merge([File("merged", sum(file.size for file in small))], LEAST) == []
    assert groups_to_merge(small[:31], LEAST_IN_RUN) == []
    assert groups_to_merge([File(str(n), WHOLE_FILE) for n in range(100)], LEAST) == []
    assert groups_to_merge([], LEAST) == []


# files written anew


SCHEMA = pa.schema(
    [
        ("rule_id", pa.string()),
        ("x", pa.float64()),
        ("t", pa.timestamp("us", "UTC")),
        ("ids", pa.list_(pa.string())),
        ("place", pa.struct([("city", pa.int64()), ("y", pa.float32())])),
        ("new", pa.int64()),
    ]
)


def write(folder: Path, table: pa.Table, layout: Layout) -> dict[str, Any]:
    file = DeltaFile(str(folder), table.schema, "snappy", {}, layout)
    for batch in table.to_batches(max_chunksize=500):
        file.write(batch)
    return file.close()


def rows(count: int, seed: int, schema: pa.Schema = SCHEMA) -> pa.Table:
    draw = random.Random(seed)
    values = {
        "rule_id": [f"r{draw.randrange(9)}" for _ in range(count)],
        "x": [draw.choice([None, float("nan"), float("inf"), -0.0, draw.random()]) for _ in range(count)],
        "t": [draw.choice([None, datetime(1, 1, 1), datetime(9999, 12, 31), NOW]) for _ in range(count)],
        "ids": [draw.choice([[], ["a", None], ["é\0"]]) for _ in range(count)],
        "place": [draw.choice([None, {"city": 1, "y": float("nan")}]) for _ in range(count)],
        "new": [draw.choice([None, -(1 << 63), 7]) for _ in range(count)],
    }
    return pa.table({name: values[name] for name in schema.names}, schema)


def as_texts(tables: Any) -> list[str]:
    return sorted(repr(row) for table in tables for row in table.to_pylist())


@pytest.mark.slow
def test_merged_files_have_the_rows_and_the_bounds_of_all(tmp_path: Path) -> None:
    layout = Layout(sort_by="rule_id")
    older = pa.schema([field for field in SCHEMA if field.name != "new"])
    tables = [rows(9_000, 1), rows(1, 2), rows(20_000, 3), rows(3_000, 4, older)]
    adds = [write(tmp_path, table, layout) for table in tables]
    writer = FileWriter(FolderLog(str(tmp_path)), SCHEMA, "snappy", layout)
    import json

    import pyarrow.parquet as pq

    (entry,) = [json.loads(text)["add"] for text in writer.merge(adds)]
    merged = pq.read_table(tmp_path / entry["path"]).cast(SCHEMA)
    filled = [tables[3].append_column("new", pa.nulls(3_000, pa.int64()))]
    assert as_texts([merged]) == as_texts(tables[:3] + filled)
    assert entry["dataChange"] is False
    stats = json.loads(entry["stats"])
    assert stats["numRecords"] == 32_001 and "x" not in stats["maxValues"]  # there is a NaN, the largest number
    assert stats["minValues"]["rule_id"] == "r0" and stats["maxValues"]["rule_id"] == "r8"
    # a reader of one rule passes over row groups
    ids = merged["rule_id"].to_pylist()
    assert ids == sorted(ids)
    footer = pq.ParquetFile(tmp_path / entry["path"]).metadata
    assert [footer.row_group(i).num_rows for i in range(footer.num_row_groups)] == [SORTED_ROWS, 32_001 - SORTED_ROWS]


@pytest.mark.parametrize("wrong", ("column", "type", "rows"))
def test_a_file_that_is_not_understood_stays_alone(tmp_path: Path, wrong: str) -> None:
    table = rows(5, 1)
    if wrong == "column":
        table = table.append_column("other", pa.nulls(5, pa.int64()))
    elif wrong == "type":
        table = table.set_column(0, "rule_id", pa.array([{"a": 1}] * 5))
    adds = [write(tmp_path, rows(3, 2), Layout()), write(tmp_path, table, Layout())]
    if wrong == "rows":
        adds[1] = {**adds[1], "stats": '{"numRecords": 6}'}
    there = set(tmp_path.iterdir())
    with pytest.raises(NotMergeableError):
        FileWriter(FolderLog(str(tmp_path)), SCHEMA, "snappy", Layout()).merge(adds)
    assert set(tmp_path.iterdir()) == there


@pytest.mark.slow
def test_old_files_go_from_all_partitions(new_workspace) -> None:
    """Also from one whose folder has escapes in its name."""
    workspace = new_workspace({"s": {"source": "lake/source"}}, spark=False)
    place = workspace.configuration.streams["s"].source
    for number in range(2):
        parts = pa.array(["a/b", "50% \u00fc", "plain"])
        write_deltalake(place, pa.table({"n": [number] * 3, "part": parts}), mode="append", partition_by=["part"])
        run_due(workspace, OpenGates())
    folder = Path(workspace.lake.uri("s_tagged"))
    old = [file.with_name("old.parquet") for file in folder.glob("*/*.parquet")]
    for file in old:
        file.write_bytes(b"")
        os.utime(file, (0, 0))
    done = {each.table: each for each in maintain(workspace)}["s_tagged"]
    assert done.error is None and done.removed == 3 and not any(file.exists() for file in old)
    assert workspace.lake.arrow("s_tagged").num_rows == 6


@pytest.mark.slow
def test_a_disk_that_is_full_stops_the_maintenance_of_one_table(new_workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = new_workspace({"s": {"source": "lake/source"}}, spark=False)
    for number in range(2):
        write_deltalake(workspace.configuration.streams["s"].source, pa.table({"n": [number]}), mode="append")
        run_due(workspace, OpenGates())
    close = DeltaFile.close

    def full(file: DeltaFile) -> Any:
        if "s_tagged" in file._file.path:
            raise OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device")
        return close(file)

    def log_is_full(_workspace: Any, name: str) -> None:
        if name == "rules":
            raise OSError("Kernel error: Arrow error: No space left on device (os error 28)")

    monkeypatch.setattr(DeltaFile, "close", full)
    monkeypatch.setattr(lake_tables, "shorten_log", log_is_full)
    done = {each.table: each for each in maintain(workspace)}
    assert done["runs"].merged and not done["runs"].error
    assert done["rules"].notes == ["The table rules is not maintained: no space is left on the disk."]
    told = f"The table s_tagged at {workspace.lake.uri('s_tagged')} cannot be maintained: no space is left on the disk."
    assert str(done["s_tagged"].error).startswith(told)
    assert workspace.lake.arrow("s_tagged").num_rows == 2


def test_a_file_that_another_run_removes_meanwhile_is_no_error(new_workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = new_workspace({"s": {"source": "lake/source"}}, spark=False)
    write_deltalake(workspace.configuration.streams["s"].source, pa.table({"n": [1]}))
    run_due(workspace, OpenGates())
    file, walk = Path(workspace.lake.uri("s_tagged"), "removed.parquet"), os.walk

    def walked(top: str) -> Any:
        found = list(walk(top))
        file.unlink(missing_ok=True)
        return found

    file.write_bytes(b"")
    monkeypatch.setattr(os, "walk", lambda top: walked(top) if top.endswith("s_tagged") else walk(top))
    assert not any(each.error for each in maintain(workspace)) and not file.exists()
