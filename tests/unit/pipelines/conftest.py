"""Fixtures of lakes without a JVM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pipelines.workspace import Workspace
from tests.unit.pipelines.retagged_rows import STREAM


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """No session starts."""

    def refuse(*_arguments: Any, **_named: Any) -> None:
        raise AssertionError("Spark was asked for")

    monkeypatch.setattr(Workspace, "spark", property(refuse))


@pytest.fixture
def make_retagged(new_workspace: Callable[..., Workspace], without_spark: None) -> Callable[..., Workspace]:
    """Makes a lake over the stream of `local_retags`, with further settings of the stream."""

    def make(id_type: str = "string", **stream: Any) -> Workspace:
        return new_workspace({"s": {**STREAM, **stream}}, None, id_type, spark=False)

    return make
