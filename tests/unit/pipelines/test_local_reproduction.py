"""Tags of an older version of the rules, in a table of their own, without a JVM."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

from deltatag.lines import retag_line
from pipelines.error_texts import first_line
from pipelines.errors import ConfigurationError, TableError
from pipelines.lake.folder_log import FolderLog
from pipelines.retag import reproduce_tags, retag
from pipelines.tag import tag_stream
from tests import lakes
from tests.unit.pipelines.local_retags import AFTER, append, check_statistics, prepared, read
from tests.unit.pipelines.retagged_rows import BEFORE, rows, write_rules

OUTPUTS = pytest.mark.parametrize("output", ["all", "matched"])
TABLE = "as_it_was"


def tags(workspace, name: str) -> list[tuple]:
    frame = pl.DataFrame(pl.from_arrow(read(workspace, name)))
    frame = frame.drop("rules_version", "index_fingerprint", "tagged_at")
    return sorted(map(repr, frame.select(sorted(frame.columns)).rows()))


def files(workspace) -> set[str]:
    """The files in the table's folder that are in no version of it."""
    folder = Path(workspace.lake.uri(TABLE))
    named = (
        {Path(each).name for each in DeltaTable(str(folder)).file_uris()} if (folder / "_delta_log").exists() else set()
    )
    return {path.name for path in folder.glob("*.parquet")} - named


@pytest.mark.slow
@OUTPUTS
@pytest.mark.parametrize("id_type", ["string", "bigint"])
def test_rows_are_those_that_the_version_tagged(make_retagged, output: str, id_type: str) -> None:
    workspace = make_retagged(id_type, output=output)
    append(workspace, 0, 120)
    number = id_type == "bigint"
    before, after = (
        {n if number else rule: text for n, (rule, text) in enumerate(each.items())} for each in (BEFORE, AFTER)
    )
    write_rules(workspace, before)
    version = tag_stream(workspace, "s").rules_version
    expected = tags(workspace, "s_tagged")
    write_rules(workspace, after)
    retag(workspace, "s")
    now = tags(workspace, "s_tagged")
    assert now != expected
    for repeated in range(2):
        result = reproduce_tags(workspace, "s", version, TABLE)
        assert tags(workspace, TABLE) == expected
        assert (result.rows_changed, result.rules_version) == (len(expected), version)
        assert len(DeltaTable(workspace.lake.uri(TABLE)).file_uris()) == result.files_written
        assert repeated or files(workspace) == set()
        assert retag_line(result, TABLE).startswith(f"s into {TABLE}: ")
    check_statistics(workspace, TABLE)
    found = pl.DataFrame(pl.from_arrow(read(workspace, TABLE)))
    assert found.columns == pl.DataFrame(pl.from_arrow(read(workspace, "s_tagged"))).columns
    assert found["rules_version"].unique().to_list() == [version]
    assert found["index_fingerprint"].n_unique() == 1
    assert tags(workspace, "s_tagged") == now


@pytest.mark.slow
def test_a_range_of_event_times(make_retagged) -> None:
    workspace = prepared(make_retagged)
    version = workspace.lake.version("rules") - 1
    times = pl.DataFrame(pl.from_arrow(read(workspace, "s_tagged")))["t"].drop_nulls().sort()
    since, until = times[20], times[60]
    reproduce_tags(workspace, "s", version, TABLE, since.isoformat(), until.isoformat())
    found = pl.DataFrame(pl.from_arrow(read(workspace, TABLE)))
    assert found["t"].sort().to_list() == [each for each in times if since <= each < until]


@pytest.mark.slow
def test_columns_that_came_later_and_rows_in_quarantine(make_retagged) -> None:
    workspace = make_retagged(output="matched", checks={"small": "n < 15"}, max_quarantine_share=1)
    source = workspace.configuration.streams["s"].source
    append(workspace, 0, 60)
    write_rules(workspace, {"one": "n > 8"})
    tag_stream(workspace, "s")
    wider = rows(60, 90)
    write_deltalake(source, wider.append_column("later", wider["w"]), mode="append", schema_mode="merge")
    tag_stream(workspace, "s")
    write_rules(workspace, {"one": "n > 8", "late": "later = 'x' OR n = 3"})
    retag(workspace, "s")
    expected = tags(workspace, "s_tagged")
    reproduce_tags(workspace, "s", workspace.lake.version("rules"), TABLE)
    assert tags(workspace, TABLE) == expected


