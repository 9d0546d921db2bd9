"""Sets a thread's active Spark session, whose settings decide how expressions are parsed and columns are built."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from pipelines.spark.java_names import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SESSIONS = "org.apache.spark.sql.classic.SparkSession"


@contextlib.contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Make `spark` the thread's active session, and restore the former one afterwards.

    Spark's parser and expressions take ANSI mode, the time zone of literals and all other settings from the active
    session, not from the session whose parser is called. Any other session may be the active one.
    """
    before = java(spark._jvm, f"{_SESSIONS}.getActiveSession")()
    activate: Any = java(spark._jvm, f"{_SESSIONS}.setActiveSession")
    activate(spark._jsparkSession)
    try:
        yield
    finally:
        with contextlib.suppress(Py4JError, OSError):  # the JVM may have ended meanwhile
            if before.isDefined():
                activate(before.get())
            else:
                java(spark._jvm, f"{_SESSIONS}.clearActiveSession")()
