"""The ASC paper's system, row at a time: constructs in bitmaps, and the search for the order to evaluate them in."""

from __future__ import annotations

from rules_index.engines.asc.adaptive import AdaptiveSearch, Period
from rules_index.engines.asc.constructs import ConstructsTooLargeError, SelectionConstructs
from rules_index.engines.asc.evaluate import Order
from rules_index.engines.asc.hybrid import HybridSearch
from rules_index.engines.asc.macro import Choice, MacroSearch

__all__ = [
    "AdaptiveSearch",
    "Choice",
    "ConstructsTooLargeError",
    "HybridSearch",
    "MacroSearch",
    "Order",
    "Period",
    "SelectionConstructs",
]
