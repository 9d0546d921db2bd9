"""The ASC paper's system, row at a time: constructs in bitmaps, and the search for the order to evaluate them in."""

from __future__ import annotations

from rules_index.engines.selection_constructs.adaptive import AdaptiveSearch, Period
from rules_index.engines.selection_constructs.constructs import ConstructsTooLargeError, SelectionConstructs
from rules_index.engines.selection_constructs.evaluate import Order
from rules_index.engines.selection_constructs.hybrid import HybridSearch
from rules_index.engines.selection_constructs.macro import Choice, MacroSearch

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
