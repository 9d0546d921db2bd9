"""Counts of rows that go to quarantine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RefusedRows:
    """How many rows there are, and how many of them go to quarantine.

    null_keys: for each column of the key, the rows with NULL in it; failed_checks: for each check, the rows on which it
    is not TRUE.
    """

    rows: int
    refused: int
    null_keys: tuple[int, ...]
    failed_checks: tuple[int, ...]
