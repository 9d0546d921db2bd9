"""Evaluates operations on Arrow columns with Spark's meaning."""
