"""Ranges of rows, and rows that match only now, re-tagged without a JVM."""

from __future__ import annotations

import random
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake
from deltalake.transaction import AddAction

import rules_index as ri
from pipelines.errors import SourceError, TableError
from pipelines.lake.folder_log import FolderLog
from pipelines.lake.index_histories import NEW_RULES
from pipelines.retag import retag
from pipelines.tag import tag_stream
from tests.cases import cases, quick_first
from tests.tables import alter
from tests.unit.pipelines.local_retags import (
    AFTER,
    RETAGS,
    append,
    assert_like_anew,
    check_statistics,
    exploded,
    matched,
    prepared,
    read,
)
from tests.unit.pipelines.retagged_rows import (
    BEFORE,
    START,
    STEPS,
    DiedError,
    die_after,
    edited,
    random_rule,
    rows,
    write_rules,
)

pytestmark = pytest.mark.usefixtures("without_spark")


@pytest.mark.parametrize("seed", quick_first(0, range(cases(16, RETAGS))))
def test_ranges_of_event_times(make_retagged, seed: int) -> None:
    """Rows of the range as if all were tagged anew, the others as before, in both tables."""
    draw = random.Random(seed)
    workspace = make_retagged(**draw.choice([{}, {"partition_by": ["n"]}, {"cluster_by": ["t"]}]))
    rules = {f"r{number}": random_rule(draw) for number in range(8)}
    for start in range(0, 360, 90):
        append(workspace, start, start + 90)
        write_rules(workspace, rules)
        tag_stream(workspace, "s")
    for _ in range(2):
        before = {
            row["seq"]: (row["rule_ids"], row["rules_version"]) for row in read(workspace, "s_tagged").to_pylist()
        }
        rules = edited(draw, rules)
        write_rules(workspace, rules)
        low = draw.choice([None, START + timedelta(minutes=draw.randint(-60, 2400))])
        high = START + timedelta(minutes=draw.randint(600, 3700)) if low is None or draw.random() < 0.7 else None
        if low is not None and high is not None:
            low, high = sorted([low, high])
        with pytest.MonkeyPatch.context() as patch:
            if draw.random() < 0.5:
                die_after(patch, draw.choice(STEPS), FolderLog)
                with suppress(DiedError):  # where nothing changes, nothing is written
                    retag(workspace, "s", low and low.isoformat(), high and high.isoformat())
        retag(workspace, "s", low and low.isoformat(), high and high.isoformat())
        after = {row["seq"]: row for row in read(workspace, "s_tagged").to_pylist()}
        assert matched(workspace) == exploded(workspace)
        for name in ("s_tagged", "s_matches"):
            check_statistics(workspace, name)
        anew = expected(rules, 360)
        for seq, row in after.items():
            time = row["t"]
            inside = time is not None and (low is None or low <= time) and (high is None or time < high)
            assert row["rule_ids"] == (anew[seq] if inside else before[seq][0])
            assert inside or row["rules_version"] == before[seq][1]
    retag(workspace, "s")
    assert_like_anew(workspace)


def expected(rules, stop: int) -> dict[int, list[str]]:
    """What rows have by rules, without a lake."""
    texts, since, until = zip(*rules.values(), strict=True)
    time = pa.timestamp("us", "UTC")
    table = pa.table(
        {
            "rule_id": list(rules),
            "expression": texts,
            "valid_from": pa.array(since, time),
            "valid_to": pa.array(until, time),
        }
    )
    compiled = ri.compile_rules(table, rows(0, 1).schema, event_time="t", time_zone="UTC")
    return dict(enumerate(compiled.match(rows(0, stop)).to_pylist()))


@pytest.mark.slow
def test_only_files_of_the_range_are_read(make_retagged) -> None:
    workspace = prepared(make_retagged)
    result = retag(workspace, "s", "2024-03-09T10:00", "2024-03-09T11:00")
    assert (result.files_read, result.files_written) == (1, 1)


