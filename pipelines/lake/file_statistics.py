"""What delta-rs tells of a file's rows, as logs write it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any


def statistics_of(action: Mapping[str, Any], bounds: bool) -> dict[str, Any]:
    """What is known of a file out of what delta-rs tells of it, with values as logs write them."""
    found: dict[str, Any] = {} if action["num_records"] is None else {"numRecords": action["num_records"]}
    if bounds:
        for name, told in (("minValues", "min"), ("maxValues", "max")):
            values = {column: _told(value) for column, value in (action.get(told) or {}).items()}
            found[name] = {column: value for column, value in values.items() if value is not None}
    return found


def _told(value: Any) -> Any:
    """A least or greatest value; None for one that nobody asks for."""
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    return value if isinstance(value, (int, str, float)) and not isinstance(value, bool) else None
