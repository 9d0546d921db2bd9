"""The flat scan: every conjunction over the row bitmaps of every block, as `asc` orders them, and nothing spared."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rules_index.engines.asc.engine import Asc
from rules_index.index.engine import MEASURED
from rules_index.kernels.match import KernelArrays


class Flat(Asc):
    """`asc` without summaries of bitmaps and without equality blocks."""

    name: ClassVar[str] = "flat"

    def _measured(self, codes: np.ndarray, index: KernelArrays) -> KernelArrays:
        index = super()._measured(codes, index)
        return index._replace(**{name: getattr(index, name)[:0] for name, kind in MEASURED.items() if kind})
