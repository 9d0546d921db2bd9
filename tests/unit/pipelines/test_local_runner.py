"""Streams tagged without a JVM: against brute force, through kills between all writes, and what is left to Spark."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.compile import compile_scopes
from pipelines.errors import IndexOutdatedError, SourceChangedError, SparkRuledOutError, TableError
from pipelines.lake import runs
from pipelines.lake.folder_log import FolderLog
from pipelines.lake.runs import batches
from pipelines.lint import lint_scopes
from pipelines.retag import retag
from pipelines.settings.configuration import parse_configuration
from pipelines.sources import pieces
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from rules_index.index.compiled import CompiledRules
from tests.cases import quick_first

FIRST = datetime(2024, 3, 30, 12, tzinfo=UTC)
RULES = (
    ("big", "s", "amount > 50"),
    ("named", "s", "name IN ('n1', 'n2') AND NOT flag"),
    ("none", "s", "amount IS NULL"),
    ("overflows", "s", "id + 9223372036854775800 > 0"),
    {"rule_id": "late", "scope": "s", "expression": "TRUE", "valid_from": FIRST + timedelta(hours=2)},
)


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": pa.array([None if n % 97 == 13 else n for n in numbers], pa.int64()),
            "name": pa.array([f"n{n % 5}" for n in numbers]),
            "amount": pa.array([None if n % 11 == 0 else Decimal(n % 100) for n in numbers], pa.decimal128(10, 2)),
            "flag": pa.array([n % 3 == 0 for n in numbers]),
            "day": pa.array([date(2024, 1, 1 + n % 3) for n in numbers]),
            "t": pa.array([FIRST + timedelta(minutes=n) for n in numbers], pa.timestamp("us", "UTC")),
        }
    )


def wanted(table: pa.Table) -> dict[int, list[str]]:
    """The rule ids of each row that is tagged, by its id."""
    found = {}
    for row in table.to_pylist():
        if row["id"] is None or not row["name"] < "n4":
            continue
        ids = {
            "big": row["amount"] is not None and row["amount"] > 50,
            "named": row["name"] in ("n1", "n2") and not row["flag"],
            "none": row["amount"] is None,
            "overflows": row["id"] + 9223372036854775800 < 2**63,
            "late": row["t"] >= FIRST + timedelta(hours=2),
        }
        found[row["id"]] = sorted(rule for rule, holds in ids.items() if holds)
    return found


@pytest.fixture
def make(new_workspace, add_rules):
    def made(partition_by: list[str] | None = None, id_type: str = "string", **stream: Any) -> Workspace:
        settings = {"source": "lake/source", "key": ["ID"], "event_time": "t", "checks": {"named": "name < 'n4'"}}
        workspace = new_workspace({"s": settings | stream}, {"time_zone": "Europe/Berlin"}, id_type, spark=False)
        write_deltalake(workspace.configuration.streams["s"].source, rows(0, 200), partition_by=partition_by)
        if id_type == "string":
            add_rules(workspace, *RULES)
            compile_scopes(workspace)
        return workspace

    return made


def append(workspace: Workspace, first: int, count: int) -> None:
    write_deltalake(workspace.configuration.streams["s"].source, rows(first, count), mode="append")


def assert_exact(workspace: Workspace, count: int, output: str = "all") -> None:
    """The three tables hold what brute force says of the source's first rows, each row once."""
    lake, expected = workspace.lake, wanted(rows(0, count))
    tagged = pl.DataFrame(pl.from_arrow(lake.arrow("s_tagged")))
    found = {row["id"]: row["rule_ids"] for row in tagged.iter_rows(named=True)}
    kept = {key: ids for key, ids in expected.items() if ids or output == "all"}
    assert found == kept
    assert tagged.height == len(kept)
    pairs = Counter((row["id"], row["rule_id"]) for row in lake.arrow("s_matches", ["id", "rule_id"]).to_pylist())
    assert pairs == Counter((key, rule) for key, ids in expected.items() for rule in ids)
    refused = lake.arrow("quarantine_s").to_pylist()
    table = rows(0, count)
    assert len(refused) == count - len(expected)
    for row in refused:
        told = ["the key id is NULL"] if row["id"] is None else []
        told += ["the check named is FALSE"] if not row["name"] < "n4" else []
        assert row["reason"] == "; ".join(told)
    assert sum(batch.rows or 0 for batch in batches(lake, "s")) == table.num_rows


