"""The system of Wang and Kitsuregawa: rows of several streams are joined as they arrive, and filtered by one index of
all queries, with and without their partial dimension filtering algorithm (PDFA)."""

from __future__ import annotations

from rules_index.join.pdfa.join_buffer import JoinBuffer
from rules_index.join.pdfa.selection_join import Arrival, SelectionJoin

__all__ = ["Arrival", "JoinBuffer", "SelectionJoin"]
