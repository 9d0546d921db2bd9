"""Slices of a source: every added file in exactly one of them, and each repeatable from its plan."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.errors import SourceChangedError, SourceError
from pipelines.lake.runs import DONE, MicroBatch
from pipelines.maintaining.folding import folded
from pipelines.settings.model import Start
from pipelines.sources import later_columns
from pipelines.sources.positions import Position, Slice, position_from_plan
from pipelines.sources.slices import has_no_null, rows_of
from pipelines.sources.source import Source


class FakeLog:
    """A Delta log in memory: one list of actions for each version."""

    uri = "/lake/source"

    def __init__(self, *commits: list[dict[str, Any]]) -> None:
        first = [{"metaData": {"id": "t1"}}]
        self.versions: list[list[dict[str, Any]] | None] = [first, *commits]

    def latest(self) -> Any:
        return self.snapshot(len(self.versions) - 1)

    def snapshot(self, version: int) -> Any:
        return SimpleNamespace(number=version)

    def version(self, snapshot: Any) -> int:
        number: int = snapshot.number
        return number

    def table_id(self, snapshot: Any) -> str:
        return "t1"

    def files(self, snapshot: Any) -> list[dict[str, Any]]:
        live: dict[str, dict[str, Any]] = {}
        for actions in self.versions[: snapshot.number + 1]:
            for action in actions or []:
                if "add" in action:
                    live[action["add"]["path"]] = action["add"]
                elif "remove" in action:
                    live.pop(action["remove"]["path"], None)
        return list(reversed(live.values()))

    def fields(self, snapshot: Any) -> list[dict[str, Any]]:
        held = [action for actions in self.versions[: snapshot.number + 1] for action in actions or []]
        return [each["metaData"].get("fields", []) for each in held if "metaData" in each][-1]

    def commit(self, version: int) -> list[dict[str, Any]] | None:
        return self.versions[version] if version < len(self.versions) else None

    def commits(self) -> range:
        held = [version for version, actions in enumerate(self.versions) if actions is not None]
        return range(held[0], held[-1] + 1)


def add(path: str, size: int = 10, data_change: bool = True, at: int = 0) -> dict[str, Any]:
    return {"add": {"path": path, "size": size, "dataChange": data_change, "modificationTime": at}}


def remove(path: str, data_change: bool = True) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": data_change}}


def info(operation: str, timestamp: int = 0) -> dict[str, Any]:
    return {"commitInfo": {"operation": operation, "timestamp": timestamp}}


def paths(taken: Slice) -> list[str]:
    return [file["path"] for _, file in taken.files]


def drain(source: Source, position: Position, max_bytes: int) -> tuple[list[Slice], Position]:
    slices = []
    while (taken := source.take(position, "t1", max_bytes)) is not None:
        slices.append(taken)
        position = taken.end
    return slices, position


@pytest.mark.parametrize("max_bytes", [1, 10, 25, 1000])
@pytest.mark.parametrize("start", [Start("earliest"), Start("version", 0), Start("version", 2), Start("timestamp", 0)])
def test_every_file_is_in_exactly_one_slice(max_bytes: int, start: Start) -> None:
    log = FakeLog([add("a", at=1), add("b", at=1)], [add("c", 30, at=2)], [], [add("d", at=3), add("e", 1, at=4)])
    source = Source("s", log)
    slices, end = drain(source, source.first_position(start), max_bytes)
    expected = ["c", "d", "e"] if start.value == 2 else ["a", "b", "c", "d", "e"]
    assert [path for taken in slices for path in paths(taken)] == expected
    assert all(taken.bytes <= max_bytes or len(taken.files) == 1 for taken in slices)
    assert source.take(end, "t1", max_bytes) is None
    for taken in slices:
        again = Source("s", log).retake(taken.to_plan())
        assert again == taken


def test_folded_micro_batches_are_taken_again_with_the_files_of_each() -> None:
    log = FakeLog([add("a", at=1), add("b", at=1)], [add("c", 30, at=2)])
    first = Source("s", log)
    _, end = drain(first, first.first_position(Start("earliest")), 10)
    log.versions += [[add("d"), add("lost"), add("e")], [info("OPTIMIZE"), add("big", data_change=False)], [add("f")]]
    source = Source("s", log)
    slices, _ = drain(source, end, 100)
    taken = [*drain(first, first.first_position(Start("earliest")), 10)[0], *slices]
    plans = [without(each, "lost").to_plan() for each in taken]
    planned = datetime.now(UTC)
    group = [MicroBatch("s", n, DONE, plan, 1, "f", None, planned) for n, plan in enumerate(plans)]
    for last in range(2, len(group) + 1):
        found = source.retake(folded(group[:last]).plan)
        assert paths(found) == [path for each in taken[:last] for path in paths(each) if path != "lost"]
    again = folded([folded(group[:2]), *group[2:]])
    assert paths(source.retake(again.plan)) == ["a", "b", "c", "d", "e", "f"]


@pytest.fixture(autouse=True)
def _no_known_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs of different tests have the same address."""
    monkeypatch.setattr(later_columns, "_known", {})


