"""The choice between scanning, hashing and sorting: by what each is expected to cost a row.

The costs of the kernel's steps were measured (`costs.json`, written by `benchmarks.calibrate`). How often a row has
a code and satisfies a conjunction is counted in a sample of rows or, without one, guessed: conjunctions as if
attributes knew nothing of each other.
"""

from __future__ import annotations

from rules_index.index.planner.access_plan import CostedPlan, plans
from rules_index.index.planner.costs import Costs
from rules_index.index.planner.expected import CHUNK_ROWS

__all__ = ["CHUNK_ROWS", "CostedPlan", "Costs", "plans"]
