"""Which session is the active one of a thread: Spark reads from it how a text is parsed and a column is built."""

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
    """While inside, `spark` is the thread's active session; afterwards the one from before is again, if there was one.

    Spark's parser and its expressions take ANSI mode, the time zone of literals and all other settings from the active
    session, not from the one that is asked to parse. Whose session that is, a caller decides, or nobody.
    """
    before = java(spark._jvm, f"{_SESSIONS}.getActiveSession")()
    activate: Any = java(spark._jvm, f"{_SESSIONS}.setActiveSession")
    activate(spark._jsparkSession)
    try:
        yield
    finally:
        with contextlib.suppress(Py4JError, OSError):  # of a JVM that has ended meanwhile nothing is active
            if before.isDefined():
                activate(before.get())
            else:
                java(spark._jvm, f"{_SESSIONS}.clearActiveSession")()
