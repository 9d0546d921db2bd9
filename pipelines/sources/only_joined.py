"""Streams that only joins read: without rules of their own they are not copied into a tagged table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.lake.index_store import newest_index
from pipelines.lake.runs import last_batch

if TYPE_CHECKING:
    from pipelines.workspace import Workspace


def is_only_joined(workspace: Workspace, name: str) -> bool:
    """True if a join, and no other stream, reads a stream that has no rule and was never tagged.

    With its first rule it is tagged from its start. A stream that was tagged before goes on without rules, too.
    """
    configuration = workspace.configuration
    if not joins_of(workspace, name) or any(s.source_stream == name for s in configuration.streams.values()):
        return False
    index = newest_index(workspace.lake, name)
    return index is not None and not index.rules and last_batch(workspace.lake, name) is None


def command_of(workspace: Workspace, name: str) -> str:
    """The command that takes the stream's new rows: that of its joins, if only these read it."""
    joins = joins_of(workspace, name) if is_only_joined(workspace, name) else []
    return f"deltatag join {' '.join(joins)}" if joins else f"deltatag tag {name}"


def joins_of(workspace: Workspace, name: str) -> list[str]:
    """The names of the joins that read a stream."""
    return [join.name for join in workspace.configuration.joins.values() if name in join.streams]


def notice(workspace: Workspace, name: str) -> str:
    """A sentence for people on a stream that only joins read."""
    joins = joins_of(workspace, name)
    index = newest_index(workspace.lake, name)
    rejected = index is not None and index.rejected
    lacking, until = ("only rejected rules", "one of them compiles") if rejected else ("no rule", "it has one")
    return (
        f"{name} has {lacking}, and is read only by the join{'s' if len(joins) > 1 else ''} {', '.join(joins)}: it is "
        f"not copied into a tagged table until {until} (deltatag tag {name} --restart copies it anyway)."
    )
