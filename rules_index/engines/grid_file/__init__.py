"""Multilevel grid file over boxes as points."""

from __future__ import annotations

from rules_index.engines.grid_file.structure import GridFile

__all__ = ["GridFile"]
