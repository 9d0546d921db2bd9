"""Text that is put into Spark's SQL."""

from __future__ import annotations


def quoted(name: str) -> str:
    """A column's name as Spark's column resolution takes it literally."""
    return f"`{name.replace('`', '``')}`"
