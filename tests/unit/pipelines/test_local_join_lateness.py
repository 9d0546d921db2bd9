"""Rows that waited in their source while rows of another stream were joined do not come late for that."""

from __future__ import annotations

import pytest

from pipelines.compile import compile_scopes
from pipelines.join import join_streams
from pipelines.joining.joiner import Joiner
from pipelines.joining.runner import PlannedJoin
from tests.unit.pipelines.random_local_joins import Killed
from tests.unit.pipelines.test_local_join import JOIN, STREAMS, append, pairs


def test_no_row_is_late_that_waited_while_rows_of_another_stream_were_taken(new_workspace, add_rules) -> None:
    """A stream with large files takes more micro-batches than one whose files are taken all at once."""
    small = {"a": {**STREAMS["a"], "max_bytes_per_batch": "1"}, "b": STREAMS["b"]}
    workspace = new_workspace(small, spark=False, joins={"j": {**JOIN["j"], "lateness": "20 s"}})
    add_rules(workspace, ("all", "j", "TRUE"))
    for second in (0, 1000, 2000, 3000):
        append(workspace, "a", (1, second, second))
        append(workspace, "b", (1, second - 1, second))
        if not second:
            compile_scopes(workspace, ["j"])
            join_streams(workspace, "j")
    assert join_streams(workspace, "j").batches == 3
    held = [(second, second, "all") for second in (0, 1000, 2000, 3000)]
    assert (pairs(workspace), workspace.lake.arrow("quarantine_j").num_rows) == (held, 0)
    append(workspace, "a", (1, 2979, 1), (1, 2980, 2))
    assert join_streams(workspace, "j").quarantined == 1


@pytest.mark.slow
def test_no_row_is_late_where_sources_grow_while_waiting_rows_are_taken(
    new_workspace, add_rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"a": {**STREAMS["a"], "max_bytes_per_batch": "1"}, "b": STREAMS["b"]}
    workspace = new_workspace(small, spark=False, joins={"j": {**JOIN["j"], "lateness": "20 s"}})
    add_rules(workspace, ("all", "j", "TRUE"))
    seconds = iter(range(0, 13000, 1000))
    held = []

    def load() -> None:
        if (second := next(seconds, None)) is not None:
            append(workspace, "a", (1, second, second))
            append(workspace, "b", (1, second - 1, second))
            held.append((second, second, "all"))

    def one_micro_batch(joiner: Joiner, skip_changes: bool) -> PlannedJoin | None:
        """A run dies at its second plan."""
        if joiner in begun:
            raise Killed
        begun.append(joiner)
        return plan(joiner, skip_changes)

    load()
    compile_scopes(workspace, ["j"])
    join_streams(workspace, "j")
    for _ in range(4):
        load()
    plan, begun = Joiner.plan, list[Joiner]()
    with monkeypatch.context() as patched:
        patched.setattr(Joiner, "plan", one_micro_batch)
        while len(held) < 13:
            with pytest.raises(Killed):
                join_streams(workspace, "j")
            load()
    join_streams(workspace, "j")
    assert len(held) == 13
    assert (pairs(workspace), workspace.lake.arrow("quarantine_j").num_rows) == (held, 0)
    append(workspace, "a", (1, 11979, 1), (1, 11980, 2))
    assert join_streams(workspace, "j").quarantined == 1
