"""Rules of a stream that reads what another one has tagged, when they are compiled: without a JVM."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

from pipelines.compile import compile_scopes
from pipelines.compiling.due import compile_is_due
from pipelines.compiling.results import ScopeResult
from pipelines.errors import SourceError
from pipelines.lake.index_store import newest_index
from pipelines.origin import IndexedRules, implied_by, origin_of
from pipelines.scopes import scope_of
from rules_index.index import artifact

ROWS = pl.DataFrame({"x": [1, 7], "name": ["a", "k"], "place": [{"y": 1}, {"y": 2}]}).with_columns(
    t=pl.datetime(2024, 1, 1, time_zone="UTC"), u=pl.datetime(2024, 1, 1, time_zone="UTC")
)
WIDE: dict[str, Any] = {"source": "lake/source", "output": "matched"}
NARROW: dict[str, Any] = {"source_stream": "wide", "output": "matched"}


@pytest.fixture
def workspace(new_workspace, add_rules):
    found = new_workspace({"narrow": NARROW, "wide": WIDE}, spark=False)
    ROWS.write_delta(found.configuration.streams["wide"].source)
    add_rules(found, ("w1", "wide", "x < 5"), ("w2", "wide", "x >= 5 AND name > 'c'"), ("bad", "wide", "nosuch = 1"))
    return found


def compiled(workspace, *scopes: str) -> dict[str, ScopeResult]:
    return {each.scope: each for each in compile_scopes(workspace, scopes or None)}


def rejected(workspace) -> dict[str, str]:
    """The message of each rule of `narrow` that is refused since it is not implied."""
    found = pl.read_delta(workspace.lake.uri("rule_rejects")).filter(pl.col("error") == "NOT_IMPLIED")
    return dict(found.filter(pl.col("scope") == "narrow").select("rule_id", "message").iter_rows())


@pytest.mark.slow
def test_a_rule_that_is_not_implied_is_refused_and_the_others_compile(workspace, add_rules) -> None:
    add_rules(workspace, ("n1", "narrow", "name = 'k'"), ("n2", "narrow", "x = 3"), ("no", "narrow", "nosuch = 1"))
    # the first is TRUE on a row whose x is NULL, too, and no rule of the other stream is
    found = compiled(workspace)
    assert {name: (each.state, each.rules, each.rejects) for name, each in found.items()} == {
        "wide": ("compiled", 3, 1), "narrow": ("compiled", 3, 2),
    }  # fmt: skip
    assert list(rejected(workspace)) == ["n1"] and "widen the rules of wide" in rejected(workspace)["n1"]
    stored = newest_index(workspace.lake, "narrow")
    assert stored is not None and stored.statistics["implied_by"] == found["wide"].fingerprint
    assert compiled(workspace)["narrow"].state == "unchanged" and not compile_is_due(workspace, "narrow")
    # it is decided anew once the rules of the other stream are others
    add_rules(workspace, ("w3", "wide", "x IS NULL"))
    assert compiled(workspace, "wide")["wide"].state == "compiled" and compile_is_due(workspace, "narrow")
    found = compiled(workspace)
    assert (found["narrow"].state, found["narrow"].rejects) == ("compiled", 1) and not rejected(workspace)
    stored = newest_index(workspace.lake, "narrow")
    assert stored is not None and stored.statistics["implied_by"] == found["wide"].fingerprint
    assert compiled(workspace)["narrow"].state == "unchanged"


@pytest.mark.slow
def test_a_rule_edited_so_that_it_is_not_implied_is_refused(workspace, add_rules, new_workspace) -> None:
    workspace = new_workspace({"narrow": {**NARROW, "event_time": "t"}, "wide": WIDE}, spark=False)
    bounded = {
        "rule_id": "n1",
        "scope": "narrow",
        "expression": "x = 1",
        "valid_from": datetime(2020, 1, 1, tzinfo=UTC),
    }
    add_rules(workspace, bounded, ("n2", "narrow", "x = 3"))
    assert compiled(workspace)["narrow"].rejects == 0
    rules = pl.read_delta(workspace.lake.uri("rules"))
    edited = rules.with_columns(expression=pl.col("expression").replace("x = 3", "abs(x) = 3"))
    # the table may lack columns that it had
    edited = edited.drop("valid_from", "valid_to")
    edited.write_delta(workspace.lake.uri("rules"), mode="overwrite", delta_write_options={"schema_mode": "overwrite"})
    found = compiled(workspace)["narrow"]
    assert (found.state, found.rules, found.rejects) == ("compiled", 2, 1)
    assert "it could not be shown that the rules of wide" in rejected(workspace)["n2"]
    # a stream that keeps all rows, or reads the source itself, needs no rule to be implied
    narrow = {**NARROW, "output": "all"}
    for streams in ({"narrow": narrow, "wide": {**WIDE, "output": "all"}}, {"narrow": WIDE, "wide": WIDE}):
        other = new_workspace(streams, spark=False)
        assert compile_is_due(other, "narrow")
    assert (compiled(other)["narrow"].rejects, rejected(other)) == (0, {})


@pytest.mark.slow
def test_what_an_edit_of_the_other_streams_rules_still_implies_is_recorded(workspace, add_rules) -> None:
    add_rules(workspace, ("n", "narrow", "x IN (3, 4)"))
    before = compiled(workspace)
    add_rules(workspace, ("w3", "wide", "x = 9"))
    found = compiled(workspace)
    assert found["wide"].fingerprint != before["wide"].fingerprint
    assert (found["narrow"].state, found["narrow"].fingerprint) == ("unchanged", before["narrow"].fingerprint)
    stored = newest_index(workspace.lake, "narrow")
    assert stored is not None and stored.statistics["implied_by"] == found["wide"].fingerprint


@pytest.mark.slow
def test_an_edit_of_the_other_streams_rules_is_noticed_though_the_streams_own_are_unchanged(
    workspace, add_rules
) -> None:
    add_rules(workspace, ("n", "narrow", "x IN (3, 4)"))
    assert compiled(workspace)["narrow"].state == "compiled"
    rules = pl.read_delta(workspace.lake.uri("rules"))
    edited = rules.with_columns(expression=pl.col("expression").replace("x < 5", "x < 4"))
    edited.write_delta(workspace.lake.uri("rules"), mode="overwrite")
    error = compiled(workspace)["narrow"].error
    assert error is not None and "missing: n. Correct" in error and "--restart" not in error


@pytest.mark.slow
def test_the_rules_that_were_compiled_may_be_gone(workspace, add_rules) -> None:
    add_rules(workspace, ("n", "narrow", "x IN (3, 4)"))
    before = compiled(workspace)
    rules = pl.read_delta(workspace.lake.uri("rules"))
    edited = rules.with_columns(expression=pl.col("expression").replace("x IN (3, 4)", "x = 3"))
    edited.write_delta(workspace.lake.uri("rules"), mode="overwrite")
    workspace.lake.writable("rules").vacuum(0, dry_run=False, enforce_retention_duration=False)
    found = compiled(workspace)
    assert [found[name].state for name in ("narrow", "wide")] == ["compiled", "unchanged"]
    assert found["wide"].fingerprint == before["wide"].fingerprint


def test_rows_that_another_version_of_deltatag_tagged_are_told_with_what_to_do(
    workspace, add_rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_rules(workspace, ("n", "narrow", "x = 3"))
    compiled(workspace)
    mine, theirs = (newest_index(workspace.lake, name) for name in ("narrow", "wide"))
    origin = origin_of(scope_of(workspace, "narrow"))
    assert mine is not None and theirs is not None and origin is not None
    rules = IndexedRules.of(workspace, mine)
    origin._refuse_unless_implied(rules, theirs, [])
    monkeypatch.setattr(artifact, "FORMAT_VERSION", artifact.FORMAT_VERSION + 1)
    with pytest.raises(SourceError, match=r"another version of deltatag wrote it .* deltatag tag narrow --restart"):
        origin._refuse_unless_implied(rules, theirs, [])


@pytest.mark.slow
def test_the_other_stream_is_compiled_first(workspace, add_rules) -> None:
    add_rules(workspace, ("n", "narrow", "x = 3"))
    error = compiled(workspace, "narrow")["narrow"].error
    assert error is not None and "deltatag compile wide" in error
    assert list(compiled(workspace)) == ["wide", "narrow"]


def test_the_columns_are_the_sources_before_and_after_the_other_stream_has_tagged(workspace) -> None:
    before = scope_of(workspace, "narrow").columns()
    assert before.names == ROWS.columns
    added = {"rule_ids": [["a"]], "rules_version": 1, "index_fingerprint": "f", "source_version": 1}
    tagged = ROWS.head(1).with_columns(**{name: pl.lit(value) for name, value in added.items()}, tagged_at=pl.col("t"))
    tagged.write_delta(workspace.lake.uri("wide_tagged"))
    assert scope_of(workspace, "narrow").columns() == before


def rules(event_time: str | None, *bounded: bool) -> IndexedRules:
    """Rules `x > 0`, some of them from 2024 on."""
    rows = [(f"r{n}", "x > 0", datetime(2024, 1, 1, tzinfo=UTC) if b else None, None) for n, b in enumerate(bounded)]
    instant = pl.Datetime("us", "UTC")
    schema = {"rule_id": pl.String, "expression": pl.String, "valid_from": instant, "valid_to": instant}
    return IndexedRules(pl.DataFrame(rows, schema, orient="row"), 1, event_time, "UTC")


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        (rules("t", True), rules("t", True), True),
        (rules("t", True), rules("T", True), True),
        (rules("t", True), rules("u", True), False),
        (rules("t", True), rules("u", True, False), True),
        (rules("t", False), rules("t", True), False),
        (rules(None, False), rules("t", True), False),
        (rules(None, False), rules("t", False), True),
        (rules("t", True), rules(None, False), True),
    ],
)
def test_validity_is_compared_by_one_event_time_only(
    workspace, mine: IndexedRules, theirs: IndexedRules, expected: bool
) -> None:
    found = implied_by(mine, theirs, scope_of(workspace, "wide").columns())
    assert found["implied"].to_list() == [expected]
