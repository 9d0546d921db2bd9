"""BE-Tree (Sadoghi and Jacobsen, SIGMOD 2011): Boolean expressions over a high-dimensional discrete space.

An expression is a box of region codes: a conjunction of one interval per attribute that it names (Table 1).
"""

from __future__ import annotations

from rules_index.engines.be_tree.intervals import interval
from rules_index.engines.be_tree.outline import LNode
from rules_index.engines.be_tree.store import Parameters
from rules_index.engines.be_tree.structure import BETree, Events, max_cap_for

__all__ = ["BETree", "Events", "LNode", "Parameters", "interval", "max_cap_for"]
