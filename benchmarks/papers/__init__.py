"""The experiments of the five papers, one module a paper: every figure and table as this run's figures.

`python -m benchmarks.papers` runs what has not been run yet and writes docs/papers.md.
"""

import os

# Libraries count the cores when they are imported; all that is compared here runs on one.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
