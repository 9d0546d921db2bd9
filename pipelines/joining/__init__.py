"""The micro-batches of a join: which rows each reads, how they come together, and how they are written."""
