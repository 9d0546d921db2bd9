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
    """A value for each row. `raised` has the rows where evaluation raised, `[rows] bool`, None if there are none;
    `values` is NULL there, too."""

    values: pa.Array
    raised: Mask | None = None
