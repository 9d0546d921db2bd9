"""The values of an attribute: sets of them, and the regions into which the constants of rules divide them."""
