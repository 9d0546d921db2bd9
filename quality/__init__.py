"""Great Expectations suites over the rules, the sources and the tagged tables, and the quality gates made of them."""
