"""Fixtures of tests that take either runner."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def runner(request: pytest.FixtureRequest) -> str:
    """Who works: "local", this process, or Spark."""
    return str(getattr(request, "param", "auto"))


@pytest.fixture
def make(new_workspace: Callable[..., Any], runner: str) -> Callable[..., Any]:
    """Makes a workspace with that runner, and no session where it needs none."""
    return functools.partial(new_workspace, runner=runner, spark=runner != "local")
