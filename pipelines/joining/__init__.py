"""The micro-batches of a join: which rows each reads, how rows are joined, and how the results are written."""
