"""The lake: its tables, how they are opened, and the micro-batches that they record."""
