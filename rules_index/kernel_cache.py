"""Where compiled kernels are cached; without Numba, which takes long to import."""

from __future__ import annotations

import os
import sys
from pathlib import Path

SET_UP = Path(sys.prefix) / "share" / "deltatag" / "numba"
"""Where set-up caches compiled kernels, for the command line, Spark's workers and programs that import this."""


def is_cold() -> bool:
    """Whether no kernel is cached yet, so that the first rules wait until they are compiled: a minute or two. False
    where Numba caches them in a folder of the user's own, since it cannot write to this one."""
    given, here = os.environ.get("NUMBA_CACHE_DIR"), Path(__file__).parent
    if given is None and not os.access(SET_UP, os.W_OK) and not os.access(here, os.W_OK):
        return False
    folder = Path(given or (SET_UP if os.access(SET_UP, os.W_OK) else here))
    return next(folder.rglob("match*.nbi"), None) is None
