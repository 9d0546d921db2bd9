"""A mistake in a rule's text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake in a rule: its kind, its position in the rule's text, and what to write instead."""

    kind: str
    begin: int
    end: int
    message: str
