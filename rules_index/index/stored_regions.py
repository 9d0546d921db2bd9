"""Writes the regions of attributes and lists into an artifact, and checks them when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rules_index.domains.region_codes import Regions
from rules_index.index.array_checks import require, require_form, require_offsets, require_range
from rules_index.index.artifact import Sections
from rules_index.index.stored_sections import stored_array
from rules_index.language.serialise import type_from_json, type_to_json

_REGION_DTYPES = {
    "low": np.int64, "cuts": np.int64, "offsets": np.int64, "point_offsets": np.int64, "data": np.uint8,
    "point_data": np.uint8,
}  # fmt: skip
"""The dtypes of the regions' arrays that are not int32."""
_REGION_ARRAYS = (
    {"low", "codes"},
    {"low", "codes", "cuts", "buckets"},
    {"offsets", "data", "codes", "point_offsets", "point_data", "point_codes", "table"},
)
"""The arrays of each kind of regions: a lookup table, sorted cuts, and byte strings. `kernels.encode` has a search for
each."""


def regions_header(regions: Regions, sections: Sections) -> dict[str, Any]:
    """Adds the arrays of regions to the sections; returns the regions' part of the header."""
    arrays = {name: sections.array(array) for name, array in regions.arrays.items()}
    return {"type": type_to_json(regions.type), "count": regions.count, "arrays": arrays}


def stored_regions(item: Mapping[str, Any], body: memoryview) -> Regions:
    """The regions that `regions_header` wrote. Raises `InvalidArraysError` if they are inconsistent."""
    data_type, count = type_from_json(item["type"]), item["count"]
    require(isinstance(count, int) and 1 <= count < 2**31 - 2, "regions")
    arrays = {name: stored_array(reference, body) for name, reference in item["arrays"].items()}
    regions = Regions(data_type, count, arrays)
    require(set(arrays) in _REGION_ARRAYS and regions.is_bytes == ("offsets" in arrays), "regions")
    for name in arrays:
        require_form(arrays, name, _REGION_DTYPES.get(name, np.int32))
    require_range(arrays["codes"], 0, count, "regions")
    if "offsets" in arrays:
        _check_bytes(arrays, count)
    elif "cuts" in arrays:
        _check_search(arrays)
    else:
        require(arrays["low"].shape == (1,) and len(arrays["codes"]) > 0 and arrays["low"].dtype == np.int64, "regions")
        require(abs(int(arrays["low"][0])) < 2**62 or len(arrays["codes"]) < 2**20, "regions")
    return regions


def _check_bytes(a: Mapping[str, np.ndarray], count: int) -> None:
    cuts, points, table = len(a["offsets"]) - 1, len(a["point_offsets"]) - 1, a["table"]
    require_offsets(a["offsets"], len(a["data"]), "regions")
    require_offsets(a["point_offsets"], len(a["point_data"]), "regions")
    require(len(a["codes"]) == cuts + 1 and len(a["point_codes"]) == points, "regions")
    require_range(a["point_codes"], 0, count, "regions")
    require_range(table, -1, points, "regions")
    # an empty slot ends every search of the hash table
    require(len(table) > 0 and len(table) & (len(table) - 1) == 0 and table.min() == -1, "regions")


def _check_search(a: Mapping[str, np.ndarray]) -> None:
    cuts, buckets = a["cuts"], a["buckets"]
    require(a["low"].shape == (2,) and len(a["codes"]) == len(cuts) + 1, "regions")
    if len(cuts) == 0:
        return
    low, shift = int(a["low"][0]), int(a["low"][1])
    require(low == cuts[0] and 0 <= shift < 64 and bool((cuts[1:] > cuts[:-1]).all()), "regions")
    require(len(buckets) >= ((int(cuts[-1]) - low) >> shift) + 2, "regions")
    require_range(buckets, 0, len(cuts) + 1, "regions")
