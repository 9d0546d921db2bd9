"""R-tree and R*-tree over boxes, and the evaluation of disjunctive predicates with and without them."""

from __future__ import annotations

from rules_index.engines.r_tree.evaluation import scan_evaluate
from rules_index.engines.r_tree.structure import RTree

__all__ = ["RTree", "scan_evaluate"]
