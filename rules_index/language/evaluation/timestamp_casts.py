"""Casts of texts to timestamps, as in Spark's ANSI mode: values, and a mask of the texts that have none."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.language.evaluation import argument_types
from rules_index.language.evaluation.datetime_parser import (
    BLANK,
    DAY,
    SHORT_ZONES,
    LocalTime,
    has_region,
    is_time_of_day,
    parse_timestamp,
    zone_of,
    zone_offset,
)
from rules_index.language.evaluation.malformed_texts import Texts
from rules_index.language.evaluation.scalar import Columns, Result, ScalarFunction, like, nulls_of
from rules_index.language.evaluation.time_zones import days_of_dates, first_instants, instants

_PLAIN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?Z?$"
_PLACES = {"year": (0, 4), "month": (5, 7), "day": (8, 10), "hour": (11, 13), "minute": (14, 16), "second": (17, 19)}
_LOCAL = -1
"""The number that stands for a zone if the text names none."""


def _instants(columns: Columns, zone: str) -> Result:
    """Texts as TIMESTAMPs. If a text names no zone, it is a local time of `zone`."""
    texts = columns[0]
    days, of_day, zones, names, failed = _local_times(texts, zone)
    micros = np.zeros(len(texts), np.int64)
    order = np.argsort(zones, kind="stable")
    bounds = np.searchsorted(zones[order], np.arange(_LOCAL, len(names) + 1))
    for name, begin, end in zip([zone, *names], bounds[:-1], bounds[1:], strict=True):
        rows = order[begin:end]
        rows = rows[~failed[rows]]
        if len(rows):
            micros[rows], failed[rows] = first_instants(days[rows], of_day[rows], name)
    return like(texts, micros, pa.int64()).cast(pa.timestamp("us", "UTC")), failed & ~nulls_of(texts)


def _wall_times(columns: Columns, _: str) -> Result:
    """Texts as TIMESTAMP_NTZs: local times, whatever zone a text names."""
    texts = columns[0]
    days, of_day, *_zones, failed = _local_times(texts, None)
    micros, beyond = instants(days, of_day, "UTC")
    return like(texts, micros, pa.int64()).cast(pa.timestamp("us")), (failed | beyond) & ~nulls_of(texts)


def _instants_or_null(columns: Columns, zone: str) -> Result:
    """Texts as TIMESTAMPs, NULL where a text has none."""
    found, failed = _instants(columns, zone)
    return pc.if_else(pa.array(failed), pa.scalar(None, found.type), found), None


def _local_times(texts: pa.Array, zone: str | None) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str], np.ndarray]:
    """For each text its days since 1970, its microseconds of the day, and the number of the zone that it names
    (`_LOCAL` if none); the names of the zones by number; and a mask of the texts that are no timestamp.

    A time without a date is on the current day of `zone`. If `zone` is None, such a text is no timestamp.
    """
    trimmed = pc.utf8_trim(texts, characters=BLANK)
    plain = pc.fill_null(pc.match_substring_regex(trimmed, _PLAIN), False).to_numpy(zero_copy_only=False)
    days, of_day, failed = _plain_times(trimmed, plain)
    zones = np.full(len(texts), _LOCAL, np.int64)
    names = ["UTC"]
    zones[pc.fill_null(pc.ends_with(trimmed, "Z"), False).to_numpy(zero_copy_only=False)] = 0
    others = np.flatnonzero((~plain | failed) & ~nulls_of(texts))
    if len(others):
        codes = texts.take(pa.array(others)).dictionary_encode()
        parsed = [_parsed(text, zone) for text in codes.dictionary.to_pylist()]
        names += sorted({each.zone for each in parsed if each is not None and each.zone is not None} - {"UTC"})
        numbers = {name: number for number, name in enumerate(names)}
        split = [(0, 0) if each is None else divmod(each.local, DAY) for each in parsed]
        places = codes.indices.to_numpy()
        days[others], of_day[others] = (np.array(column, np.int64)[places] for column in zip(*split, strict=True))
        named = [_LOCAL if each is None or each.zone is None else numbers[each.zone] for each in parsed]
        zones[others] = np.array(named)[places]
        failed[others] = np.array([each is None for each in parsed])[places]
    return days, of_day, zones, names, failed


def _plain_times(texts: pa.Array, plain: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Days and microseconds of `plain` texts like 2024-12-31 23:59:59.5, and a mask of those whose date does not
    exist."""
    digits = pc.if_else(pa.array(plain), texts, "1970-01-01 00:00:00")
    part = {
        name: pc.utf8_slice_codeunits(digits, *places).cast(pa.int64()).to_numpy(zero_copy_only=False)
        for name, places in _PLACES.items()
    }
    fraction = pc.utf8_slice_codeunits(pc.utf8_rtrim(digits, characters="Z"), 20, 26)
    micros = pc.utf8_rpad(fraction, 6, "0").cast(pa.int64()).to_numpy(zero_copy_only=False)
    days, wrong = days_of_dates(part["year"], part["month"], part["day"])
    seconds = (part["hour"] * 60 + part["minute"]) * 60 + part["second"]
    return days, seconds * 1_000_000 + micros, wrong


def _parsed(text: str, zone: str | None) -> LocalTime | None:
    """The local time of a text, with the name of its zone; None for a text that is no timestamp. If `zone` is given, a
    time with an offset is converted to UTC."""
    if zone is not None and is_time_of_day(text):
        today = datetime.now(UTC).astimezone(zone_of(zone)).date()
        text = f"{today.isoformat()} {text.strip(BLANK).removeprefix('T')}"
    found = parse_timestamp(text)
    if found is None or found.zone is None:
        return found
    named = found.zone.strip(" ")
    named = SHORT_ZONES.get(named, named)
    offset = zone_offset(named)
    if offset is not None:
        return LocalTime(found.local - offset if zone is not None else found.local, "UTC")
    return LocalTime(found.local, named) if has_region(named) else None


SPELLED_TIMES: dict[str, ScalarFunction] = {
    "to_timestamp": ScalarFunction(argument_types.one_text, _instants, raises=True, texts=Texts.DECODED),
    "to_timestamp_ntz": ScalarFunction(argument_types.one_text, _wall_times, raises=True, texts=Texts.DECODED),
    "try_to_timestamp": ScalarFunction(argument_types.one_text, _instants_or_null, texts=Texts.DECODED),
}
