"""The algorithms of the paper on matching disjunctive predicates (Kuntschke and Kemper)."""
