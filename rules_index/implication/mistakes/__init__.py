"""Mistakes that are found from a single rule's text, and from what is known of the columns' values."""