@pytest.mark.slow
def test_rows_that_match_only_now_come_from_the_source(make_retagged) -> None:
    """With later columns, without rows that went to quarantine; and it is told where the source's files are gone."""
    workspace = make_retagged(output="matched", checks={"small": "n < 15"}, max_quarantine_share=1)
    source = workspace.configuration.streams["s"].source
    append(workspace, 0, 120)
    write_rules(workspace, {"one": "n = 1"})
    tag_stream(workspace, "s")
    wider = rows(120, 160).append_column("later", pa.array(["x"] * 40))
    write_deltalake(source, wider, mode="append", schema_mode="merge")
    tag_stream(workspace, "s")
    write_rules(workspace, {"one": "n = 1", "many": "n > 9 OR later = 'x'"})
    before = read(workspace, "s_tagged").num_rows
    result = retag(workspace, "s")
    assert result.rows_changed > 40
    assert read(workspace, "s_tagged").num_rows == before + sum(
        r["rule_ids"] == ["many"] for r in read(workspace, "s_tagged").to_pylist()
    )
    assert all(r["n"] is None or r["n"] < 15 for r in read(workspace, "s_tagged").to_pylist())
    assert_like_anew(workspace)
    write_rules(workspace, {"one": "n = 1"})
    retag(workspace, "s")
    assert_like_anew(workspace)
    for path in DeltaTable(source).file_uris():
        Path(path).unlink()
    write_rules(workspace, {"one": "n = 1", "many": "n > 9"})
    with pytest.raises(SourceError, match=r"no longer exist .* deltatag tag s --restart"):
        retag(workspace, "s")


@pytest.mark.slow
def test_rows_that_were_deleted_do_not_come_back(make_retagged) -> None:
    """They are still in the files from which rows that match only now would be read."""
    workspace = make_retagged(output="matched")
    append(workspace, 0, 120)
    write_rules(workspace, {"one": "seq = 1"})
    tag_stream(workspace, "s")
    DeltaTable(workspace.configuration.streams["s"].source).delete("seq = 3")
    tag_stream(workspace, "s", skip_changes=True)
    write_rules(workspace, {"one": "seq = 1", "early": "seq < 5"})
    with pytest.raises(TableError, match=r"deleted rows would come back.* deltatag tag s --restart"):
        retag(workspace, "s")
    tag_stream(workspace, "s", restart=True)
    assert sorted(read(workspace, "s_tagged")["seq"].to_pylist()) == [0, 1, 2, 4]


@pytest.mark.slow
def test_a_micro_batch_without_rows_leaves_nothing_out(make_retagged) -> None:
    workspace = make_retagged(output="matched")
    source = workspace.configuration.streams["s"].source
    append(workspace, 0, 20)
    write_rules(workspace, {"one": "n = 1"})
    tag_stream(workspace, "s")
    empty = Path(source) / "empty.parquet"
    pq.write_table(rows(0, 1).slice(0, 0), empty)
    table = DeltaTable(source)
    add = AddAction(empty.name, empty.stat().st_size, {}, 0, True, "{}")  # no statistics tell that it is empty
    table.create_write_transaction([add], mode="append", schema=table.schema(), partition_by=[])
    tag_stream(workspace, "s")
    write_rules(workspace, {"one": "n = 1", "more": "n > 9"})
    assert retag(workspace, "s").rows_changed > 0
    assert_like_anew(workspace)


@pytest.mark.slow
def test_a_text_that_the_same_index_replaces_later_is_known_to_be_replaced(make_retagged) -> None:
    """The index that has tagged rows without a text of its own replaces theirs once the rule is new to others."""
    workspace = make_retagged(output="matched")
    first, second = {"r": "seq < 10", "n": "seq = 40"}, {"r": "seq BETWEEN 20 AND 30", "n": "seq = 40"}
    for start, rules in ((0, {"r": "seq < 10"}), (60, {"n": "seq = 40"})):
        append(workspace, start, start + 60)
        write_rules(workspace, rules)
        tag_stream(workspace, "s")
        write_rules(workspace, second)
        retag(workspace, "s", mode=NEW_RULES)
    write_rules(workspace, first)
    retag(workspace, "s")
    assert_like_anew(workspace)


