"""What is due: the scopes that a run compiles, tags or joins. The command line and Dagster both ask here.

A scope that cannot be judged is due, so that a run tells what stands in the way.
"""

from __future__ import annotations

from collections.abc import Callable

from pipelines.compile import compile_is_due
from pipelines.errors import PipelineError
from pipelines.join import join_is_due
from pipelines.retag import retag_is_due
from pipelines.scopes import scopes_of
from pipelines.tag import tag_is_due
from pipelines.workspace import Workspace


def scopes_to_compile(workspace: Workspace) -> list[str]:
    """The scopes whose rules, columns or index format have changed since they were compiled."""
    return [scope for scope in scopes_of(workspace) if _is_due(compile_is_due, workspace, scope)]


def due_scopes(workspace: Workspace) -> list[str]:
    """Streams and joins with something to be done; a stream, too, where the one whose tagged rows it reads is due."""
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
