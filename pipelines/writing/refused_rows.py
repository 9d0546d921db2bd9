"""How many rows of a stream are not tagged, and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RefusedRows:
    """How many rows there are, how many of them are for quarantine, and why: those with NULL in each column of the key,
    and those on which each check is not TRUE."""

    rows: int
    refused: int
    null_keys: tuple[int, ...]
    failed_checks: tuple[int, ...]
