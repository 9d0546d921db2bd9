"""Compiles rule texts to conjunctions over region codes, and these to an index."""
