"""Finds values inside and outside a value list, near the row's value: candidates for near misses of IN LIST."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rules_index.domains.list_keys import cuts_of
from rules_index.domains.region_codes import Regions
from rules_index.domains.value_lists import ValueList
from rules_index.domains.values import Key

_NEAR = 4
"""How many values of a list are tried on either side of the row's value."""


def keys_near(wanted: ValueList, now: Key | None) -> Iterator[Key]:
    """Yields keys near that of the row's value (`now`), of which some are in the list and some are not."""
    for regions in (wanted.regions, wanted.difference):
        if regions is not None and regions.is_bytes:
            yield from _texts_near(regions, now if isinstance(now, bytes) else b"")
        elif regions is not None:
            yield from _integers_near(regions, now if isinstance(now, int) else 0)


def _texts_near(regions: Regions, now: bytes) -> Iterator[bytes]:
    offsets, data = regions.arrays["point_offsets"], regions.arrays["point_data"]

    def text(place: int) -> bytes:
        return data[offsets[place] : offsets[place + 1]].tobytes()

    low, high = 0, len(offsets) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if text(middle) < now else (low, middle)
    places = range(max(low - _NEAR, 0), min(low + _NEAR, len(offsets) - 1))
    yield from map(text, sorted(places, key=lambda place: abs(2 * place + 1 - 2 * low)))
    yield from (now + b"a", now + b"aa", now[:-1])


def _integers_near(regions: Regions, now: int) -> Iterator[int]:
    cuts = cuts_of(regions)
    place = int(np.searchsorted(cuts, now))
    for cut in cuts[max(place - _NEAR, 0) : place + _NEAR].tolist():
        yield from (cut - 1, cut)
