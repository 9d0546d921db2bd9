"""Lee and others: the search for an evaluation sequence of the constructs in `rules_index.engines.asc`."""
