"""Where compiled kernels are cached; without Numba, which takes long to import."""

from __future__ import annotations

import os
import sys
from pathlib import Path

SET_UP = Path(sys.prefix) / "share" / "deltatag" / "numba"
"""Where set-up caches compiled kernels, for the command line, Spark's workers and programs that import this."""


def is_cold() -> bool:
    """Whether no kernel is cached yet, so that the first rules wait until they are compiled: a minute or two."""
    given = os.environ.get("NUMBA_CACHE_DIR") or (SET_UP if os.access(SET_UP, os.W_OK) else Path(__file__).parent)
    return next(Path(given).rglob("match*.nbi"), None) is None
