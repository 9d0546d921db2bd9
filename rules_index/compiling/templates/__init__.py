"""A rule set compiled together as far as its rules are alike: skeletons, clauses, and what they come to."""
