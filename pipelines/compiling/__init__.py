"""The parts of the verb compile: which rules changed, how they are compiled, and where the results are stored."""