def without(taken: Slice, path: str) -> Slice:
    """The slice without a file that is lost."""
    lost = tuple(place for place, file in enumerate(paths(taken)) if file == path)
    return replace(taken, files=tuple(each for each in taken.files if each[1]["path"] != path), lost=lost)


def test_files_added_after_the_snapshot_come_next() -> None:
    log = FakeLog([add("a"), add("b")])
    first = Source("s", log)
    slices, end = drain(first, first.first_position(Start()), 10)
    assert [paths(taken) for taken in slices] == [["a"], ["b"]]
    log.versions.append([add("c")])
    later = Source("s", log)
    assert [paths(taken) for taken in drain(later, end, 10)[0]] == [["c"]]
    # The middle of the old snapshot is still the middle when the table has grown.
    middle = position_from_plan(slices[0].to_plan()["end"])
    assert paths(later.take(middle, "t1", 10)) == ["b"]


def test_a_slice_is_read_with_the_columns_after_its_last_commit() -> None:
    """Also if that commit only added a column: rules may name it already."""
    taken = Source("s", FakeLog([add("a")], [{"metaData": {"id": "t1"}}], [remove("a")])).take(Position(1), "t1", 10)
    assert taken is not None
    assert (paths(taken), taken.end, taken.schema_version) == (["a"], Position(3), 2)


COLUMN = {"name": "c", "type": "integer"}
STRUCT = {"name": "s", "type": {"type": "struct", "fields": [COLUMN]}}
LATER = {"name": "s", "type": {"type": "struct", "fields": [{"name": "d", "type": "string"}, COLUMN]}}
MAPPED = COLUMN | {"metadata": {"delta.columnMapping.physicalName": "col-1"}}


@pytest.mark.parametrize(
    ("columns", "between", "version"),
    [
        ([COLUMN, STRUCT], [add("b")], 1),
        ([LATER, COLUMN], [add("b")], 3),
        ([COLUMN, STRUCT, COLUMN | {"name": "d"}], [add("b")], 3),
        ([COLUMN, STRUCT, COLUMN | {"name": "d"}], [remove("a")], 1),
        ([COLUMN | {"type": "long"}, LATER], [add("b")], 1),
        ([MAPPED, LATER], [add("b")], 1),
        ([LATER], [add("b")], 1),
    ],
)
@pytest.mark.parametrize("position", [Position(1), Position(1, 0, snapshot=True)])
def test_a_slice_is_read_with_columns_that_later_commits_only_added(position, columns, between, version: int) -> None:
    """Rules may name them already: without them, no rule could tag the rows that wait."""
    first, later = ({"metaData": {"id": "t1", "fields": fields}} for fields in ([COLUMN, STRUCT], columns))
    log = FakeLog([first, add("a")], between, [later, add("c")])
    taken = Source("s", log).take(position, "t1", 10)
    assert taken is not None
    assert (paths(taken), taken.schema_version) == (["a"], version)


def test_optimize_adds_no_rows() -> None:
    log = FakeLog([add("a")])
    source = Source("s", log)
    _, end = drain(source, source.first_position(Start()), 100)
    log.versions.append([info("OPTIMIZE"), remove("a", False), add("big", data_change=False)])
    slices, end = drain(Source("s", log), end, 100)
    assert [paths(taken) for taken in slices] == [[]]
    assert end == Position(3)


def test_a_snapshot_after_optimize_has_its_files_once_with_the_version_that_added_them() -> None:
    log = FakeLog([add("a", at=1)], [add("b", at=2)], [remove("a", False), add("c", data_change=False, at=3)])
    source = Source("s", log)
    taken = source.take(source.first_position(Start()), None, 1000)
    assert taken is not None
    assert [(version, file["path"]) for version, file in taken.files] == [(2, "b"), (3, "c")]


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE", "MERGE"])
def test_a_change_stops_the_stream_after_the_rows_before_it(operation: str) -> None:
    log = FakeLog([add("a")], [add("b")], [info(operation), remove("a"), add("a2")], [add("c")])
    source = Source("s", log)
    before = source.take(Position(1), "t1", 1000)
    assert before is not None
    assert paths(before) == ["a", "b"]
    assert before.end == Position(3)
    with pytest.raises(SourceChangedError, match=f"Version 3 .*{operation}.*--restart.*--skip-changes"):
        source.take(before.end, "t1", 1000)
    skipped = source.take(before.end, "t1", 1000, skip_changes=True)
    assert skipped is not None
    assert (paths(skipped), skipped.end, skipped.skipped) == ([], Position(4), True)
    assert Source("s", log).retake(skipped.to_plan()) == skipped
    assert paths(source.take(skipped.end, "t1", 1000)) == ["c"]


