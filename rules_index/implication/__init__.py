"""Which rules imply which: predicate matching as published, and the same question asked of rules."""
