"""The lake: deltatag's own tables, how they are opened, and the micro-batches that they record."""
