"""Engines: how an index organises its conjunctions, one module each."""

from __future__ import annotations

from rules_index.engines.asc import Asc
from rules_index.engines.flat import Conjunctions, Engine, InvalidArraysError
from rules_index.engines.scan import Scan

ENGINES: dict[str, type[Asc] | type[Scan]] = {"asc": Asc, "scan": Scan}


def choose(conjunctions: Conjunctions) -> tuple[str, str]:
    """The engine that `engine="auto"` stands for, and the reason."""
    return (
        "asc",
        "the batch kernel over row bitmaps, with postings for values that few rules name",
    )


__all__ = [
    "ENGINES",
    "Asc",
    "Conjunctions",
    "Engine",
    "InvalidArraysError",
    "Scan",
    "choose",
]