def test_a_table_made_again_stops_the_stream() -> None:
    source = Source("s", FakeLog([add("a")]))
    with pytest.raises(SourceChangedError, match="dropped and made again") as raised:
        source.take(Position(1), "another id", 1000)
    # nothing can be passed over in a table that is another one
    assert "--skip-changes" not in str(raised.value)


@pytest.mark.parametrize("position", [Position(4), Position(3, 1), Position(3, 0, snapshot=True)])
def test_an_older_copy_of_the_table_stops_the_stream(position: Position) -> None:
    source = Source("s", FakeLog([add("a")], [add("b")]))
    assert source.take(Position(3), "t1", 1000) is None
    with pytest.raises(SourceChangedError, match=r"ends at version 2, .* older copy .*--restart"):
        source.take(position, "t1", 1000)
    plan = Slice("t1", Position(1), position, 1, ()).to_plan()
    with pytest.raises(SourceChangedError, match="older copy"):
        source.retake(plan)
    if not position.snapshot:
        assert source.take(position, "t1", 1000, reached=False) is None


def test_versions_that_the_log_no_longer_holds() -> None:
    log = FakeLog([add("a")], [add("b")], [add("c")])
    log.versions[0] = log.versions[1] = None
    source = Source("s", log)
    with pytest.raises(SourceError, match="no longer holds version 1"):
        source.take(Position(1), "t1", 1000)


def test_start_at_a_timestamp_begins_with_the_first_commit_at_or_after_it() -> None:
    log = FakeLog([info("WRITE", 1000), add("a")], [info("WRITE", 2000), add("b")], [info("WRITE", 3000), add("c")])
    source = Source("s", log)
    taken = source.take(source.first_position(Start("timestamp", 2_000_000)), None, 1000)
    assert taken is not None
    assert paths(taken) == ["b", "c"]
    assert source.take(source.first_position(Start("timestamp", 9_000_000)), None, 1000) is None


def test_a_start_in_the_future_waits() -> None:
    source = Source("s", FakeLog([add("a")]))
    assert source.take(source.first_position(Start("version", 7)), None, 1000, reached=False) is None


def test_no_table() -> None:
    log = FakeLog()
    log.latest = lambda: log.snapshot(-1)  # type: ignore[method-assign]
    with pytest.raises(SourceError, match="has no source"):
        Source("s", log)


def test_rows_by_the_logs_statistics() -> None:
    with_stats = {"path": "a", "stats": '{"numRecords": 7}', "deletionVector": {"cardinality": 2}}
    assert rows_of(((1, with_stats),)) == 5
    assert rows_of(((1, with_stats), (1, {"path": "b"}))) is None


@pytest.mark.parametrize(
    ("stats", "told"),
    [
        ({"numRecords": 2, "nullCount": {"id": 0, "Part": 0}}, True),
        ({"numRecords": 2, "nullCount": {"id": 0, "Part": 1}}, False),
        ({"numRecords": 2, "nullCount": {"id": 0}}, False),
        ({"numRecords": 2}, False),
        ({"numRecords": 2, "nullCount": {"id": {"part": 0}, "part": 0}}, False),
        (None, False),
    ],
)
def test_statistics_tell_that_a_key_has_no_null(stats: dict[str, object] | None, told: bool) -> None:
    sound = (1, {"path": "a", "stats": json.dumps({"numRecords": 1, "nullCount": {"ID": 0, "part": 0}})})
    adds = [sound, (2, {"path": "b", "stats": None if stats is None else json.dumps(stats)})]
    assert has_no_null(adds, ("id", "PART")) is told
    assert has_no_null([sound], ("id", "PART")) and has_no_null(adds, ())


def test_commits_of_a_backlog_are_read_once_for_its_columns() -> None:
    first, later = (
        {"metaData": {"id": "t1", "fields": fields}} for fields in ([COLUMN], [COLUMN, COLUMN | {"name": "d"}])
    )
    log = FakeLog([first, add("a")], *([add(f"b{number}")] for number in range(20)), [later, add("c")])
    asked: list[int] = []
    position = Position(1)
    while position.version < 21:
        source = Source("s", log)
        found = source._added
        source._added = lambda version, found=found: (asked.append(version), found(version))[1]
        taken = source.take(position, "t1", 10)
        assert taken is not None and taken.schema_version == 22
        position = taken.end
    # each commit is also read where it is taken
    assert max(asked.count(version) for version in range(2, 23)) <= 3


def test_an_older_version_is_not_loaded_for_columns_that_no_later_commit_altered() -> None:
    log = FakeLog([add("a")], *([add(f"b{number}")] for number in range(9)))
    source = Source("s", log)
    log.snapshot = None  # type: ignore[assignment]
    taken = source.take(Position(1), "t1", 10)
    assert taken is not None and (paths(taken), taken.schema_version) == (["a"], 10)
