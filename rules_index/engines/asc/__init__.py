"""The ASC paper's system, row at a time: constructs in bitmaps, and the search for the order to evaluate them in."""
