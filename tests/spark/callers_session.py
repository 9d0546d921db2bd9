"""A caller's Spark session in which every setting that decides what a rule means is another one than deltatag's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from pipelines.settings.semantic_settings import SEMANTIC_SETTINGS, TIME_ZONE, canonical_name

OTHERS = {
    TIME_ZONE: "Pacific/Kiritimati",
    "spark.sql.binaryOutputStyle": "HEX",
    "spark.sql.columnNameOfCorruptRecord": "_bad",
    "spark.sql.csv.parser.inputBufferSize": "4096",
    "spark.sql.functionResolution.sessionOrder": "first",
    "spark.sql.legacy.csv.enableDateTimeParsingFallback": "true",
    "spark.sql.legacy.ctePrecedencePolicy": "LEGACY",
    "spark.sql.legacy.json.enableDateTimeParsingFallback": "true",
    "spark.sql.legacy.nullInEmptyListBehavior": "true",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.storeAssignmentPolicy": "LEGACY",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
}
"""Another value for each setting that is no truth value."""
_UNSUITED = ("spark.sql.analyzer.singlePassResolver.", "spark.sql.defaultPath", "spark.sql.path.enabled")
"""What turns on parts of Spark that are not finished, or that refuse to work beside the others."""


def other_settings(spark: SparkSession) -> dict[str, str]:
    """Every semantic setting that Spark knows and a session may change, with a value that deltatag does not use."""
    jvm: Any = spark._jvm
    entries = getattr(getattr(jvm.org.apache.spark.sql.internal, "SQLConf$"), "MODULE$").getConfigEntries().iterator()
    found = {}
    while entries.hasNext():
        entry = entries.next()
        name, default = entry.key(), str(entry.defaultValueString())
        if canonical_name(name) is None or name.startswith(_UNSUITED) or not spark.conf.isModifiable(name):
            continue
        used = SEMANTIC_SETTINGS.get(name, default)
        value = OTHERS.get(name, {"true": "false", "false": "true"}.get(used))
        assert value is not None, f"{name} has no other value in OTHERS; deltatag uses {used}"
        found[name] = value
    return found


@contextmanager
def callers_session(spark: SparkSession, **further: str) -> Iterator[SparkSession]:
    """A session with all those settings, which is also the thread's active one while inside."""
    session = spark.newSession()
    for name, value in {**other_settings(spark), **further}.items():
        session.conf.set(name, value)
    jvm: Any = spark._jvm
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)
    try:
        yield session
        now = sessions.getActiveSession()
        assert now.isDefined() and now.get().equals(session._jsparkSession), "the caller's session is not active again"
    finally:
        sessions.setActiveSession(before.get()) if before.isDefined() else sessions.clearActiveSession()
