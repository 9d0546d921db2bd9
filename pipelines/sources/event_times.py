"""Event times in arguments of the command line."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from zoneinfo import ZoneInfo

import pyarrow as pa

from pipelines.errors import ConfigurationError


def bounds(
    since: str | None, until: str | None, kind: pa.DataType, zone: ZoneInfo
) -> tuple[datetime | date | None, datetime | date | None]:
    """The range of event times that --from and --to give, `until` excluded; None for no bound.

    ConfigurationError for what `moment` refuses, and for a range that has no time.
    """
    low, high = (None if text is None else moment(text, kind, zone) for text in (since, until))
    if low is not None and high is not None and low >= high:
        raise ConfigurationError(f"No time is from {since} on and before {until}: give --to a later time than --from.")
    return low, high


def moment(text: str, kind: pa.DataType, zone: ZoneInfo) -> datetime | date:
    """A time in ISO 8601 as a value of an event time's type.

    zone: of times without an offset. ConfigurationError if the text is not a time, or a time of a day for a DATE, or if
    Python has no such time in UTC, or in the zone.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{text!r} is not a time; write one as 2026-01-31 or 2026-01-31T12:00.") from None
    try:
        local = found if found.tzinfo is None else found.astimezone(zone).replace(tzinfo=None)
        if pa.types.is_date(kind):
            if local.time() != time():
                raise ConfigurationError(
                    f"The event times are days (DATE), and {text!r} is a time of a day; give a day."
                )
            return local.date()
        return local.replace(tzinfo=zone).astimezone(UTC) if kind.tz is not None else local
    except OverflowError:
        raise ConfigurationError(
            f"{text!r} is at the edge of the years 1 to 9999, and beyond it in another time zone. Give a time a day "
            "away from it, or leave the option out: then there is no bound."
        ) from None
