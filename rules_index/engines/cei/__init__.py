"""Containment-encoded intervals: interval indexes over virtual constructs, for one attribute and for conjunctions."""
