"""Turns off what libraries log while a command runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def libraries_silent(silent: bool) -> Iterator[None]:
    """Turn logging off during the block if `silent`: Spark and Py4J log stack traces of errors that we report, too."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL if silent else before)
    try:
        yield
    finally:
        logging.disable(before)
