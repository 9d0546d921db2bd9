"""Kuntschke and Kemper: matching of disjunctive predicates. Lint has its own way, `rules_index.implication.cover`."""
