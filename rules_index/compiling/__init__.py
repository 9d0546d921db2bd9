"""From rule texts to conjunctions over region codes, and from these to an index."""
