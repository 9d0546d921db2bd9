"""The ASC paper's system, one row at a time: constructs as bitmaps, and the search for their evaluation order."""
