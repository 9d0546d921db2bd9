"""Measured comparisons, with match counts compared before any time. `python -m benchmarks` runs all of them."""
