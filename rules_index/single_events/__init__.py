"""Kernels for one event at a time: a row, or an event that is an expression."""
