"""File statistics: from the form that delta-rs gives to the form that the log holds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any


def statistics_of(action: Mapping[str, Any], bounds: bool) -> dict[str, Any]:
    """The statistics of one file, in the log's form, from an add action that delta-rs gave.

    `numRecords` if it is known; with `bounds` also `minValues` and `maxValues`.
    """
    found: dict[str, Any] = {} if action["num_records"] is None else {"numRecords": action["num_records"]}
    if bounds:
        for name, bound in (("minValues", "min"), ("maxValues", "max")):
            values = {column: _log_value(value) for column, value in (action.get(bound) or {}).items()}
            found[name] = {column: value for column, value in values.items() if value is not None}
    return found


def _log_value(value: Any) -> Any:
    """A minimum or maximum as the log writes it; None for a type whose bounds no caller reads."""
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    return value if isinstance(value, (int, str, float)) and not isinstance(value, bool) else None
