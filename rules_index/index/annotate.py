"""Which columns the priority, labels and severity of its rules give a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

FIRST_RULE_ID, LABELS, SEVERITY = "first_rule_id", "labels", "severity"
COLUMNS = (FIRST_RULE_ID, LABELS, SEVERITY)
"""The columns that a row's rules give it, in their order."""
SEVERITIES = ("informational", "low", "medium", "high", "critical")
"""Sigma's severities, the lowest first."""
_KINDS = {
    FIRST_RULE_ID: ("priority", pa.int32()),
    LABELS: ("labels", pa.list_(pa.string())),
    SEVERITY: ("severity", pa.string()),
}


@dataclass(frozen=True)
class Annotate:
    """Which of `COLUMNS` rows are to have, and what severities there are, the lowest first."""

    columns: tuple[str, ...] = COLUMNS
    severities: tuple[str, ...] = SEVERITIES

    @property
    def schema(self) -> pa.Schema:
        """What is kept of each rule for them: some of priority, labels and severity."""
        return pa.schema([_KINDS[name] for name in COLUMNS if name in self.columns])

    @property
    def settings(self) -> list[Any]:
        """What decides, beside the rules, what rows get: as JSON values."""
        return [sorted(self.columns), list(self.severities) if SEVERITY in self.columns else []]
