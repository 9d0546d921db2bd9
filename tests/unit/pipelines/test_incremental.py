"""Compiling what has changed comes to what compiling all rules comes to, whatever was done to `rules`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from deltalake import write_deltalake

import rules_index as ri
from pipelines import compile as compile_module
from pipelines.compile import compile_scopes
from pipelines.compiling import changes as changes_module
from pipelines.compiling.due import compile_is_due, refusals_are_due
from pipelines.compiling.notices import refusals_notice
from pipelines.lake.index_store import fetch_index, newest_index
from pipelines.settings.configuration import parse_configuration
from pipelines.workspace import Workspace
from rules_index.compiling import update as update_module
from rules_index.index import shared_files
from rules_index.index.compiled import Layers
from tests.cases import cases, quick_first
from tests.unit.pipelines.rules_author import LISTS, Author

HISTORIES = cases(8, "DELTATAG_INCREMENTAL_CASES")
STREAMS: dict[str, dict[str, Any]] = {
    "s": {"source": "lake/source", "event_time": "t"},
    "t": {"source": "lake/source"},
}
ANNOTATED = {**STREAMS, "s": {**STREAMS["s"], "annotations": ["first_rule_id", "labels", "severity"]}}


class Watched:
    """How many compiles took changes alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        found = compile_module.compile_changes

        def counted(*arguments: Any) -> Any:
            self.count += 1
            return found(*arguments)

        monkeypatch.setattr(compile_module, "compile_changes", counted)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """A few rules are updated as many are."""
    monkeypatch.setattr(update_module, "FEW_RULES", 0)
    monkeypatch.setattr(update_module, "FOLDED_SHARE", 1.0)
    monkeypatch.setattr(changes_module, "LEAST_RULES", 1)
    monkeypatch.setattr(shared_files, "SHARED_BYTES", 0)
    monkeypatch.setattr(changes_module, "MOST_CHANGED", 1.0)
    return Watched(monkeypatch)


def rows() -> pl.DataFrame:
    draw = np.random.default_rng(1)
    x, s = [None, *draw.integers(0, 12, 59).tolist()], [(None, "a", "b")[i] for i in draw.integers(0, 3, 60)]
    return pl.DataFrame({"x": x, "s": s}).with_columns(t=pl.datetime(2024, 1, 1, time_zone="UTC"))


@pytest.fixture
def workspace(new_workspace: Callable[..., Workspace], watched: Watched) -> Workspace:
    found = new_workspace(STREAMS, spark=False, lists=LISTS)
    rows().write_delta(found.configuration.streams["s"].source)
    return found


def copied(
    workspace: Workspace, folder: Path, settings: dict[str, Any] | None = None, streams: dict[str, Any] = STREAMS
) -> Workspace:
    """Another lake that is as this one is now."""
    root = Path(str(workspace.configuration.lake.root))
    shutil.copytree(root, folder / "lake")
    document = {"lake": {"root": "lake"}, "streams": streams, "rules": settings or {}, "lists": LISTS}
    return Workspace(parse_configuration(document, folder / "deltatag.toml"), None)


def rejects(workspace: Workspace) -> list[tuple[Any, ...]]:
    columns = ["scope", "rule_id", "rules_version", "error", "message", "position"]
    frame = pl.DataFrame(pl.from_arrow(workspace.lake.arrow("rule_rejects", columns)))
    # another lake has its lists in another place
    message = pl.col("message").str.replace_all(r"[^ `]*/lake/", "")
    return frame.with_columns(message).sort(columns, nulls_last=True).rows()


