"""The verb compile: the `rules` table -> `rule_index` and `rule_rejects`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from pipelines.workspace import Workspace


@dataclass(frozen=True, slots=True)
class ScopeResult:
    """What compiling one scope came to.

    `state` is "compiled" (a new index was written), "unchanged" (the stored one still holds), "held" (some
    rule was rejected and `on_reject` is "hold": the last good index stays) or "failed" (`error` says why).
    """

    scope: str
    state: str
    rules_version: int
    rules: int = 0
    rejects: int = 0
    fingerprint: str | None = None
    engine: str | None = None
    bytes: int = 0
    seconds: float = 0.0
    error: str | None = None


def compile_scopes(
    workspace: Workspace, scopes: Sequence[str] | None = None, force: bool = False
) -> list[ScopeResult]:
    """Compile the named scopes, by default every stream; one result each, a failure does not stop the others.

    `rule_rejects` is brought to the version of `rules` that was compiled. An index goes to `rule_index` in
    one commit, and only where its fingerprint is not the stored one's, or `force` is set.
    """
    raise NotImplementedError


def compile_is_due(workspace: Workspace, scope: str) -> bool:
    """True if the scope has no index, or its rules, its columns' types or the index format have changed since."""
    raise NotImplementedError


def source_schema(workspace: Workspace, scope: str) -> pa.Schema:
    """The columns of a stream's source as Arrow types, as rules see them."""
    raise NotImplementedError
