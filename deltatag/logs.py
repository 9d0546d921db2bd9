"""What libraries log while a command runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def libraries_silent(silent: bool) -> Iterator[None]:
    """Turn logging off: Spark and Py4J log errors with stack traces, which are reported in one line anyway."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL if silent else before)
    try:
        yield
    finally:
        logging.disable(before)