def require_same(
    workspace: Workspace, results: list[Any], other: Workspace, full: list[Any], streams: dict[str, Any] = STREAMS
) -> None:
    """Both lakes have the same indexes and rejects."""
    assert rejects(workspace) == rejects(other)
    for mine, its in zip(results, full, strict=True):
        assert (mine.scope, mine.rules, mine.rejects, mine.fingerprint, mine.engine, mine.rules_version) == (
            its.scope, its.rules, its.rejects, its.fingerprint, its.engine, its.rules_version
        ), (mine, its)  # fmt: skip
        indexes = [newest_index(each.lake, mine.scope) for each in (workspace, other)]
        stored = zip((workspace, other), indexes, strict=True)
        compiled = [ri.load(fetch_index(each.lake, index)) for each, index in stored]
        assert compiled[0].fingerprint == compiled[1].fingerprint == mine.fingerprint
        source = pl.read_delta(workspace.configuration.streams["s"].source)
        ids = compiled[0].match(source)
        assert ids.equals(compiled[1].match(source))
        annotations = [each.annotations for each in compiled]
        if annotations[0] is not None and annotations[1] is not None:
            assert annotations[0].of_ids(ids) == annotations[1].of_ids(ids)
        assert (annotations[0] is None) == (annotations[1] is None) == ("annotations" not in streams[mine.scope])


@pytest.mark.parametrize(
    ("id_type", "streams"), quick_first(0, [("string", ANNOTATED), ("bigint", STREAMS)], 1), ids=str
)
def test_random_edits_come_to_a_full_compile(
    new_workspace: Callable[..., Workspace], watched: Watched, tmp_path: Path, id_type: str, streams: dict[str, Any]
) -> None:
    workspace = new_workspace(streams, id_type=id_type, spark=False, lists=LISTS)
    rows().write_delta(workspace.configuration.streams["s"].source)
    overlays = 0
    author = Author(workspace, 0)
    ids = range(30) if id_type == "bigint" else [f"r{number}'" for number in range(30)]
    begin = [{"rule_id": each, "scope": "st"[n % 2], "expression": f"x > {n}"} for n, each in enumerate(ids)]
    write_deltalake(workspace.lake.uri("rules"), author.table(begin), mode="append")
    for seed in range(HISTORIES):
        author = Author(workspace, seed)
        for step in range(5):
            for _ in range(author.choice.choice((0, 1, 1, 2, 4))):
                author.edit()
            folder = tmp_path / f"{id_type}-{seed}-{step}"
            other = copied(workspace, folder, streams=streams)
            due = [name for name in STREAMS if compile_is_due(workspace, name)]
            scopes = None if author.choice.random() < 0.7 else due
            results = compile_scopes(workspace, scopes)
            assert {each.scope for each in results if each.state == "compiled"} <= set(due)
            before = watched.count
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(changes_module, "LEAST_RULES", 1 << 40)
                full = compile_scopes(other, scopes, force=True)
            assert watched.count == before
            require_same(workspace, results, other, full, streams)
            assert refusals_notice(workspace) == refusals_notice(other)
            assert not refusals_are_due(workspace)
            for name in STREAMS if scopes is None else ():
                assert not compile_is_due(workspace, name)
                stored = newest_index(workspace.lake, name)
                assert stored is not None
                overlays += isinstance(ri.load(fetch_index(workspace.lake, stored)).definition, Layers)
            shutil.rmtree(folder)
    assert watched.count > HISTORIES
    assert overlays > HISTORIES // 4


def many(count: int = 60) -> list[tuple[str, str, str]]:
    return [(f"r{i:03}", "s" if i % 2 else "t", f"x = {i % 12} AND s = '{'abc'[i % 3]}'") for i in range(count)]


@pytest.mark.slow
def test_an_edit_is_compiled_alone(workspace: Workspace, watched: Watched, add_rules: Any) -> None:
    add_rules(workspace, *many())
    compile_scopes(workspace)
    assert watched.count == 0
    add_rules(workspace, ("new", "s", "x > 3"), ("bad", "s", "x >"))
    workspace.lake.delta("rules").delete("rule_id = 'r003'")
    assert compile_is_due(workspace, "s") and not compile_is_due(workspace, "t")
    one, other = compile_scopes(workspace)
    assert watched.count == 1
    assert (one.state, one.rules, one.rejects) == ("compiled", 31, 1)
    assert (other.state, other.rules, other.rejects) == ("unchanged", 30, 0)
    stored = newest_index(workspace.lake, "s")
    assert stored is not None and stored.rules_version == 3
    assert (stored.statistics["changed"], stored.statistics["left_out"]) == (1, 1)
    assert [reject[1:4] for reject in rejects(workspace)] == [("bad", 3, "SYNTAX")]
    versions = [workspace.lake.version(name) for name in ("rule_index", "rule_rejects")]
    assert [each.state for each in compile_scopes(workspace)] == ["unchanged"] * 2
    assert [workspace.lake.version(name) for name in ("rule_index", "rule_rejects")] == versions


