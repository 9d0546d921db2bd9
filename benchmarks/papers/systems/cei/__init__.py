"""Wu, Chen and Yu: intervals of one attribute in the constructs of `rules_index.engines.cei`, and their formulae."""
