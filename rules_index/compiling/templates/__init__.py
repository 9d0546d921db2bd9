"""A rule set compiled together as far as its rules are alike: frames, clauses, and what they come to."""
