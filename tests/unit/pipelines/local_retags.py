"""Lakes whose rows are re-tagged without a JVM, and what is in their tables."""

from __future__ import annotations

import json
from collections import Counter

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from pipelines.lake.add_actions import live_files
from pipelines.lake.folder_log import FolderLog
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from tests.unit.pipelines.retagged_rows import BEFORE, rows, write_rules

RETAGS = "DELTATAG_RETAG_CASES"
AFTER = {"same": "w = 'x'", "changed": "n < 4 AND d > 1", "new": "n BETWEEN 5 AND 7"}
LATER = {"same": "w = 'x'", "new": "n BETWEEN 6 AND 9", "newer": "w IS NULL"}


def append(workspace: Workspace, start: int, stop: int) -> None:
    for first in range(start, stop, 60):
        write_deltalake(workspace.configuration.streams["s"].source, rows(first, min(first + 60, stop)), mode="append")


def read(workspace: Workspace, name: str) -> pa.Table:
    return DeltaTable(workspace.lake.uri(name)).to_pyarrow_table()


def tagged(workspace: Workspace) -> Counter:
    return Counter(
        repr((r["seq"], r["id"], r["d"], r["w"], r["rule_ids"])) for r in read(workspace, "s_tagged").to_pylist()
    )


def matched(workspace: Workspace) -> Counter:
    return Counter((r["rule_id"], r["id"], r["t"]) for r in read(workspace, "s_matches").to_pylist())


def exploded(workspace: Workspace) -> Counter:
    return Counter((rule, r["id"], r["t"]) for r in read(workspace, "s_tagged").to_pylist() for rule in r["rule_ids"])


def assert_like_anew(workspace: Workspace) -> None:
    found = tagged(workspace), matched(workspace)
    assert found[1] == exploded(workspace)
    for name in ("s_tagged", "s_matches"):
        check_statistics(workspace, name)
    tag_stream(workspace, "s", restart=True)
    assert found == (tagged(workspace), matched(workspace))


def check_statistics(workspace: Workspace, name: str) -> None:
    """What the log says of each file is true of it."""
    log = FolderLog(workspace.lake.uri(name))
    for add in live_files(log, log.latest().number) or []:
        frame = pl.read_parquet(log.file(add["path"]))
        stats = json.loads(add["stats"])
        assert stats["numRecords"] == frame.height
        known = [each for each in ("rules_version", "first_rule_id", "severity") if each in frame.columns]
        assert {each for each in known if frame[each].count()} <= stats["minValues"].keys()
        for column, low in stats["minValues"].items():
            if frame.schema[column].is_integer() or frame.schema[column] == pl.String:
                assert frame[column].min() == low or len(str(low)) == 64
        for column, nulls in stats["nullCount"].items():
            if column in frame.columns and not isinstance(nulls, dict):
                assert frame[column].null_count() == nulls


def prepared(make, **stream) -> Workspace:
    """Rows that are tagged by BEFORE, and an index of AFTER."""
    workspace = make(**stream)
    append(workspace, 0, 120)
    write_rules(workspace, BEFORE)
    tag_stream(workspace, "s")
    write_rules(workspace, AFTER)
    return workspace
