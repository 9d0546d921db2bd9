"""The internals of Delta Lake that deltatag uses, and a check that the session's Delta Lake has them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from pipelines.errors import SessionError
from pipelines.spark.java_names import java

KNOWN_DELTA = "4.4"
_DELTA = "org.apache.spark.sql.delta."
_SESSION = "org.apache.spark.sql.SparkSession"
_SEQ = "scala.collection.immutable.Seq"
ENTRY_POINTS = {
    "DeltaLog$": ["forTable(org.apache.spark.sql.SparkSession,java.lang.String)"],
    "DeltaLog": [
        "update(boolean,scala.Option,scala.Option)",
        "getSnapshotAt(long,scala.Option,scala.Option,boolean)",
        "createDataFrame(SnapshotDescriptor,scala.collection.immutable.Seq,boolean,scala.Option)",
        "startTransaction(scala.Option,scala.Option)",
        "logPath()",
        "dataPath()",
    ],
    "Snapshot": ["version()", "metadata()", "allFiles()", "checksumOpt()"],
    "VersionChecksum": ["allFiles()", "setTransactions()"],
    "OptimisticTransaction": [
        "commit(scala.collection.immutable.Seq,DeltaOperations$Operation)",
        "writeFiles(org.apache.spark.sql.Dataset)",
        "txnVersion(java.lang.String)",
        "readTxn()",
        "snapshot()",
    ],
    "DeltaOperations$Write": [f"DeltaOperations$Write(org.apache.spark.sql.SaveMode{',scala.Option' * 8})"],
    "DeltaOperations$Update": ["DeltaOperations$Update(scala.Option)"],
    "actions.Action$": ["fromJson(java.lang.String)"],
    "actions.Metadata": ["id()", "schemaString()", "partitionColumns()", "configuration()"],
    "util.JsonUtils$": ["mapper()"],
    "commands.cdc.CDCReader$CDCDataSpec": [
        "CDCReader$CDCDataSpec(long,java.sql.Timestamp,scala.collection.immutable.Seq,scala.Option)"
    ],
    "commands.cdc.CDCReader$": [
        "scanIndex(org.apache.spark.sql.SparkSession,files.TahoeFileIndexWithSnapshotDescriptor,boolean)"
    ],
    "files.CdcAddFileIndex": [
        f"CdcAddFileIndex({_SESSION},{_SEQ},DeltaLog,org.apache.hadoop.fs.Path,SnapshotDescriptor,scala.Option)"
    ],
}
"""The methods and constructors that are called, by class; Delta's own classes without their package."""

_tested: set[str] = set()


def know_delta(spark: SparkSession) -> None:
    """Raise SessionError if Delta Lake is missing, or lacks an entry point; checked once per application."""
    application = str(spark.sparkContext.applicationId)
    if application in _tested:
        return
    absent = missing_entry_points(spark._jvm, ENTRY_POINTS)
    if len(absent) == sum(map(len, ENTRY_POINTS.values())):
        raise SessionError(
            f"The running Spark session has no Delta Lake. Start it with the jars of delta-spark {KNOWN_DELTA}.0, or "
            "let deltatag start its own session."
        )
    if absent:
        raise SessionError(
            f"deltatag does not know the internals of this Delta Lake, {_delta_version(spark._jvm)} on Spark "
            f"{spark.version} (it knows {KNOWN_DELTA}): there is no {absent[0]}. Use delta-spark {KNOWN_DELTA}, or a "
            "version of deltatag that knows this one."
        )
    _tested.add(application)


def missing_entry_points(jvm: Any, known: Mapping[str, Sequence[str]]) -> list[str]:
    """The methods and constructors that this Delta Lake lacks, each with its class."""
    absent = []
    for name, signatures in known.items():
        try:
            found = java(jvm, "py4j.reflection.ReflectionUtil.classForName")(_DELTA + name)
        except Py4JJavaError:
            absent += [f"{name}.{signature}" for signature in signatures]
            continue
        # one text per class, since each call is a round trip to the JVM
        text = "".join(
            map(java(jvm, "scala.runtime.ScalaRunTime.stringOf"), (found.getMethods(), found.getConstructors()))
        )
        text = text.replace(_DELTA, "")
        absent += [f"{name}.{each}" for each in signatures if not re.search(rf"[. ]{re.escape(each)}", text)]
    return absent


def _delta_version(jvm: Any) -> str:
    try:
        return str(java(jvm, "io.delta.package$.MODULE$").VERSION())
    except (Py4JError, TypeError):
        return "of an unknown version"
