"""Measured comparisons, with match counts compared before any time. `python -m benchmarks` runs all of them."""

import os

# Libraries count the cores when they are imported; the kernel's comparison is on one core.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
