"""When it pays to partition, filter and slice the rows of a join: the same in this process and in Spark."""

MIN_PARTITION_ROWS = 1 << 14
"""Number of rows below which a partition of their own does not pay."""
MAX_PASSING_SHARE = 0.5
"""Share of a stream's rows that pass a filter above which the filter costs more than it saves."""
MAX_SLICE_COPIES = 4
"""About how many copies of a row slices may cost: a slice lasts at least 1 / MAX_SLICE_COPIES of the longest window."""
