"""Compiles the common parts of rules once: skeletons of AND, OR and NOT, and clauses."""
