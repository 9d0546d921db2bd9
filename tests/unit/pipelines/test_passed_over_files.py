"""No file is passed over that has a row which a rule could want."""

from __future__ import annotations

import json
import random

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import rules_index as ri
from pipelines.lake.add_actions import live_files, may_match
from pipelines.lake.folder_log import FolderLog
from rules_index.implication.widening import widen
from tests.cases import SOAK, cases
from tests.lakes import rules_table
from tests.unit.pipelines.retagged_rows import random_rule, rows


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(cases(40) if SOAK else cases(20)))
def test_no_file_is_passed_over_that_has_a_row(tmp_path, seed: int) -> None:
    draw = random.Random(seed)
    for part in range(6):
        write_deltalake(str(tmp_path), rows(part * 40, part * 40 + draw.randint(1, 40)), mode="append")
    if draw.random() < 0.5:
        DeltaTable(str(tmp_path)).create_checkpoint()
        write_deltalake(str(tmp_path), rows(300, 340), mode="append")
    log = FolderLog(str(tmp_path))
    files = live_files(log, log.latest().number)
    assert files is not None and len(files) == len(DeltaTable(str(tmp_path)).file_uris())
    schema = rows(0, 1).schema
    passed = 0
    for _ in range(20):
        text, since, until = random_rule(draw)
        rule = {"rule_id": "r", "expression": text, "valid_from": since, "valid_to": until}
        table = rules_table([rule]).select(list(rule))
        wanted = [widen(table, schema, 4, "t")]
        compiled = ri.compile_rules(table, schema, event_time="t")
        for add in files:
            found = compiled.match(pl.read_parquet(log.file(add["path"])).to_arrow())
            if not may_match(add, wanted):
                passed += 1
                assert not np.diff(found.offsets.to_numpy()).any(), (text, add)
    assert passed


@pytest.mark.parametrize(
    ("condition", "may"), [("t > TIMESTAMP'2024-01-01'", True), ("t < TIMESTAMP'0001-01-01 00:00:00.001'", False)]
)
def test_a_file_with_the_last_moment_there_is(condition: str, may: bool) -> None:
    bounds = {"t": "9999-12-31T23:59:59.999Z"}
    add = {"stats": json.dumps({"numRecords": 1, "minValues": bounds, "maxValues": bounds, "nullCount": {"t": 0}})}
    assert may_match(add, [widen([(1, condition)], pa.schema([("t", pa.timestamp("us", "UTC"))]))]) is may
