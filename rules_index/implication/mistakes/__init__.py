"""Finds mistakes in a single rule from its text and from known values of the columns."""
