"""The library's face: `implies`, `implied_by_union`, `lint` and `widen` do what their docstrings show."""

from __future__ import annotations

import doctest

import pytest

import rules_index as ri
from rules_index.implication import implies, lint, union, widening


@pytest.mark.parametrize("module", [implies, lint, union, widening])
def test_docstrings_show_what_happens(module: object) -> None:
    failed, tried = doctest.testmod(module)  # type: ignore[arg-type]
    assert tried > 3 and failed == 0


def test_all_names_are_there() -> None:
    assert all(hasattr(ri, name) for name in ri.__all__)
    assert {"implied_by_union", "implies", "lint", "widen"} <= set(ri.__all__)
