"""The best and the worst of all fixed orders of the ASC paper's constructs (SEQ best and SEQ worst), exactly.

What an order costs is the sum, over its prefixes, of the rows that the prefix leaves a query for: that depends on which
attributes are in the prefix, not on their order. So the rows are counted once for each subset of the attributes, and
the best and worst way through the subsets is found from the empty one on, in place of running n! orders.
"""

from __future__ import annotations

import numpy as np

from benchmarks.jit import jit
from rules_index.engines.asc.constructs import SelectionConstructs
from rules_index.engines.asc.evaluate import Bitmaps

MOST_ATTRIBUTES = 16


def fixed_orders(constructs: SelectionConstructs, codes: np.ndarray) -> dict[str, int]:
    """Constructs evaluated on rows of codes [attributes, rows] by the `best` and by the `worst` fixed order;
    `ValueError` where there are more than `MOST_ATTRIBUTES` p-attributes."""
    attributes = constructs.attributes.astype(np.int64)
    number = len(attributes)
    if number > MOST_ATTRIBUTES:
        raise ValueError(f"{number} p-attributes have too many orders")
    left = _left(constructs.rows(codes), constructs.bitmaps, attributes)
    best, worst = np.zeros(1 << number, np.int64), np.zeros(1 << number, np.int64)
    for subset in range(1, 1 << number):
        before = [subset & ~(1 << place) for place in range(number) if subset >> place & 1]
        best[subset] = min(best[each] + left[each] for each in before)
        worst[subset] = max(worst[each] + left[each] for each in before)
    return {"best": int(best[-1]), "worst": int(worst[-1])}


@jit
def _left(codes: np.ndarray, bitmaps: Bitmaps, attributes: np.ndarray) -> np.ndarray:
    """Rows [subsets] int64 that each subset of the attributes leaves a query for."""
    subsets = 1 << len(attributes)
    left = np.zeros(subsets, np.int64)
    grb = np.empty((subsets, bitmaps.words), np.uint64)
    for row in range(codes.shape[1]):
        for word in range(bitmaps.words):
            grb[0, word] = bitmaps.live[word]
        left[0] += 1
        for subset in range(1, subsets):
            place = 0
            while subset >> place & 1 == 0:
                place += 1
            before = subset & (subset - 1)
            region = bitmaps.region_at[attributes[place]] + codes[attributes[place], row]
            some = np.uint64(0)
            for word in range(bitmaps.words):
                kept = grb[before, word] & bitmaps.qrb[region, word]
                grb[subset, word] = kept
                some |= kept
            left[subset] += some != 0
    return left
