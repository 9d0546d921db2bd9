"""Containment-encoded intervals: interval indexes over virtual constructs, for one attribute and for conjunctions."""

from __future__ import annotations

from rules_index.engines.cei.interval_index import IntervalIndex
from rules_index.engines.cei.structure import Cei, Parameters

__all__ = ["Cei", "IntervalIndex", "Parameters"]
