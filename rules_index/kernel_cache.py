"""Where compiled kernels are cached. Does not import Numba, which takes long."""

from __future__ import annotations

import os
import sys
from pathlib import Path

SET_UP = Path(sys.prefix) / "share" / "deltatag" / "numba"
"""Set-up caches compiled kernels in this folder, for the command line, Spark's workers and programs that import this
package."""


def is_cold() -> bool:
    """Whether no kernel is cached yet, so that the first match waits a minute or two for their compilation. False if
    `NUMBA_CACHE_DIR` is not set and neither `SET_UP` nor this package's folder can be written: Numba then has its cache
    in a folder of the user, which is not examined."""
    given, here = os.environ.get("NUMBA_CACHE_DIR"), Path(__file__).parent
    if given is None and not os.access(SET_UP, os.W_OK) and not os.access(here, os.W_OK):
        return False
    folder = Path(given or (SET_UP if os.access(SET_UP, os.W_OK) else here))
    return next(folder.rglob("match*.nbi"), None) is None
