"""Matches a micro-batch, and writes its tables exactly once."""