@pytest.mark.parametrize("partition_by", quick_first(1, [["name", "flag"], None, ["day"]]))
@pytest.mark.parametrize("output", ["all", "matched"])
def test_all_rows_are_tagged_as_brute_force_tags_them(make, partition_by, output) -> None:
    workspace = make(partition_by, output=output)
    first = tag_stream(workspace, "s")
    assert (first.rows, first.batches) == (200, 1)
    append(workspace, 200, 150)
    second = tag_stream(workspace, "s")
    assert second.rows == 150
    assert second.errors["overflows"] > 0
    assert tag_stream(workspace, "s").batches == 0
    assert_exact(workspace, 350, output)
    assert DeltaTable(workspace.lake.uri("s_tagged")).metadata().partition_columns == (partition_by or [])
    assert "pyspark" not in sys.modules or not workspace.is_given


@pytest.mark.slow
def test_many_small_row_groups_go_to_several_threads(make, monkeypatch) -> None:
    monkeypatch.setattr(pieces, "_PIECE_BYTES", 1)
    monkeypatch.setattr(pieces.os, "cpu_count", lambda: 4)
    workspace = make()
    for first in range(200, 1_000, 100):
        append(workspace, first, 100)
    tag_stream(workspace, "s")
    assert len(DeltaTable(workspace.lake.uri("s_tagged")).file_uris()) == 4
    assert_exact(workspace, 1_000)


@pytest.mark.slow
@pytest.mark.parametrize("partition_by", [None, ["name"]])
def test_the_rows_of_many_small_files_are_matched_together(make, monkeypatch, partition_by) -> None:
    sizes = []
    match = CompiledRules.match_ordinals

    def counted(compiled: CompiledRules, batch: pa.RecordBatch) -> Any:
        sizes.append(len(batch))
        return match(compiled, batch)

    monkeypatch.setattr(CompiledRules, "match_ordinals", counted)
    workspace = make(partition_by, checks={}, key=[])
    for first in range(200, 320, 6):
        append(workspace, first, 6)
    tag_stream(workspace, "s")
    assert sizes == [320]
    found = {row["t"]: row for row in workspace.lake.arrow("s_tagged").to_pylist()}
    assert len(found) == 320
    expected = wanted(rows(0, 320))
    for row in rows(0, 320).to_pylist():
        assert {name: found[row["t"]][name] for name in row} == row
        if row["id"] in expected:
            assert found[row["t"]]["rule_ids"] == expected[row["id"]]


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("at", quick_first(1, (1, 5, 8, 0, 3, 10, 2, 4, 6, 7, 9, 11), 6))
def test_a_run_that_is_killed_between_any_two_writes_is_repeated(make, add_rules, monkeypatch, at) -> None:
    workspace = make(max_bytes_per_batch="1k")
    append(workspace, 200, 100)
    calls = 0
    put = FolderLog._put

    def dying(self: FolderLog, version: int, lines: Any) -> bool:
        nonlocal calls
        calls += 1
        if calls == at + 1:
            raise Killed
        done = put(self, version, lines)
        if calls == at + 2:
            raise Killed
        return done

    for _ in range(3):
        with monkeypatch.context() as patched:
            patched.setattr(FolderLog, "_put", dying)
            with contextlib.suppress(Killed):
                tag_stream(workspace, "s")
                continue
        # an edit meanwhile must not mix with what is written
        add_rules(workspace, (f"new{calls}", "s", "FALSE"))
        compile_scopes(workspace)
    tag_stream(workspace, "s")
    assert_exact(workspace, 300)


