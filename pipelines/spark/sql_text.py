"""Names in Spark SQL, and messages of its errors."""

from __future__ import annotations

import re

from pipelines.error_texts import first_line


def quoted(name: str) -> str:
    """A column's name in back-quotes, so that Spark takes it literally."""
    return f"`{name.replace('`', '``')}`"


def spark_message(error: Exception) -> str:
    """The first line of a Spark error without its class and SQL state, for the author of a rule."""
    text = first_line(error)
    text = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", text)
    return re.sub(r"\s*SQLSTATE: [0-9A-Z]{5}.*$", "", text)
