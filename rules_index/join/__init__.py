"""Rules over joined rows: of batches of several streams' rows at once, and row by row as the paper does (`pdfa`)."""

from __future__ import annotations

from rules_index.join.index import JoinIndex
from rules_index.join.joined_batches import Piece
from rules_index.join.rows import Side

__all__ = ["JoinIndex", "Piece", "Side"]
