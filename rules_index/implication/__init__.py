"""Which rules imply which: the paper's predicate matching, and the same question for rules."""