@pytest.mark.slow
def test_a_list_that_is_not_configured_any_more_rejects_its_rules(
    workspace: Workspace, watched: Watched, add_rules: Any
) -> None:
    write_deltalake(Path(str(workspace.configuration.lake.root)) / "named", pa.table({"v": ["a"]}))
    add_rules(workspace, *many(), ("listed", "s", "s IN LIST('named')"))
    assert [each.rejects for each in compile_scopes(workspace)] == [0, 0]
    document = {"lake": {"root": str(workspace.configuration.lake.root)}, "streams": STREAMS}
    without = Workspace(parse_configuration(document, workspace.configuration.path), None)
    assert compile_is_due(without, "s") and not compile_is_due(without, "t")
    assert [each.rejects for each in compile_scopes(without)] == [1, 0]
    assert [each[1:4:2] for each in rejects(without)] == [("listed", "UNKNOWN_LIST")]


@pytest.mark.slow
@pytest.mark.parametrize("alone", [True, False])
def test_a_list_that_changed_while_no_rule_named_it_is_read_again(
    workspace: Workspace, watched: Watched, add_rules: Any, tmp_path: Path, monkeypatch: Any, alone: bool
) -> None:
    """Its old values are still in the index, with the rule that named it."""
    named = Path(str(workspace.configuration.lake.root)) / "named"
    write_deltalake(named, pa.table({"v": ["a"]}))
    rule = ("listed", "s", "s IN LIST('named')")
    add_rules(workspace, *many(), rule)
    compile_scopes(workspace)
    workspace.lake.delta("rules").delete("rule_id = 'listed'")
    assert compile_scopes(workspace)[0].state == "compiled"
    write_deltalake(named, pa.table({"v": ["b"]}), mode="overwrite")
    assert compile_scopes(workspace)[0].state == "unchanged" and watched.count == 2
    add_rules(workspace, rule)
    other = copied(workspace, tmp_path / "copy")
    if not alone:
        monkeypatch.setattr(changes_module, "LEAST_RULES", 1 << 40)
    results = compile_scopes(workspace)
    assert watched.count == 2 + alone
    require_same(workspace, results, other, compile_scopes(other, force=True))


@pytest.mark.slow
def test_an_older_copy_of_the_rules_is_compiled_as_a_whole(
    workspace: Workspace, watched: Watched, add_rules: Any
) -> None:
    add_rules(workspace, *many())
    place = workspace.lake.uri("rules")
    shutil.copytree(place, f"{place}-copy")
    add_rules(workspace, ("bad", "s", "x > 3"))
    compile_scopes(workspace)
    shutil.rmtree(place)
    shutil.move(f"{place}-copy", place)
    add_rules(workspace, ("good", "s", "x > 4"))
    assert compile_is_due(workspace, "s")
    assert compile_scopes(workspace)[0].state == "compiled" and watched.count == 0
    stored = newest_index(workspace.lake, "s")
    assert stored is not None
    ids = ri.load(fetch_index(workspace.lake, stored)).ids.to_pylist()
    assert "good" in ids and "bad" not in ids


@pytest.mark.slow
def test_a_change_that_the_feed_leaves_out_is_compiled(workspace: Workspace, watched: Watched, add_rules: Any) -> None:
    add_rules(workspace, *many())
    compile_scopes(workspace)
    add_rules(workspace, ("new", "s", "x > 3"))
    log = Path(workspace.lake.uri("rules")) / "_delta_log"
    newest = max(log.glob("*.json"))
    newest.write_text(newest.read_text().replace('"dataChange":true', '"dataChange":false'))
    assert compile_is_due(workspace, "s")
    assert compile_scopes(workspace)[0].rules == 31 and watched.count == 0


