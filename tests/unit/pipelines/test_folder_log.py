"""Commits to the log of a table in a folder: appended files, added columns, and races."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.compile import compile_scopes
from pipelines.errors import NeedsSparkError
from pipelines.lake.delta_log import ChangedTableError
from pipelines.lake.folder_log import FolderLog
from pipelines.lake.folder_snapshot import Definition
from pipelines.maintaining.small_files import files_of
from pipelines.tag import tag_stream


class TestFolderLog:
    """Commits of appended files."""

    FIELDS = ({"name": "x", "type": "long", "nullable": True, "metadata": {}},)

    def log(self, tmp_path) -> FolderLog:
        log = FolderLog(str(tmp_path / "t"))
        assert log.create(Definition(self.FIELDS, cluster_by=("x",)))
        assert not log.create(Definition(self.FIELDS))
        return log

    def test_a_transaction_is_taken_once(self, tmp_path) -> None:
        log = self.log(tmp_path)
        assert log.append([], "a", 0)
        assert not log.append([], "a", 0)
        assert log.append([], "a", 1)
        assert log.append([], "b", 0)
        assert DeltaTable(log.uri).transaction_version("a") == 1

    def test_the_loser_of_a_race_finds_the_winners_transaction(self, tmp_path, monkeypatch) -> None:
        log, latest = self.log(tmp_path), FolderLog.latest
        stale = latest(log)
        assert log.append([], "a", 5)
        monkeypatch.setattr(FolderLog, "latest", lambda self: stale)
        assert not log.append([], "a", 5)
        assert log.append([], "a", 6)

    def test_a_link_that_is_made_before_its_request_is_repeated_is_a_commit(self, tmp_path, monkeypatch) -> None:
        """As by a network file system that loses an answer: it says that the file exists, which this process made."""
        log, link = self.log(tmp_path), os.link

        def repeated(source: Path, target: Path) -> None:
            link(source, target)
            link(source, target)

        monkeypatch.setattr(os, "link", repeated)
        before = log.latest().number
        assert log.append([], "a", 0)
        assert log.latest().number == before + 1
        assert not log.append([], "a", 0)

    def test_other_columns_meanwhile_are_a_conflict(self, tmp_path, monkeypatch) -> None:
        log, latest = self.log(tmp_path), FolderLog.latest
        stale = latest(log)
        log.replace(Definition((*self.FIELDS, {**self.FIELDS[0], "name": "y"})))
        monkeypatch.setattr(FolderLog, "latest", lambda self: stale)
        with pytest.raises(ChangedTableError):
            log.append([], "a", 0)

    @pytest.mark.parametrize(
        ("feature", "reader"), [("columnMapping", 2), ("columnMapping", 3), ("deletionVectors", 3), ("v2Checkpoint", 3)]
    )
    def test_a_table_of_which_readers_must_know_more_is_replaced_by_spark(
        self, tmp_path, feature: str, reader: int
    ) -> None:
        """A commit that keeps the feature, and does not tell readers of it, would make the table unreadable."""
        log = self.log(tmp_path)
        features = {"writerFeatures": [feature, "clustering", "domainMetadata"]}
        features |= {"readerFeatures": [feature]} if reader == 3 else {}
        protocol = {"protocol": {"minReaderVersion": reader, "minWriterVersion": 7, **features}}
        (log.folder / "_delta_log" / f"{1:020}.json").write_text(json.dumps(protocol))
        with pytest.raises(NeedsSparkError, match=feature):
            log.replace(Definition(self.FIELDS))
        assert log.latest().number == 1

    @pytest.mark.parametrize("set_to", ["true", "TRUE"])
    def test_a_table_that_keeps_the_times_of_its_commits_is_written_by_spark(self, tmp_path, set_to: str) -> None:
        """Delta keeps a property as it is written, and reads it in any case."""
        log = FolderLog(str(tmp_path / "t"))
        log.create(Definition(self.FIELDS, properties={"delta.enableInCommitTimestamps": set_to}))
        assert log.why_spark_commits(log.latest()) == "keeps the times of its commits"

    def test_the_loser_of_a_race_adds_columns_to_those_of_the_winner(self, tmp_path, monkeypatch) -> None:
        log, latest = self.log(tmp_path), FolderLog.latest
        stale, (x,) = latest(log), self.FIELDS
        log.add_columns([{**x, "name": "y"}])
        monkeypatch.setattr(FolderLog, "latest", lambda self: stale)
        log.add_columns([{**x, "name": "y"}, {**x, "name": "z"}])
        log.add_columns([{**x, "name": "z"}])
        assert (latest(log).number, [field["name"] for field in latest(log).fields]) == (2, ["x", "y", "z"])

    def test_files_that_another_program_has_removed_are_not_replaced(self, tmp_path) -> None:
        write_deltalake(tmp_path / "t", pa.table({"x": [1]}))
        log = FolderLog(str(tmp_path / "t"))
        stale = log.latest()
        files = log.files(stale)
        assert log.append([], "a", 0) and log.replace_files(stale, files, [])
        assert not log.replace_files(stale, files, [])
        with pytest.raises(ChangedTableError, match="has removed files of the table"):
            log.rewrite(stale.number, files, [], "b", 0)
        assert log.rewrite(log.latest().number, [], [], "b", 0) == 0
        assert log.rewrite(log.latest().number, [], [], "b", 0) is None
        assert log.latest().number == 3

    def test_a_series_that_is_given_up_writes_no_more(self, tmp_path) -> None:
        log = self.log(tmp_path)
        log.append([], "a", 3)
        assert log.fence("a", 3)
        assert not log.append([], "a", 4)
        assert log.fence("a", 3)
        assert not log.fence("b", 0)
        assert not log.append([], "b", 0)


def test_files_with_dates_that_python_lacks_are_listed_as_the_log_has_them(tmp_path) -> None:
    days = pa.array([-800000, 0, 2932897, None], pa.int32()).cast(pa.date32())
    write_deltalake(tmp_path, pa.table({"day": days, "d": days}), partition_by=["day"])
    log = FolderLog(str(tmp_path), bounds=True)
    written = [action["add"] for action in log.commit(0) or () if "add" in action]
    found = {add["path"]: add for add in log.files(log.latest())}
    assert {add["partitionValues"]["day"] for add in written} == {"-0221-09-04", "1970-01-01", "+10000-01-01", None}
    for add in written:
        same, stats = found[add["path"]], json.loads(add["stats"])
        assert same["partitionValues"] == add["partitionValues"]
        assert json.loads(same["stats"])["minValues"] == stats["minValues"]
    assert len(files_of(DeltaTable(tmp_path))) == 4


@pytest.mark.slow
def test_checkpoints_are_written_so_that_logs_are_read_in_one_piece(new_workspace, add_rules) -> None:
    workspace = new_workspace({"s": {"source": "lake/source"}}, spark=False)
    for number in range(13):
        write_deltalake(workspace.configuration.streams["s"].source, pa.table({"n": [number]}), mode="append")
        if not number:
            add_rules(workspace, ("a", "s", "n > 1"))
            compile_scopes(workspace)
        tag_stream(workspace, "s")
    folder = FolderLog(workspace.lake.uri("s_tagged")).folder / "_delta_log"
    assert list(folder.glob("*.checkpoint.parquet"))
    assert workspace.lake.arrow("s_tagged").num_rows == 13
