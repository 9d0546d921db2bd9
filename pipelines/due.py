"""Decides what is due: the scopes that a run compiles, tags or joins. The command line and Dagster both use this.

A scope counts as due if an error prevents the decision: the run then fails with that error.
"""

from __future__ import annotations

from collections.abc import Callable

from pipelines.compiling.due import compile_is_due
from pipelines.errors import PipelineError
from pipelines.joining.definition import definition_changes, definition_of
from pipelines.lake.index_histories import NEW_RULES, histories_to_retag, index_of_step, policy_mode, retag_scope
from pipelines.lake.index_store import newest_index
from pipelines.lake.runs import DONE, PLANNED, last_batch
from pipelines.retagging.changes import RuleSets
from pipelines.scopes import scopes_of
from pipelines.settings.model import Stream
from pipelines.sources.newest_version import has_more
from pipelines.sources.only_joined import is_only_joined
from pipelines.sources.positions import position_from_plan
from pipelines.table_definitions import tagged_table
from pipelines.workspace import Workspace


def scopes_to_compile(workspace: Workspace) -> list[str]:
    """The scopes whose rules, columns or index format have changed since they were compiled."""
    return [scope for scope in scopes_of(workspace) if _is_due(compile_is_due, workspace, scope)]


def due_scopes(workspace: Workspace) -> list[str]:
    """Streams and joins that are due. A stream that reads another stream's tagged rows is due whenever that one is."""
    configuration = workspace.configuration
    due: list[str] = []
    for stream in configuration.streams.values():
        if stream.source_stream in due or _has_work(_stream_is_due, workspace, stream.name):
            due.append(stream.name)
    return due + [name for name in configuration.joins if _has_work(join_is_due, workspace, name)]


def _stream_is_due(workspace: Workspace, name: str) -> bool:
    return tag_is_due(workspace, name) or retag_is_due(workspace, workspace.configuration.stream(name))


def _has_work(step_is_due: Callable[[Workspace, str], bool], workspace: Workspace, name: str) -> bool:
    return _is_due(compile_is_due, workspace, name) or _is_due(step_is_due, workspace, name)


def _is_due(step_is_due: Callable[[Workspace, str], bool], workspace: Workspace, name: str) -> bool:
    try:
        return step_is_due(workspace, name)
    except PipelineError:
        return True


def tag_is_due(workspace: Workspace, name: str) -> bool:
    """True if the source has a version that no micro-batch has taken, or the last micro-batch is unfinished.

    False while the stream reads another stream's tagged rows and that one has not tagged any yet.
    """
    origin = workspace.configuration.stream(name).source_stream
    if origin is not None and not workspace.lake.exists(tagged_table(origin)):
        return False
    last = last_batch(workspace.lake, name)
    if last is None:
        return not is_only_joined(workspace, name)
    if last.state != DONE or last.plan.get("reset"):
        return True
    stream, position = workspace.configuration.stream(name), position_from_plan(last.plan["end"])
    return has_more(workspace, stream, position, last.plan["table_id"])


def join_is_due(workspace: Workspace, name: str) -> bool:
    """True if a source has a version that no micro-batch has taken, or the last micro-batch is unfinished."""
    join = workspace.configuration.join(name)
    last = last_batch(workspace.lake, name)
    if last is None or last.state != DONE or last.plan.get("reset"):
        return True
    # a changed definition makes the join due, so that its run fails and says why
    streams = {stream: workspace.configuration.stream(stream) for stream in join.streams}
    if definition_changes(last.plan["definition"], definition_of(join, streams)):
        return True
    sides = last.plan["sides"]
    return any(
        has_more(workspace, stream, position_from_plan(side["end"]), side["table_id"], side["end"] != side["first"])
        for stream, side in ((stream, sides[name]) for name, stream in streams.items())
    )


_LOOKED_BACK = 20
"""How many versions of a tagged table a run looks back for a RESTORE that has undone a re-tag: more than runs write
between two looks, and few enough to be read each time."""


def retag_is_due(workspace: Workspace, stream: Stream) -> bool:
    """True if the stream's policy asks for a re-tag: its newest index would tag some rows differently."""
    lake, name = workspace.lake, stream.name
    if stream.retag == "never" or not lake.exists(tagged_table(name)):
        return False
    before = last_batch(lake, retag_scope(name))
    if before is not None and before.state == PLANNED:
        return True
    stored, last = newest_index(lake, name), last_batch(lake, name)
    if stored is None or last is None:
        return False
    found, undone = histories_to_retag(lake, name, last.batch, within=_LOOKED_BACK)
    histories = found.distinct
    if all(index_of_step(history[-1]) == stored.fingerprint for history in histories) and (
        stream.retag == NEW_RULES or _are_short(histories)
    ):
        return False
    return not RuleSets(workspace, name).changes(histories | undone, stored, policy_mode(stream)).is_empty


def _are_short(histories: frozenset[tuple[str, ...]]) -> bool:
    return all(len(history) == 1 for history in histories)
