"""How many random cases a test tries, and which variants of it: few in `make check`, some in `make test`, all in `make
soak`, or as many as one asks for. The first ones are the same everywhere: what fails in one fails in the others."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
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


def quick_first(quick: int, values: Iterable[Any], tested: int | None = None) -> list[Any]:
    """Values of a parameter, for `pytest.mark.parametrize`: all but the first few are of slow tests, and where `tested`
    says how many `make test` has, all others are for `make soak` alone."""
    every = list(values)
    last = len(every) if tested is None else tested
    slow = (pytest.param(*_as_tuple(each), marks=pytest.mark.slow) for each in every[quick:last])
    return [*every[:quick], *slow, *map(_in_soak, every[last:])]


def soak_rest(few: int, values: Iterable[Any]) -> list[Any]:
    """Values of a parameter, for `pytest.mark.parametrize`: all but the first few are for `make soak` alone."""
    every = list(values)
    return [*every[:few], *map(_in_soak, every[few:])]


def soak_but(kept: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """Values of a parameter, in their order: all but those kept are for `make soak` alone."""
    return [value if value in kept else _in_soak(value) for value in values]


def some_of(values: Sequence[Any], share: int) -> list[Any]:
    """All values in `make soak`, else one of so many, from the first one on."""
    return list(values if SOAK else values[::share])


def _in_soak(value: Any) -> Any:
    return pytest.param(*_as_tuple(value), marks=pytest.mark.soak)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