@pytest.mark.slow
def test_a_rule_that_stays_in_force_under_a_duplicate_id_is_counted_once(
    workspace: Workspace, watched: Watched, add_rules: Any
) -> None:
    add_rules(workspace, *many())
    compile_scopes(workspace)
    add_rules(workspace, ("r001", "s", "x > 3"))
    # both rules with the id are refused, and the index has one of them all the same
    assert [(each.state, each.rules, each.rejects) for each in compile_scopes(workspace)] == [
        ("unchanged", 31, 2), ("unchanged", 30, 0),
    ]  # fmt: skip
    add_rules(workspace, ("new", "s", "x > 4"))
    one, _ = compile_scopes(workspace)
    assert (one.state, one.rules, one.rejects) == ("compiled", 32, 2)
    workspace.lake.delta("rules").delete("rule_id = 'r001' AND expression = 'x > 3'")
    assert [(each.rules, each.rejects) for each in compile_scopes(workspace)] == [(31, 0), (30, 0)]
    stored = newest_index(workspace.lake, "s")
    assert stored is not None and not stored.kept
    add_rules(workspace, ("more", "s", "x > 5"))
    before = watched.count
    assert compile_scopes(workspace)[0].rules == 32 and watched.count == before + 1


def test_what_changes_no_rule_writes_no_index(workspace: Workspace, watched: Watched, add_rules: Any) -> None:
    add_rules(workspace, *many())
    compile_scopes(workspace)
    version = workspace.lake.version("rule_index")
    workspace.lake.delta("rules").update(updates={"owner": "'me'"}, predicate="rule_id = 'r003'")
    assert [each.state for each in compile_scopes(workspace)] == ["unchanged"] * 2
    assert watched.count == 1
    assert workspace.lake.version("rule_index") == version
    assert not compile_is_due(workspace, "s")


@pytest.mark.slow
@pytest.mark.parametrize("between", [True, False])
def test_a_rule_reads_a_column_that_the_index_was_not_compiled_with(
    workspace: Workspace, watched: Watched, add_rules: Any, tmp_path: Path, between: bool
) -> None:
    """Also if a compile in between found the new column and gave the same index."""
    add_rules(workspace, *many())
    compile_scopes(workspace)
    source = workspace.configuration.streams["s"].source
    rows().with_columns(z=pl.lit(1)).write_delta(source, mode="append", delta_write_options={"schema_mode": "merge"})
    workspace.lake.delta("rules").update(updates={"expression": "expression || ' '"}, predicate="rule_id = 'r003'")
    if between:
        assert [each.state for each in compile_scopes(workspace)] == ["unchanged"] * 2
    add_rules(workspace, ("newest", "s", "z > 0"))
    other = copied(workspace, tmp_path / "copy")
    results, full = compile_scopes(workspace), compile_scopes(other, force=True)
    assert watched.count == 1 + between
    assert (results[0].rules, results[0].rejects, results[0].fingerprint) == (31, 0, full[0].fingerprint)
    stored = newest_index(workspace.lake, "s")
    assert stored is not None and stored.columns["z"] == "int32"
    explained = ri.load(fetch_index(workspace.lake, stored)).explain({"x": 1, "s": "a", "z": 1}, "newest")
    assert explained.matched


@pytest.mark.slow
def test_a_rejected_rule_beside_a_new_column_is_compiled_once(
    workspace: Workspace, watched: Watched, add_rules: Any
) -> None:
    add_rules(workspace, *many())
    compile_scopes(workspace)
    source = workspace.configuration.streams["s"].source
    rows().with_columns(z=pl.lit(1)).write_delta(source, mode="append", delta_write_options={"schema_mode": "merge"})
    add_rules(workspace, ("bad", "s", "x >"))
    assert [(each.state, each.rejects) for each in compile_scopes(workspace)] == [("unchanged", 1), ("unchanged", 0)]
    assert watched.count == 1 and not compile_is_due(workspace, "s")


