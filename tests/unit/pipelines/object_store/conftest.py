"""A server of S3's protocol, which delta-rs reaches as it reaches S3, and lakes in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pipelines.compile import compile_scopes
from pipelines.workspace import Workspace
from tests.object_store import ObjectStore, served
from tests.unit.pipelines.object_store.lakes import RULES


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with served() as store:
        yield store


@pytest.fixture
def store(server: ObjectStore, monkeypatch) -> ObjectStore:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.hinder()
    return server


@pytest.fixture
def make(new_workspace, add_rules, tmp_path) -> Callable[..., Workspace]:
    """A lake and a source at places (folders of the test, or URIs), with rules that are compiled."""

    def made(root: str, source: str, **stream: Any) -> Workspace:
        settings = {"source": source, "key": ["id"], "event_time": "t", "checks": {"few": "amount < 98"}, **stream}
        workspace = new_workspace({"s": settings}, spark=False, runner="local", root=root)
        add_rules(workspace, *RULES)
        assert not [each.error for each in compile_scopes(workspace, ["s"]) if each.error]
        return workspace

    return made


@pytest.fixture
def uri(request, tmp_path) -> str:
    """A place in the store that no other test has."""
    return f"s3://bucket/{tmp_path.parent.name}/{tmp_path.name}"
