"""Compiles rules by what they have in common: skeletons of AND, OR and NOT, and clauses."""