def test_all_rules_are_compiled_where_more_than_rules_has_changed(
    workspace: Workspace, watched: Watched, add_rules: Any, tmp_path: Path
) -> None:
    add_rules(workspace, *many(), ("unknown", "s", "z = 1"))
    compile_scopes(workspace)
    source = workspace.configuration.streams["s"].source
    write_deltalake(source, rows().with_columns(z=pl.lit(1)).to_arrow(), mode="append", schema_mode="merge")
    add_rules(workspace, ("new", "s", "x > 3"))
    assert compile_is_due(workspace, "s")
    # a rejected rule may read the new column
    result = compile_scopes(workspace)[0]
    assert (watched.count, result.rules, result.rejects) == (0, 32, 0)
    add_rules(workspace, ("newer", "s", "x > 3"))
    assert compile_scopes(workspace)[0].rules == 33
    assert watched.count == 1
    other = copied(workspace, tmp_path / "zone", {"time_zone": "Asia/Tokyo"})
    add_rules(other, ("newest", "s", "x > 3"))
    assert compile_scopes(other)[0].state == "compiled"
    assert watched.count == 1
    assert compile_scopes(workspace, engine="be_tree")[0].engine == "be_tree"
    assert watched.count == 1


def test_many_changes_and_lost_feeds_are_compiled_with_all_rules(
    workspace: Workspace, watched: Watched, add_rules: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_rules(workspace, *many())
    compile_scopes(workspace)
    workspace.lake.delta("rules").update(updates={"expression": "'x = 99'"}, predicate="rule_id = 'r003'")
    shutil.rmtree(Path(workspace.lake.uri("rules")) / "_change_data")
    assert compile_scopes(workspace)[0].state == "compiled"
    assert watched.count == 0
    monkeypatch.setattr(changes_module, "MOST_CHANGED", 0.1)
    add_rules(workspace, *((f"more {i}", "s", "x > 3") for i in range(9)))
    assert compile_scopes(workspace)[0].rules == 39
    assert watched.count == 0
    monkeypatch.setattr(changes_module, "MOST_VERSIONS", 1)
    add_rules(workspace, ("one", "s", "x > 3"))
    add_rules(workspace, ("two", "s", "x > 3"))
    assert compile_scopes(workspace)[0].rules == 41
    assert watched.count == 0
    add_rules(workspace, ("three", "s", "x > 3"))
    assert compile_scopes(workspace)[0].rules == 42
    assert watched.count == 1


def test_rejects_that_another_wrote_are_not_relied_on(workspace: Workspace, watched: Watched, add_rules: Any) -> None:
    add_rules(workspace, *many(), ("lost", "nowhere", "x = 1"))
    compile_scopes(workspace)
    workspace.lake.delta("rule_rejects").delete()
    add_rules(workspace, ("new", "s", "x > 3"))
    compile_scopes(workspace)
    assert watched.count == 0
    assert [reject[1] for reject in rejects(workspace)] == ["lost"]


def test_too_many_rejects_and_held_indexes(
    new_workspace: Callable[..., Workspace], watched: Watched, add_rules: Any
) -> None:
    for settings, state in (({"on_reject": "hold"}, "held"), ({"max_reject_share": 0.02}, "failed")):
        workspace = new_workspace(STREAMS, settings, spark=False)
        shutil.rmtree(str(workspace.configuration.lake.root))
        workspace = new_workspace(STREAMS, settings, spark=False)
        rows().write_delta(workspace.configuration.streams["s"].source)
        add_rules(workspace, *many())
        before = compile_scopes(workspace)[0]
        count = watched.count
        add_rules(workspace, ("bad", "s", "x >"), ("good", "s", "x > 1"))
        found = compile_scopes(workspace)[0]
        assert (found.state, found.rules, found.rejects, watched.count) == (state, 32, 1, count + 1)
        assert compile_is_due(workspace, "s")
        stored = newest_index(workspace.lake, "s")
        assert stored is not None and stored.fingerprint == before.fingerprint
        workspace.lake.delta("rules").delete("rule_id = 'bad'")
        after = compile_scopes(workspace)[0]
        assert (after.state, after.rules, after.rejects, watched.count) == ("compiled", 31, 0, count + 2)
