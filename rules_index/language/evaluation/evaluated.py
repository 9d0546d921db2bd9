"""The value of an expression on each of some rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A value for each row. `values` is NULL also where evaluation raised; `raised` is `[rows] bool`, None for
    nowhere."""

    values: pa.Array
    raised: Mask | None = None
