"""The kernel's stored arrays: one table with the dtype, shape and bounds of each.

The layout writes these fields, the artifact stores them, and the kernel reads them (`kernels.match.KernelArrays` says
what they mean). They are checked before a kernel reads them; `index.validate_kernel` also checks that fields are
consistent with each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rules_index.kernels.bitmaps import COARSE_CODES
from rules_index.kernels.hash_tables import QUICK


@dataclass(frozen=True)
class Field:
    """One stored array. A count is a number, or a name: that of a field, for its length, or one of "attributes",
    "conjunctions", "bitmaps", "bitmaps_and_disjunctions", "tables" and "rules_or_one".

    columns    the second dimension of a two-dimensional array; 0 for a one-dimensional one
    length     a count: the array has `more` more rows than that; None if other fields determine it
    low, high  every value is in [low, high), `high` being a count; None if other fields determine it
    into       the values are offsets into this field: they begin at 0, never fall, and end at its length
    coarse     the values (of the first column) are attributes that have coarse codes
    """

    name: str
    dtype: Any = np.int32
    columns: int = 0
    length: str | None = None
    more: int = 0
    low: int | None = None
    high: str | int | None = None
    into: str | None = None
    coarse: bool = False


FIELDS = (
    Field("shift", length="attributes", low=-1, high=31),
    Field("bitmap_attribute", low=-1, high="attributes"),
    Field("bitmap_start", np.int64, length="bitmaps", more=1, into="bitmap_intervals"),
    Field("bitmap_intervals", columns=2, low=0, high=COARSE_CODES),
    Field("term_start", np.int64, length="conjunctions", more=1, into="terms"),
    Field("terms", columns=2, low=0, high="bitmaps_and_disjunctions"),
    Field("check_start", np.int64, length="conjunctions", more=1, into="checks"),
    Field("checks", columns=4),
    Field("target", length="conjunctions"),
    Field("key_start", np.int64, length="tables", more=1, into="key_attributes"),
    Field("key_attributes", low=0, high="attributes"),
    Field("key_factors", np.int64, length="key_attributes"),
    Field("key_bits"),
    Field("key_plain", length="tables", low=0, high=2),
    Field("slot_at", np.int64, length="tables"),
    Field("slot_start"),
    Field("filter_at", np.int64, length="tables"),
    Field("filter_bits", length="tables", low=0, high=32),
    Field("filter_words"),
    Field("groups", columns=2),
    Field("group_codes"),
    Field("group_code_at", np.int64, length="tables"),
    Field("posted", columns=1 + QUICK),
    Field("plain", low=0, high="rules_or_one"),
    Field("run_attribute", low=0, high="attributes", coarse=True),
    Field("run_level_start", np.int64, length="run_attribute", more=1, into="level_width"),
    Field("level_width", low=1, high=2 * COARSE_CODES),
    Field("level_offsets", columns=COARSE_CODES + 2, length="level_width"),
    Field("tree_end"),
    Field("tree_test_start", np.int64, length="tree_end", more=1, into="tree_tests"),
    Field("tree_tests", columns=3, coarse=True),
    Field("tree_key_start", np.int64, length="tree_end", more=1, into="tree_keys"),
    Field("tree_keys"),
)  # fmt: skip
"""In the order of `kernels.match.KernelArrays`, which also has some arrays of the conjunctions."""
SCALARS = ("scanned", "block_rows", "chunk_rows", "ascending", "distinct", "tree_depth", "alone")
"""Numbers that are stored together as the array "scalars" int64; all but `scanned` and `chunk_rows` can be derived from
other fields."""
DTYPES = {field.name: field.dtype for field in FIELDS}
