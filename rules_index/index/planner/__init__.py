"""Chooses between scanning, hashing and sorting by the expected cost per row.

The costs of the kernel's steps were measured (`costs.json`, written by `benchmarks.calibrate`). The frequencies of
codes and of matches are counted in a sample of rows. Without a sample they are guessed, and attributes are assumed to
be independent.
"""

from __future__ import annotations

from rules_index.index.planner.access_plan import CostedPlan, plans
from rules_index.index.planner.cardinality import CHUNK_ROWS
from rules_index.index.planner.costs import Costs

__all__ = ["CHUNK_ROWS", "CostedPlan", "Costs", "plans"]
