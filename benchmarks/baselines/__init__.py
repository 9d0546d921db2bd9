"""Ways to match rules that are not deltatag's, to compare it with."""
