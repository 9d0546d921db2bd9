"""Random histories of everything that a re-tag follows: rules, annotations, lists, columns, time zones, engines."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.errors import TableError
from pipelines.lake.folder_log import FolderLog
from pipelines.retag import retag
from pipelines.settings.configuration import parse_configuration
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from tests.cases import cases, quick_first
from tests.unit.pipelines.local_retags import RETAGS, append, assert_like_anew, exploded, matched, read
from tests.unit.pipelines.random_histories import (
    ANNOTATIONS,
    COLUMNS,
    ENGINES,
    LISTS,
    History,
    compile_in_changes,
    later_columns,
)
from tests.unit.pipelines.retagged_rows import (
    START,
    STEPS,
    STREAM,
    DiedError,
    bounded,
    die_after,
    random_rule,
    rows,
    write_rules,
)

pytestmark = pytest.mark.usefixtures("without_spark")
ZONES = ("UTC", "America/New_York", "Asia/Kolkata")


@dataclass
class StreamHistory(History):
    """A lake with one stream, and its random edits."""

    make: Any = None
    columns: list[str] = field(default_factory=list)
    end: int = 0

    def __post_init__(self) -> None:
        draw = self.draw
        self.bigint = draw.random() < 0.5
        self.zone = "UTC"
        stream = {"source": "lake/source", "key": ["id"], "event_time": "t", **self.settings}
        lists = {name: {"source": f"lake/{name}"} for name in LISTS}
        self.workspace = self.make(
            {"s": stream}, None, "bigint" if self.bigint else "string", False, None, "local", lists
        )
        self.document = {
            "lake": {"root": str(self.workspace.configuration.lake.root), "runner": "local"},
            "streams": {"s": stream},
            "lists": lists,
        }
        for _ in range(3):
            self.edit_rules()

    def source(self) -> str:
        return self.workspace.configuration.streams["s"].source

    def append(self) -> None:
        first, self.end = self.end, self.end + self.draw.randint(1, 90)
        batch = rows(first, self.end)
        for name, column in later_columns(self.columns, range(first, self.end)).items():
            batch = batch.append_column(name, column)
        write_deltalake(self.source(), batch, mode="append", schema_mode="merge")

    def rule(self) -> dict[str, Any]:
        draw = self.draw
        special = [
            "w IN LIST('words')",
            "n NOT IN LIST('numbers') AND w = 'x'",
            f"n IN LIST('numbers') OR seq = {draw.randint(0, 200)}",
            f"c > {draw.randint(0, 8)}",
            f"e = '{draw.randint(0, 8)}'",
            f"u.a BETWEEN 2 AND {draw.randint(2, 8)}",
            f"u.b = {draw.randint(0, 8)} OR u.a IS NULL AND n > 9",
            f"hour(t) = {draw.randint(0, 23)}",
            "date_trunc('DAY', t) > TIMESTAMP'2024-03-10'",
            f"n > {draw.randint(0, 20)} ",
            "n >",
            f"n / (n - {draw.randint(0, 20)}) > 1",
        ]
        text, since, until = bounded(draw, draw.choice(special)) if draw.random() < 0.6 else random_rule(draw)
        return {"scope": "s", "expression": text, "valid_from": since, "valid_to": until}

    def add_column(self) -> None:
        if len(self.columns) < len(COLUMNS):
            self.columns.append(COLUMNS[len(self.columns)])
            self.append()

    def configure(self) -> None:
        """The time zone decides what rules mean; rows of an unknown meaning cannot be brought up to date locally if
        they have annotations, or if unmatched rows are not stored."""
        draw = self.draw
        if self.settings["output"] == "all" and not self.settings["annotations"]:
            self.zone = draw.choice(ZONES)
        rules = {"time_zone": self.zone, "engine": draw.choice(ENGINES)}
        document = self.document | {"rules": rules}
        self.workspace = Workspace(parse_configuration(document, self.workspace.configuration.path), None)

    def retag(self, whole: bool = False) -> None:
        draw, since = self.draw, None
        if not whole and self.settings["output"] == "all" and draw.random() < 0.3:
            since = (START + timedelta(hours=draw.randint(0, 30))).isoformat()
        if draw.random() < 0.3:
            with pytest.MonkeyPatch.context() as patch, suppress(DiedError, TableError):
                die_after(patch, draw.choice(STEPS), FolderLog)
                retag(self.workspace, "s", since)
        retag(self.workspace, "s", since)

    def tag(self) -> None:
        tag_stream(self.workspace, "s")

    def steps(self) -> list[Callable[[], Any]]:
        more = [self.edit_rules] * 4 + [self.edit_list] * 2 + [self.append] * 2 + [self.compile] * 3 + [self.tag] * 3
        # Spark merges the files of clustered tables
        fold = partial(self.fold, merges="cluster_by" not in self.settings)
        return [*more, *[self.retag] * 3, self.add_column, self.configure, fold]

    def expected(self) -> dict[int, list[Any]]:
        """The ids of each row that is tagged, by `scan` over rules and lists as they are now."""
        table = DeltaTable(self.source()).to_pyarrow_table()
        found = zip(table["seq"].to_pylist(), table["id"].to_pylist(), self.matched("s", table, "t"), strict=True)
        every = self.settings["output"] == "all"
        return {seq: those for seq, key, those in found if key is not None and (those or every)}


def annotated(workspace: Workspace) -> dict[int, Any]:
    names = ("rule_ids", *ANNOTATIONS, *COLUMNS)
    return {r["seq"]: [r.get(name) for name in names] for r in read(workspace, "s_tagged").to_pylist()}


@pytest.mark.slow
@pytest.mark.parametrize("is_range", [False, True])
def test_another_time_zone_replaces_all_ids(make_retagged: Any, is_range: bool) -> None:
    """It is not known which ids rows would keep; those of a rule that is gone meanwhile leave, too."""
    workspace = make_retagged()
    append(workspace, 0, 150)
    write_rules(workspace, {"gone": "n > 3", "hour": "hour(t) = 4", "same": "w = 'x'"})
    tag_stream(workspace, "s")
    source = workspace.configuration.path.parent / "lake"
    document = {
        "lake": {"root": str(source)},
        "streams": {"s": STREAM},
        "rules": {"time_zone": "Asia/Kolkata"},
    }
    workspace = Workspace(parse_configuration(document, workspace.configuration.path), None)
    write_rules(workspace, {"hour": "hour(t) = 4", "same": "w = 'x'"})
    if is_range:
        assert retag(workspace, "s", "2024-03-09T12:00:00Z").rows_changed
        assert matched(workspace) == exploded(workspace)
    assert retag(workspace, "s").rows_changed
    assert retag(workspace, "s").rows_changed == 0
    assert_like_anew(workspace)


@pytest.mark.slow
@pytest.mark.parametrize("output", ["all", "matched"])
def test_a_rule_reads_a_column_that_only_the_source_has(make_retagged: Any, output: str) -> None:
    workspace = make_retagged(output=output)
    append(workspace, 0, 90)
    write_rules(workspace, {"same": "w = 'x'"})
    tag_stream(workspace, "s")
    more = rows(90, 120).append_column("c", pa.array([1] * 30))
    write_deltalake(workspace.configuration.streams["s"].source, more, mode="append", schema_mode="merge")
    write_rules(workspace, {"same": "w = 'x'", "null": "c IS NULL AND n > 12", "one": "c = 1"})
    assert retag(workspace, "s").rows_changed
    assert "c" not in read(workspace, "s_tagged").column_names
    tag_stream(workspace, "s")
    assert_like_anew(workspace)


@pytest.mark.parametrize("seed", quick_first(0, range(cases(8, RETAGS))))
def test_random_histories(new_workspace: Any, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    draw = random.Random(seed)
    settings = {
        "output": draw.choice(["all", "matched"]),
        "annotations": draw.choice([[], list(ANNOTATIONS)]),
        **draw.choice([{}, {"partition_by": ["n"]}, {"cluster_by": ["seq"]}]),
    }
    if draw.random() < 0.7:
        compile_in_changes(monkeypatch)
    history = StreamHistory(draw, settings, make=new_workspace)
    history.append()
    history.compile()
    history.tag()
    history.take(history.steps())
    history.compile()
    history.tag()
    history.retag(whole=True)
    again = retag(history.workspace, "s")
    assert (again.files_read, again.files_written, again.rows_changed) == (0, 0, 0)
    found = annotated(history.workspace)
    assert {seq: each[0] for seq, each in found.items()} == history.expected()
    assert matched(history.workspace) == exploded(history.workspace)
    tag_stream(history.workspace, "s", restart=True)
    assert annotated(history.workspace) == found
