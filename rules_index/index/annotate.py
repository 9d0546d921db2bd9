"""Decides which columns a row gets from the priority, labels and severity of its rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

FIRST_RULE_ID, LABELS, SEVERITY = "first_rule_id", "labels", "severity"
COLUMNS = (FIRST_RULE_ID, LABELS, SEVERITY)
"""The columns that a row can get from its rules, in the order in which they are written."""
SEVERITIES = ("informational", "low", "medium", "high", "critical")
"""Sigma's severities, ascending."""
_KINDS = {
    FIRST_RULE_ID: ("priority", pa.int32()),
    LABELS: ("labels", pa.list_(pa.string())),
    SEVERITY: ("severity", pa.string()),
}
"""For each column the property of a rule that it is made from, and that property's type."""


@dataclass(frozen=True)
class Annotate:
    """Which of `COLUMNS` the rows get, and the severities in ascending order."""

    columns: tuple[str, ...] = COLUMNS
    severities: tuple[str, ...] = SEVERITIES

    @property
    def schema(self) -> pa.Schema:
        """The properties of each rule that are kept for these columns: some of priority, labels and severity."""
        return pa.schema([_KINDS[name] for name in COLUMNS if name in self.columns])

    @property
    def settings(self) -> list[Any]:
        """The settings, besides the rules, that decide what rows get; JSON values."""
        return [sorted(self.columns), list(self.severities) if SEVERITY in self.columns else []]
