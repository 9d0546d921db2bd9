"""A stream that reads what another one has tagged, while re-tags add and remove rows of either: without a JVM."""

from __future__ import annotations

from unittest.mock import Mock

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pipelines.compile import compile_scopes
from pipelines.errors import NotImpliedError, SourceChangedError
from pipelines.lake.index_histories import NEW_RULES
from pipelines.retag import retag
from pipelines.retagging import retagger
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from tests.lakes import write_rules

STREAMS = {
    "wide": {"source": "lake/source", "output": "matched"},
    "narrow": {"source_stream": "wide", "output": "matched"},
}


@pytest.fixture
def workspace(new_workspace, without_spark) -> Workspace:
    found: Workspace = new_workspace(STREAMS, spark=False)
    write_deltalake(found.configuration.streams["wide"].source, pa.table({"x": pa.array(range(10), pa.int32())}))
    return found


def edit(workspace: Workspace, narrow: str, *wide: str) -> list[str | None]:
    """Replace all rules and compile them; returns the errors of wide and of narrow."""
    rules = [("n", "narrow", narrow), *((f"w{place}", "wide", text) for place, text in enumerate(wide))]
    write_rules(workspace, rules, "overwrite")
    return [each.error for each in compile_scopes(workspace)]


def held(workspace: Workspace, stream: str) -> list[int]:
    return sorted(workspace.lake.arrow(f"{stream}_tagged")["x"].to_pylist())


@pytest.mark.slow
def test_a_retag_does_not_pass_over_rows_that_the_other_stream_has_left_out(workspace) -> None:
    assert edit(workspace, "x > 7", "x > 5") == [None, None]
    tag_stream(workspace, "wide")
    tag_stream(workspace, "narrow")
    assert edit(workspace, "x > 4", "x > 3") == [None, None]
    with pytest.raises(NotImpliedError, match="deltatag tag wide --restart, then deltatag tag narrow --restart"):
        retag(workspace, "narrow")
    assert held(workspace, "narrow") == [8, 9]
    tag_stream(workspace, "wide", restart=True)
    tag_stream(workspace, "narrow", restart=True)
    assert held(workspace, "narrow") == [5, 6, 7, 8, 9] and retag(workspace, "narrow").rows_changed == 0


@pytest.mark.slow
def test_a_retag_takes_rows_of_a_wider_rule_that_the_other_stream_has_by_its_own_retag(workspace) -> None:
    assert edit(workspace, "x > 7", "x > 6") == [None, None]
    tag_stream(workspace, "wide")
    tag_stream(workspace, "narrow")
    assert edit(workspace, "x > 4", "x > 6", "x > 3 AND x <= 6") == [None, None]
    retag(workspace, "wide")
    tag_stream(workspace, "narrow")
    assert retag(workspace, "narrow").rows_changed == 1
    assert held(workspace, "narrow") == [5, 6, 7, 8, 9]


@pytest.mark.slow
def test_rows_that_a_retag_of_the_other_stream_has_removed_are_missed(workspace) -> None:
    assert edit(workspace, "x > 4", "x > 3") == [None, None]
    tag_stream(workspace, "wide")
    edit(workspace, "x > 4", "x > 6")
    retag(workspace, "wide")
    assert edit(workspace, "x > 4", "x > 3") == [None, None]
    with pytest.raises(NotImpliedError, match="deltatag tag wide --restart"):
        tag_stream(workspace, "narrow")
    retag(workspace, "wide")
    tag_stream(workspace, "narrow")
    assert held(workspace, "narrow") == [5, 6, 7, 8, 9]


@pytest.mark.slow
def test_rows_that_another_text_of_a_new_rule_has_removed_are_missed(workspace) -> None:
    assert edit(workspace, "x > 4", "x > 3") == [None, None]
    tag_stream(workspace, "wide")
    write_deltalake(
        workspace.configuration.streams["wide"].source, pa.table({"x": pa.array([9], pa.int32())}), mode="append"
    )
    write_rules(workspace, [("n", "narrow", "x > 7"), ("w1", "wide", "x > 6")], "overwrite")
    compile_scopes(workspace)
    tag_stream(workspace, "wide")
    assert edit(workspace, "x > 7", "x > 6", "x > 6") == [None, None]
    retag(workspace, "wide", mode=NEW_RULES)  # w0 is new to the last row, and has another text on the others
    assert held(workspace, "wide") == [7, 8, 9, 9]
    assert edit(workspace, "x > 4", "x > 3") == [None, None]
    with pytest.raises(NotImpliedError, match="deltatag tag wide --restart"):
        tag_stream(workspace, "narrow")


@pytest.mark.slow
def test_a_retag_that_was_killed_after_it_removed_rows_counts(workspace, monkeypatch) -> None:
    assert edit(workspace, "x > 4", "x > 3") == [None, None]
    tag_stream(workspace, "wide")
    edit(workspace, "x > 4", "x > 6")
    with monkeypatch.context() as patch:
        patch.setattr(retagger, "record_done", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            retag(workspace, "wide")
    assert held(workspace, "wide") == [7, 8, 9]
    assert edit(workspace, "x > 4", "x > 3") == [None, None]
    with pytest.raises(NotImpliedError, match="deltatag tag wide --restart"):
        tag_stream(workspace, "narrow")


@pytest.mark.slow
def test_a_restart_takes_the_rows_that_a_retag_of_the_other_stream_has_added(workspace) -> None:
    assert edit(workspace, "x > 7", "x > 6") == [None, None]
    tag_stream(workspace, "wide")
    tag_stream(workspace, "narrow")
    assert edit(workspace, "x > 4", "x > 6", "x > 3") == [None, None]
    retag(workspace, "wide")
    with pytest.raises(SourceChangedError, match="deltatag tag narrow --restart"):
        tag_stream(workspace, "narrow")
    tag_stream(workspace, "narrow", restart=True)
    assert held(workspace, "narrow") == [5, 6, 7, 8, 9]


@pytest.mark.slow
def test_an_edited_list_stops_no_stream_whose_rules_are_implied_whatever_it_holds(new_workspace, without_spark) -> None:
    workspace = new_workspace(STREAMS, lists={"listed": {"source": "lake/listed"}}, spark=False)
    source = workspace.configuration.streams["wide"].source
    write_deltalake(source, pa.table({"x": pa.array(range(10), pa.int32())}))

    def list_more(value: int) -> None:
        listed = pa.table({"x": pa.array([value], pa.int32())})
        write_deltalake(workspace.configuration.lists["listed"].source, listed, mode="append")

    list_more(2)
    assert edit(workspace, "x > 4 AND x IN LIST('listed')", "x > 3", "x IN LIST('listed')") == [None, None]
    tag_stream(workspace, "wide")
    list_more(6)
    assert [each.error for each in compile_scopes(workspace)] == [None, None]
    tag_stream(workspace, "narrow")
    assert held(workspace, "narrow") == [6]
    assert edit(workspace, "x IN LIST('listed')", "x > 3", "x IN LIST('listed')") == [None, None]
    tag_stream(workspace, "wide", restart=True)
    list_more(3)
    assert [each.error for each in compile_scopes(workspace)] == [None, None]
    with pytest.raises(NotImpliedError):  # the row with 3 was left out
        tag_stream(workspace, "narrow", restart=True)
