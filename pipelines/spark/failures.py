"""Turns Spark's errors into sentences, without importing PySpark if it is not loaded yet."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pipelines.error_texts import AGAIN, first_line, why_full
from pipelines.errors import TableError


def run(action: Callable[[], Any], what: str) -> Any:
    """Run an action in Spark; TableError, "Could not `what`: ...", if it fails."""
    with explained(what):
        return action()


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn an error of Spark into a TableError, "Could not `what`: ..."."""
    try:
        yield
    except Exception as error:
        if not _is_sparks(error):
            raise
        if reason := why_full(error):
            raise TableError(f"Could not {what}: {reason}. {AGAIN}") from error
        raise TableError(f"Could not {what}: {_root_cause(error)}") from error


def _is_sparks(error: Exception) -> bool:
    if "pyspark" not in sys.modules:
        return False
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return isinstance(error, (PySparkException, Py4JJavaError))


def _root_cause(error: Exception) -> str:
    """The message of the innermost Java exception, or the first line of the Python error."""
    cause = getattr(error, "java_exception", None)
    if cause is None:
        return first_line(error)
    while cause.getCause() is not None:
        cause = cause.getCause()
    return first_line(cause.getMessage() or cause.toString())


def is_conflict(error: BaseException | None) -> bool:
    """Whether an error is a conflict with another writer."""
    return error is not None and "Concurrent" in f"{type(error).__name__} {error}"