@pytest.mark.slow
@pytest.mark.parametrize("at", quick_first(1, (1, 0, 2, 3, 4, 5, 6, 7, 8)))
def test_a_restart_that_is_killed_between_any_two_writes_loses_no_row(make, monkeypatch, at: int) -> None:
    workspace = make()
    tag_stream(workspace, "s")
    append(workspace, 200, 100)
    put, left = FolderLog._put, 1

    def dying(*given: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed
        return put(*given)

    monkeypatch.setattr(FolderLog, "_put", dying)
    with pytest.raises(Killed):
        tag_stream(workspace, "s")  # planned, and not done
    left = at
    with contextlib.suppress(Killed):
        tag_stream(workspace, "s", restart=True)
    monkeypatch.setattr(FolderLog, "_put", put)
    tag_stream(workspace, "s")
    tagged = workspace.lake.arrow("s_tagged", ["id", "rule_ids"]).to_pylist()
    assert {row["id"]: row["rule_ids"] for row in tagged} == wanted(rows(0, 300))
    assert len(tagged) == len(wanted(rows(0, 300)))
    assert {each.state for each in batches(workspace.lake, "s")} == {runs.DONE}


@pytest.mark.slow
def test_two_runs_at_once_write_each_row_once(make, monkeypatch) -> None:
    workspace = make()
    append_to = FolderLog.append
    others: list[int] = []

    def other_first(self: FolderLog, *args: Any) -> bool:
        if not others:
            others.append(1)
            tag_stream(Workspace(workspace.configuration), "s")
        return append_to(self, *args)

    monkeypatch.setattr(FolderLog, "append", other_first)
    tag_stream(workspace, "s")
    assert_exact(workspace, 200)


def test_a_restart_empties_the_tables_and_tags_anew(make) -> None:
    workspace = make()
    tag_stream(workspace, "s")
    before = workspace.lake.version("s_tagged")
    append(workspace, 200, 30)
    tag_stream(workspace, "s", restart=True)
    lake = workspace.lake
    assert lake.arrow("s_tagged").num_rows == len(wanted(rows(0, 230)))
    assert lake.arrow("s_tagged", version=before).num_rows == len(wanted(rows(0, 200)))


@pytest.mark.slow
def test_a_restart_empties_a_table_that_is_no_longer_kept(make) -> None:
    workspace = make()
    tag_stream(workspace, "s")
    assert workspace.lake.arrow("s_matches").num_rows
    configuration = workspace.configuration
    stream = replace(configuration.streams["s"], matches=False)
    tag_stream(Workspace(replace(configuration, streams={"s": stream})), "s", restart=True)
    assert not workspace.lake.arrow("s_matches").num_rows


@pytest.mark.slow
def test_a_changed_source_stops_the_stream_as_through_spark(make) -> None:
    workspace = make()
    tag_stream(workspace, "s")
    DeltaTable(workspace.configuration.streams["s"].source).delete("id = 5")
    with pytest.raises(SourceChangedError, match="DELETE"):
        tag_stream(workspace, "s")
    append(workspace, 200, 10)
    assert tag_stream(workspace, "s", skip_changes=True).rows == 10


def local_only(workspace: Workspace, **streams: Any) -> Workspace:
    """The same lake, with no way to Spark."""
    configuration = workspace.configuration
    document = {
        "lake": {"root": "lake", "runner": "local"},
        "streams": {"s": {"source": "lake/source", "key": ["id"], "event_time": "t", **streams}},
    }
    return Workspace(parse_configuration(document, configuration.path))


@pytest.mark.slow
def test_a_changed_type_is_told_with_both_and_so_are_rows_of_before(make) -> None:
    """Of the other stream the rows were written before the change, and the rules were compiled after it."""
    workspace = make(max_bytes_per_batch=1)
    tag_stream(workspace, "s")
    append(workspace, 200, 10)
    other = rows(210, 10)
    place = other.schema.get_field_index("amount")
    changed = other.set_column(place, "amount", pa.array(range(10), pa.int32()))
    source = workspace.configuration.streams["s"].source
    both = pa.concat_tables([rows(0, 5).set_column(place, "amount", pa.array(range(5), pa.int32())), changed])
    write_deltalake(source, both, mode="overwrite", schema_mode="overwrite")
    local = local_only(workspace)
    compile_scopes(local)
    with pytest.raises(IndexOutdatedError, match=r"was DECIMAL\(10,2\) when the next rows .* deltatag tag s --restart"):
        tag_stream(local, "s")


def test_checks_read_fields_and_columns_with_odd_names(make) -> None:
    workspace = make(checks={"inner": "OUTER.part > 1", "odd": "`a``b` > 2", "dotted": "`c.d`.part > 3"})
    part = pa.array([{"part": n} for n in range(6)])
    odd = rows(0, 6).append_column("outer", part).append_column("a`b", part.field(0)).append_column("c.d", part)
    write_deltalake(workspace.configuration.streams["s"].source, odd, mode="overwrite", schema_mode="overwrite")
    tag_stream(local_only(workspace, checks=workspace.configuration.streams["s"].checks), "s")
    assert sorted(workspace.lake.arrow("s_tagged")["id"].to_pylist()) == [4, 5]
    refused = {row["id"]: row["reason"] for row in workspace.lake.arrow("quarantine_s").to_pylist()}
    assert refused[2] == "the check odd is FALSE; the check dotted is FALSE" and len(refused) == 4


@pytest.mark.slow
def test_ids_that_become_numbers_are_told(make, tmp_path) -> None:
    workspace = make()
    tag_stream(workspace, "s")
    numbered = pl.DataFrame({"rule_id": [1], "scope": ["s"], "expression": ["amount > 50"]})
    numbered.write_delta(
        workspace.lake.uri("rules"), mode="overwrite", delta_write_options={"schema_mode": "overwrite"}
    )
    compile_scopes(workspace)
    append(workspace, 200, 10)
    for attempt in (tag_stream, retag):
        with pytest.raises(TableError, match=r"STRING when s was tagged, and is BIGINT now.* tag s --restart"):
            attempt(workspace, "s")
    assert lint_scopes(workspace)[0].rules == 1
    tag_stream(workspace, "s", restart=True)
    assert set(workspace.lake.arrow("s_matches")["rule_id"].to_pylist()) == {1}


def test_what_only_spark_evaluates_is_told_with_its_rule(make, new_workspace) -> None:
    workspace = local_only(make(), checks={"odd": "soundex(name) <> 'x'"})
    with pytest.raises(SparkRuledOutError, match="the check odd"):
        tag_stream(workspace, "s")


@pytest.mark.slow
def test_a_feature_for_variants_needs_no_spark_where_there_are_none(make) -> None:
    workspace = local_only(make())
    source = workspace.configuration.streams["s"].source
    more = rows(200, 10)
    write_deltalake(
        source, more.append_column("ntz", more["t"].cast(pa.timestamp("us"))), mode="append", schema_mode="merge"
    )
    # delta-rs names the feature whenever it sets a property of a table that has named features
    DeltaTable(source).alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    assert "variantType" in (DeltaTable(source).protocol().reader_features or [])
    compile_scopes(workspace)
    assert tag_stream(workspace, "s").rows == 210


@pytest.mark.slow
@pytest.mark.parametrize("partition_by", [[], ["name"]])
def test_new_columns_are_added_behind_the_others(make, partition_by: list[str]) -> None:
    workspace = make(partition_by=partition_by)
    tag_stream(workspace, "s")
    before = workspace.lake.arrow("s_tagged")
    source = workspace.configuration.streams["s"].source
    more = rows(200, 10).append_column("extra", pa.array(["e"] * 10))
    write_deltalake(source, more, mode="append", schema_mode="merge")
    tag_stream(workspace, "s")
    write_deltalake(source, rows(300, 10), mode="append", schema_mode="merge")  # NULL there, and no change of columns
    tag_stream(workspace, "s")
    found = workspace.lake.arrow("s_tagged")
    assert found.column_names == [*before.column_names, "extra"]
    assert {row["id"]: row["extra"] for row in found.to_pylist()} == {
        row["id"]: "e" if 200 <= row["id"] < 210 else None
        for row in [*rows(0, 200).to_pylist(), *rows(200, 10).to_pylist(), *rows(300, 10).to_pylist()]
        if row["id"] is not None and row["name"] < "n4"
    }
    table = workspace.lake.delta("s_tagged")
    stored = [pq.ParquetFile(path).schema_arrow.names for path in table.file_uris()]
    assert all(each == [name for name in found.column_names if name in each] for each in stored)
    kept = found.filter(pc.is_in(found["id"], before["id"])).select(before.column_names)
    assert kept.sort_by("id").equals(before.sort_by("id"))


@pytest.mark.slow
def test_bigint_ids_and_no_rules(make, add_rules) -> None:
    workspace = make(id_type="bigint")
    compile_scopes(workspace)
    tag_stream(workspace, "s")
    assert set(map(tuple, workspace.lake.arrow("s_tagged")["rule_ids"].to_pylist())) == {()}
    add_rules(workspace, (7, "s", "flag"), (3, "s", "amount < 10"))
    compile_scopes(workspace)
    append(workspace, 200, 60)
    tag_stream(workspace, "s")
    found = {row["id"]: row["rule_ids"] for row in workspace.lake.arrow("s_tagged").to_pylist() if row["id"] >= 200}
    assert found == {
        row["id"]: ([3] if row["amount"] is not None and row["amount"] < 10 else []) + ([7] if row["flag"] else [])
        for row in rows(200, 60).to_pylist()
        if row["id"] is not None and row["name"] < "n4"
    }
