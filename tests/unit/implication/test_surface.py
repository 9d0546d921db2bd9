"""The library's face: `implies`, `lint` and `widen` do what their docstrings show."""

from __future__ import annotations

import doctest

import pytest

import rules_index as ri
from rules_index.implication import implies, lint, widening


@pytest.mark.parametrize("module", [implies, lint, widening])
def test_docstrings_show_what_happens(module: object) -> None:
    failed, tried = doctest.testmod(module)  # type: ignore[arg-type]
    assert tried > 3 and failed == 0


def test_all_names_are_there() -> None:
    assert all(hasattr(ri, name) for name in ri.__all__)
    assert {"implies", "lint", "widen"} <= set(ri.__all__)
