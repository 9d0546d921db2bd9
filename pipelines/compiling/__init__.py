"""What the verb compile is made of: what changed in the rules, how it is compiled, and where it goes."""
