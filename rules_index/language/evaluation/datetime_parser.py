"""Reads dates and timestamps from text in the forms that Spark accepts, and converts local times to instants."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo

DAY = 86_400_000_000
"""Microseconds of a day."""

_DATE = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_TIMESTAMP = re.compile(
    r"([+-]?)([0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T]"
    r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?[ ]*([A-Za-z+-].*)?)?)?)?)?)?",
    re.DOTALL,
)
_TIME_OF_DAY = re.compile(r"T[0-9]{1,2}(?::[0-9]|[\x00-\x20\x7f]*\Z)|[\x00-\x20\x7f]*[0-9]{1,2}:[0-9]")
"""Spark reads no T behind a blank."""
MOVING = re.compile(r"\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
"""The words for moments of the day on which a query is run."""
_EPOCH = re.compile(r"\s*epoch(?:[ \t]+(\S+))?\s*", re.IGNORECASE)
_OFFSET = re.compile(r"([+-])(?:([0-9]{1,2})(?::([0-9]{1,2})|:([0-9]{2}):([0-9]{2}))?|([0-9]{2})([0-9]{2})([0-9]{2})?)")
_REGION = re.compile(r"(?!posix/|right/|Etc/Unknown)[A-Z][A-Za-z]+/[A-Za-z_/+-]+[0-9]*")
_NOT_IN_JAVA = frozenset(("Factory", "GMT+0", "GMT-0", "ROC", "localtime", "posixrules"))
"""Zones of the time zone database that Java does not have."""
_NEWER = frozenset(("America/Ciudad_Juarez", "America/Coyhaique", "Europe/Kyiv", "Pacific/Kanton"))
"""Zones that some Java versions on which Spark 4.2 runs do not have: only Spark knows whether they are valid."""
SHORT_ZONES = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "EST": "-05:00", "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia",
    "MST": "-07:00", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland", "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
"""The zones that short names stand for, by java.time.ZoneId.SHORT_IDS."""
_SYSTEM_V = re.compile(r"SystemV/[A-Z]{3}[0-9](?:[A-Z]{3})?")
BLANK = "".join(map(chr, range(33))) + "\x7f"
"""The characters that Spark strips from a text that it casts to an integer, a BOOLEAN, a date or a time."""
_SETTLED = DAY
"""The first local time for which all editions of the time zone database agree: 1970 has then begun in every zone."""
_LONGEST_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True, slots=True)
class LocalTime:
    """Microseconds since 1970-01-01 00:00 on a local clock, and the zone named in the text, if any."""

    local: int
    zone: str | None


def days_of(year: int, month: int, day: int) -> int | None:
    """Days since 1970-01-01 in the proleptic Gregorian calendar; None if the date does not exist."""
    if not 1 <= month <= 12 or not 1 <= day <= _LONGEST_MONTHS[month - 1]:
        return None
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if month == 2 and day == 29 and not leap:
        return None
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def parse_date(text: str) -> int | None:
    """Days since 1970-01-01 of a text that Spark casts to DATE; None for any other."""
    found = _DATE.fullmatch(text.strip(BLANK))
    if found is None:
        return None
    year = int(found[2]) * (-1 if found[1] == "-" else 1)
    days = days_of(year, int(found[3] or 1), int(found[4] or 1))
    return days if days is not None and -(1 << 31) <= days < 1 << 31 else None


def parse_timestamp(text: str) -> LocalTime | None:
    """The local time of a text that Spark casts to TIMESTAMP; None for any other, including a time without a date."""
    found = _TIMESTAMP.fullmatch(text.strip(BLANK))
    if found is None:
        return None
    year = int(found[2]) * (-1 if found[1] == "-" else 1)
    days = days_of(year, int(found[3] or 1), int(found[4] or 1))
    hour, minute, second = (int(part or 0) for part in found.group(5, 6, 7))
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    fraction = int(((found[8] or "") + "000000")[:6])
    return LocalTime(days * DAY + ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction, found[9])


def is_time_of_day(text: str) -> bool:
    """Whether a text is a time without a date, which Spark reads as one on the current day."""
    return _TIME_OF_DAY.match(text) is not None


def names_moment(text: str) -> bool:
    """Whether Spark reads a text as a moment when it casts a constant: it begins with a word such as `today`, or is
    `epoch`."""
    return MOVING.match(text) is not None or is_epoch(text)


def is_epoch(text: str) -> bool:
    """Whether a text is the word for 1970-01-01, with or without a zone."""
    found = _EPOCH.fullmatch(text)
    return found is not None and (not found[1] or is_zone(found[1]))


def zone_offset(zone: str) -> int | None:
    """The microseconds by which a fixed zone (`UTC`, `Z`, `+02:00`, `GMT-3`) is ahead of UTC; None for a region."""
    name = zone
    if name in ("Z", "UTC", "GMT", "UT", "Etc/UTC", "Etc/GMT", "Zulu", "Universal", "Etc/Universal"):
        return 0
    for prefix in ("UTC", "GMT", "UT"):
        if name.startswith(prefix) and name[len(prefix) : len(prefix) + 1] in ("+", "-"):
            name = name[len(prefix) :]
            break
    found = _OFFSET.fullmatch(name)
    if found is None:
        return None
    hours, minutes = int(found[2] or found[6]), int(found[3] or found[4] or found[7] or 0)
    seconds = int(found[5] or found[8] or 0)
    if minutes > 59 or seconds > 59 or hours * 3600 + minutes * 60 + seconds > 18 * 3600:
        return None
    return (-1 if found[1] == "-" else 1) * ((hours * 60 + minutes) * 60 + seconds) * 1_000_000


def zone_of(time_zone: str) -> timezone | ZoneInfo:
    """A zone, given its name or offset."""
    offset = zone_offset(time_zone)
    return ZoneInfo(time_zone) if offset is None else timezone(timedelta(microseconds=offset))


@lru_cache(maxsize=256)
def _region(zone: str) -> ZoneInfo | None:
    return ZoneInfo(zone) if _REGION.fullmatch(zone) and zone not in _NEWER and has_region(zone) else None


def is_zone(zone: str) -> bool:
    """Whether Spark accepts a text as a zone: an offset, a region or a short name."""
    return zone_offset(zone) is not None or has_region(zone) or zone in SHORT_ZONES or bool(_SYSTEM_V.fullmatch(zone))


def has_region(zone: str) -> bool:
    """Whether a zone is a region of the time zone database, including those whose meaning only Spark knows."""
    if zone in _NOT_IN_JAVA or zone.startswith(("posix/", "right/")):
        return False
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        return False
    return True


def is_known(zone: str) -> bool:
    """Whether a zone certainly has the same meaning here as in Spark."""
    return zone_offset(zone) is not None or _region(zone) is not None


def to_instant(local: int, zone: str) -> int | None:
    """The instant of a local time, in microseconds since the epoch in UTC; None if only Spark knows.

    A time in the hour that a clock change skips moves forward by that hour; of one that occurs twice the earlier is
    taken. Before 1970 the local times of a region differ between editions of the time zone database, so these are left
    to Spark.
    """
    offset = zone_offset(zone)
    if offset is not None:
        instant = local - offset
        return instant if -(1 << 63) <= instant < 1 << 63 else None
    region = _region(zone)
    if region is None or local < _SETTLED:
        return None
    try:
        moment = datetime(1970, 1, 1) + timedelta(microseconds=local)
        ahead = moment.replace(tzinfo=region).utcoffset()
    except OverflowError:
        return None
    return None if ahead is None else local - ahead // timedelta(microseconds=1)


def to_local(instant: int, zone: str) -> int | None:
    """The local time of a zone at an instant, both in microseconds since 1970; None if only Spark knows."""
    offset = zone_offset(zone)
    if offset is not None:
        return instant + offset
    region = _region(zone)
    if region is None or instant < _SETTLED:
        return None
    try:
        ahead = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant)).astimezone(region).utcoffset()
    except OverflowError:
        return None
    return None if ahead is None else instant + ahead // timedelta(microseconds=1)


def start_of_day(days: int, zone: str) -> int | None:
    """The instant at which a date begins in a zone; None if only Spark knows, or if clocks skip midnight on that
    day."""
    instant = to_instant(days * DAY, zone)
    if instant is None or zone_offset(zone) is not None:
        return instant
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant)
        back = moment.astimezone(_region(zone)).replace(tzinfo=None)
    except OverflowError:
        return None
    return instant if back == datetime(1970, 1, 1) + timedelta(days=days) else None
