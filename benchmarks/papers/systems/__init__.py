"""What the papers describe and only their experiments run: the product has other ways to the same results."""
