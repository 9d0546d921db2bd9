"""Great Expectations suites for the rules table, the sources and the tagged tables."""
