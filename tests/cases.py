"""How many random cases a test tries: a sixteenth in `make check`, a quarter in `make test`, all in `make soak`, or as
many as one asks for. The first ones are the same everywhere, so that what fails in one fails in the others."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

SOAK = bool(os.environ.get("DELTATAG_SOAK"))
"""True in `make soak`, which has hours."""
QUICK = bool(os.environ.get("DELTATAG_QUICK"))
"""True in `make check`, which has a minute, and tries too few cases to see each kind of outcome in every test."""


def cases(usual: int, variable: str = "") -> int:
    """What the environment's `variable` says, else a quarter of `usual`: all where DELTATAG_SOAK is set, a sixteenth
    where DELTATAG_QUICK is."""
    asked = os.environ.get(variable)
    if asked is not None:
        return int(asked)
    return usual if SOAK else max(1, usual // (16 if QUICK else 4))


def quick_first(quick: int, values: Iterable[Any]) -> list[Any]:
    """Values of a parameter, for `pytest.mark.parametrize`: all but the first few are of slow tests."""
    every = list(values)
    return [*every[:quick], *(pytest.param(*_as_tuple(each), marks=pytest.mark.slow) for each in every[quick:])]


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
