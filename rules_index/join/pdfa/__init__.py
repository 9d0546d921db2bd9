"""The system of Wang and Kitsuregawa: rows of several streams joined as they arrive, and filtered by one index of all
queries, with their partial dimension filtering algorithm (PDFA) and without."""

from __future__ import annotations

from rules_index.join.pdfa.join_buffer import JoinBuffer
from rules_index.join.pdfa.selection_join import Arrival, SelectionJoin

__all__ = ["Arrival", "JoinBuffer", "SelectionJoin"]