@pytest.mark.slow
@pytest.mark.parametrize(("before", "now"), [("all", "matched"), ("matched", "all")])
def test_rows_tagged_with_another_output_are_not_retagged(make_retagged, before: str, now: str) -> None:
    """Else rows that have lost their last id would be gone where only "matched" looks for them, or stored twice."""
    workspace = make_retagged(output=before)
    append(workspace, 0, 60)
    write_rules(workspace, {"r": "n < 3"})
    tag_stream(workspace, "s")
    write_rules(workspace, {"r": "n > 7"})
    changed = make_retagged(output=now)
    with pytest.raises(TableError, match="--restart"):
        retag(changed, "s")
    retag(make_retagged(output=before), "s")
    tag_stream(changed, "s", restart=True)
    write_rules(changed, {"r": "n < 3"})
    retag(changed, "s")
    assert_like_anew(changed)


@pytest.mark.slow
def test_many_small_micro_batches_give_few_files(make_retagged) -> None:
    workspace = make_retagged(output="matched")
    for start in range(0, 240, 20):
        append(workspace, start, start + 20)
        write_rules(workspace, {"one": "n = 1"})
        tag_stream(workspace, "s")
    write_rules(workspace, {"one": "n = 1", "two": "n = 2"})
    assert retag(workspace, "s").files_written <= 2
    assert_like_anew(workspace)


def test_a_source_that_spark_alone_reads_has_spark_retag(make_retagged, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only rows that were left out are read from it: that it is needed shows late."""
    workspace = make_retagged(output="matched")
    append(workspace, 0, 60)
    write_rules(workspace, BEFORE)
    tag_stream(workspace, "s")
    write_rules(workspace, AFTER)
    source = DeltaTable(workspace.configuration.streams["s"].source)
    source.alter.add_feature(TableFeatures.ColumnMapping, allow_protocol_versions_increase=True)
    told: list[str] = []
    monkeypatch.setattr(workspace, "progress", told.append)
    with pytest.raises(AssertionError):
        retag(workspace, "s")
    assert told == ["the re-tag of s goes through Spark because the source of s has the table feature columnMapping"]


@pytest.mark.slow
def test_ids_may_be_numbers_and_no_key_is_needed(make_retagged) -> None:
    workspace = make_retagged("bigint", key=[])
    append(workspace, 0, 60)
    write_rules(workspace, {1: "n > 2", 20: "n < 2"})
    tag_stream(workspace, "s")
    write_rules(workspace, {1: "n > 2", 3: "seq < 10"})
    retag(workspace, "s")
    for row in read(workspace, "s_tagged").to_pylist():
        assert row["rule_ids"] == [1] * (row["n"] is not None and row["n"] > 2) + [3] * (row["seq"] < 10)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["s_tagged", "s_matches"])
def test_a_table_that_only_takes_new_rows_is_not_retagged(make_retagged, name: str) -> None:
    workspace = prepared(make_retagged)
    version = workspace.lake.version("s_tagged")
    alter(workspace.lake.uri(name), properties={"delta.appendOnly": "true"})
    cure = f"ALTER TABLE {name} SET TBLPROPERTIES \\('delta.appendOnly' = 'false'\\)"
    with pytest.raises(TableError, match=f"The table {name} is append-only.*{cure}"):
        retag(workspace, "s")
    assert workspace.lake.version("s_tagged") == version + (name == "s_tagged")
    append(workspace, 120, 140)
    tag_stream(workspace, "s")
    alter(workspace.lake.uri(name), properties={"delta.appendOnly": "false"})
    assert retag(workspace, "s").rows_changed
    assert_like_anew(workspace)
