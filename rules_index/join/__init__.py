"""Rules over joined rows: matched in batches of several streams' rows, or row by row as in the paper (`pdfa`)."""

MOST_STREAMS = 6
"""Maximum number of streams of a join."""