@pytest.mark.slow
def test_rows_that_an_earlier_output_left_out_come_from_the_source(make_retagged) -> None:
    prepared(make_retagged, output="matched")
    workspace = make_retagged()
    append(workspace, 120, 150)
    tag_stream(workspace, "s")
    reproduce_tags(workspace, "s", workspace.lake.version("rules"), TABLE)
    tag_stream(workspace, "s", restart=True)
    assert tags(workspace, TABLE) == tags(workspace, "s_tagged")


@pytest.mark.slow
def test_a_rule_that_does_not_compile_is_left_out_and_named(make_retagged) -> None:
    workspace = prepared(make_retagged)
    expected = tags(workspace, "s_tagged")
    write_rules(workspace, {**BEFORE, "wrong": "nothing > 3"})
    (notice,) = reproduce_tags(workspace, "s", workspace.lake.version("rules"), TABLE).notices
    assert "match no row: wrong (There is no column 'nothing'" in notice
    assert tags(workspace, TABLE) == expected


@pytest.mark.slow
@OUTPUTS
def test_a_write_that_fails_leaves_the_table_as_it_was(
    make_retagged, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    workspace = prepared(make_retagged, output=output)
    version = workspace.lake.version("rules") - 1
    reproduce_tags(workspace, "s", version, TABLE)
    before = tags(workspace, TABLE)

    def full(*_args: Any, **_named: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", full)
        with pytest.raises(TableError, match="space"):
            reproduce_tags(workspace, "s", version + 1, TABLE)
    assert tags(workspace, TABLE) == before and files(workspace) == set()
    reproduce_tags(workspace, "s", version + 1, TABLE)
    assert tags(workspace, TABLE) != before


def test_other_tables_are_not_replaced(make_retagged) -> None:
    workspace = prepared(make_retagged)
    write_deltalake(workspace.lake.uri("others"), rows(0, 5).select(["seq"]))
    for name in ("rules", "s_tagged", "no name", "S_MATCHES", "others"):
        with pytest.raises(ConfigurationError) as refused:
            reproduce_tags(workspace, "s", 1, name)
        assert "--into" in first_line(refused.value) or "name of a table" in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, told", [("plain_file", "there is a file, and no table"), ("n" * 256, "has 256 characters")]
)
def test_names_that_no_folder_can_have(make_retagged, name: str, told: str) -> None:
    workspace = prepared(make_retagged)
    Path(workspace.lake.uri("plain_file")).write_text("mine")
    with pytest.raises(ConfigurationError, match=f"{told}.*give --into"):
        reproduce_tags(workspace, "s", 1, name)
    assert Path(workspace.lake.uri("plain_file")).read_text() == "mine"
    assert reproduce_tags(workspace, "s", 1, "n" * 255).rows_changed


@pytest.mark.slow
def test_rules_that_only_spark_evaluates_are_left_to_it(make_retagged) -> None:
    workspace = prepared(make_retagged)
    lakes.write_rules(workspace, [("odd", "s", "soundex(w) = 'X000'")])
    with pytest.raises(AssertionError, match="Spark was asked for"):
        reproduce_tags(workspace, "s", workspace.lake.version("rules"), TABLE)
    assert not FolderLog(workspace.lake.uri(TABLE)).folder.exists()


@pytest.mark.slow
@OUTPUTS
def test_a_table_that_asks_more_of_its_files_is_left_to_spark(make_retagged, output: str) -> None:
    workspace = prepared(make_retagged, output=output)
    workspace.lake.delta("s_tagged").alter.add_constraint({"few": "seq < 1000"})
    with pytest.raises(AssertionError, match="Spark was asked for"):
        reproduce_tags(workspace, "s", workspace.lake.version("rules"), TABLE)
    assert not FolderLog(workspace.lake.uri(TABLE)).folder.exists()


@pytest.mark.slow
def test_whoever_is_stopped_behind_the_commit_leaves_its_files(make_retagged, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = prepared(make_retagged)
    version, replace = workspace.lake.version("rules") - 1, FolderLog.replace

    def stopped(log: FolderLog, *arguments: Any) -> None:
        replace(log, *arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(FolderLog, "replace", stopped)
        reproduce_tags(workspace, "s", version, TABLE)
    expected = tags(workspace, "s_tagged")
    assert tags(workspace, TABLE) == expected
