"""Opens deltatag's own Spark session: in the JVM of a running session, or in a new JVM with Delta's jars."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from pipelines.error_texts import first_line
from pipelines.errors import SessionError, SparkNotStartedError
from pipelines.scratch import clean_up, process_folder, scratch_folder
from pipelines.settings.model import Configuration
from pipelines.settings.semantic_settings import SEMANTIC_SETTINGS, TIME_ZONE, canonical_name
from pipelines.spark import java_names, jvm

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, SparkSession

_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",  # VACUUM takes 10,000 tasks for any folder else
    "spark.log.level": "ERROR",
    # Spark's parser keeps what it learns from texts, by default without a limit: a hundred thousand rules fill 2 GB,
    # and the JVM then only collects garbage. It may take 20 % of the JVM's memory
    "spark.sql.parser.manageParserCaches": "true",
    "spark.sql.parser.parserDfaCacheFlushRatio": "20",
}
"""Defaults for a session on this machine only: no web server, no port on the network, few small tasks, and bounded
memory for the parser."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
NO_BYTE_LIMIT = str(2**31 - 1)
"""Value of BATCH_BYTES that turns the limit off. With a limit, Spark adds up the sizes of all columns after each row
that it hands to Python, which takes longer than handing over the row."""
_SPEED = {
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
}
"""Settings for handing rows to Python, the fastest ones that were measured."""
_WRITING = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
"""How Spark writes timestamps. Of its default, INT96, Polars and delta-rs only read the years 1678 to 2261: they show
other years for the rest, or raise an error. INT96 has no statistics in a file either."""
_READING = {"spark.sql.parquet.fieldId.read.enabled": "true"}
"""Delta refuses to read a table with column mapping by id without it, and sets it only in a session that has analysed a
statement, which a new one may not have done when it reads its first table."""


def open_session(
    configuration: Configuration, running: SparkSession | None = None, quiet: bool = False
) -> SparkSession:
    """A new session (`newSession()`) with the settings that decide what a rule means.

    If no session is running, one is started: local[*] unless `[spark]` says otherwise. quiet: write the JVM's log to a
    file instead of standard error. SessionError, JavaNotFoundError or JarsNotFoundError if something is missing.
    """
    base = running or _running_session()
    if base is None:
        base = _start(configuration, quiet)
    if not hasattr(base, "_jsparkSession"):
        raise SessionError(
            "deltatag needs a classic Spark session, and this one is a Spark Connect session. Run deltatag on the "
            "cluster itself (spark-submit, or a job of the platform)."
        )
    session = base.newSession()
    for name, value in {**_SPEED, **_WRITING, **_READING, **configuration.spark}.items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    # until Delta is used, Spark does not know Delta's settings and calls them not modifiable; they can be set anyway
    for name, value in SEMANTIC_SETTINGS.items():
        session.conf.set(name, value)
    _set_time_zone(session, configuration.rules.time_zone)
    for name in _changed(session, configuration):
        if session.conf.isModifiable(name):
            session.conf.unset(name)
    check_meaning(session, configuration)
    return session


def check_meaning(spark: SparkSession, configuration: Configuration) -> None:
    """Raise SessionError if a setting of the session that decides what a rule means has a wrong value."""
    for name, (value, wanted) in _changed(spark, configuration).items():
        raise SessionError(
            f"The setting {name} of deltatag's Spark session is {value!r}. What a rule means depends on it, so it must "
            f"be {wanted!r}. Take out what sets it: a SET statement, spark.conf.set on this session, or the settings "
            "that Spark was started with."
        )


def _changed(spark: SparkSession, configuration: Configuration) -> dict[str, tuple[str | None, str]]:
    """The settings that decide what a rule means and have a wrong value: name -> (value, right value)."""
    needed = {**SEMANTIC_SETTINGS, TIME_ZONE: configuration.rules.time_zone}
    session: Any = spark._jsparkSession
    entries = java_names.java(spark._jvm, "org.apache.spark.sql.internal.SQLConf$.MODULE$")
    # one text with all settings, since each call is a round trip to the JVM
    for name in re.findall(r"^(spark\.\S+) -> ", session.conf().getAll().mkString("\n"), re.MULTILINE):
        entry = entries.getConfigEntry(name) if canonical_name(name) == name and name not in needed else None
        if entry is not None:
            needed[name] = str(entry.defaultValueString())
    found = {name: spark.conf.get(name, None) for name in needed}
    return {name: (value, needed[name]) for name, value in found.items() if value != needed[name]}


@contextlib.contextmanager
def in_time_zone(spark: SparkSession, name: str) -> Iterator[None]:
    """Set the session's time zone during the block, for rules that were compiled with another one than configured."""
    before = spark.conf.get(TIME_ZONE)
    _set_time_zone(spark, name)
    try:
        yield
    finally:
        with contextlib.suppress(Py4JError, OSError):  # the JVM may have ended meanwhile
            spark.conf.set(TIME_ZONE, str(before))


def _set_time_zone(spark: SparkSession, name: str) -> None:
    """Set the session's time zone; SessionError if Spark's Java does not know it."""
    from pyspark.errors import IllegalArgumentException

    try:
        spark.conf.set(TIME_ZONE, name)
    except IllegalArgumentException as error:
        jvm: Any = spark._jvm
        java = jvm.java.lang.System.getProperty("java.version")
        raise SessionError(
            f"The Java on which Spark runs, {java}, does not know the time zone {name!r}. In deltatag.toml give "
            "another time_zone in [rules], an older name of the same clock or a fixed offset's (as Etc/GMT+3), or use "
            "a Java with newer time zones."
        ) from error


def _running_session() -> SparkSession | None:
    """The session that this process already has, started in any thread; None if there is none."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None and SparkContext._active_spark_context is not None:
        active = SparkSession.builder.getOrCreate()
    return active


def _start(configuration: Configuration, quiet: bool) -> SparkSession:
    """Start Spark on this machine, or on the master that `[spark]` names; SparkNotStartedError if that fails."""
    from pipelines.spark.class_archive import archive_folder, java_options
    from pipelines.spark.runtime import find_jars, find_java, numba_cache_folder

    java = find_java()
    os.environ["JAVA_HOME"] = str(java.path)
    os.environ["NUMBA_CACHE_DIR"] = str(numba_cache_folder())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    clean_up()
    folder, lock = process_folder("jvm")
    log = folder / "spark.log" if quiet else None
    with _log_file(log):
        from pyspark import SparkConf
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        jars = tuple(str(jar) for jar in find_jars())
        settings = start_settings(configuration, jars, java_options(java, archive_folder()), folder)
        conf = SparkConf(loadDefaults=False).setAppName("deltatag").setAll(list(settings.items()))
        try:
            jvm.launch(conf, (lock,))
            builder = SparkSession.builder.appName("deltatag")
            for name, value in settings.items():
                builder = builder.config(name, value)
            session = builder.getOrCreate()
            jvm.keep_its_end_quiet()
            return session
        except (PySparkException, Py4JError, OSError, RuntimeError) as error:
            master = settings["spark.master"]
            at = "" if master.startswith("local") else f" on the master {master}"
            where = f" Spark's own log: {log}" if log else ""
            raise SparkNotStartedError(f"Spark could not be started{at}: {first_line(error)}{where}") from error
        finally:
            os.close(lock)


_tested: set[str] = set()


def know_internals(spark: SparkSession) -> None:
    """Raise SessionError if Spark's internals are not as expected; tested once per application."""
    from pipelines.spark.catalyst import self_test

    application = str(spark.sparkContext.applicationId)
    if application not in _tested:
        self_test(spark)
        _tested.add(application)


def tested_column(spark: SparkSession, text: str, data_type: pa.DataType) -> Column:
    """`catalyst.derived_column`, after testing Spark's internals."""
    from pipelines.spark.catalyst import derived_column

    know_internals(spark)
    return derived_column(spark, text, data_type)


def start_settings(
    configuration: Configuration, jars: tuple[str, ...], java_options: str = "", folder: Path | None = None
) -> dict[str, str]:
    """Settings of a session to start: deltatag's defaults, overridden by `[spark]`, and Delta's jars.

    java_options: put before those of `[spark]` for the driver; folder: for the files of a JVM on this machine only.
    """
    configured = dict(configuration.spark)
    master = configured.get("spark.master", "local[*]")
    settings = {"spark.master": master}
    if master.startswith("local"):
        settings |= _LOCAL
        settings["spark.driver.memory"] = f"{driver_memory()}m"
        settings["spark.sql.warehouse.dir"] = str(scratch_folder() / "warehouse")
        if folder is not None:
            settings["spark.local.dir"] = str(folder)
            java_options = f"{java_options} -Djava.io.tmpdir={shlex.quote(str(folder))}".strip()
    settings |= configured
    for name, value in _DELTA.items():
        settings[name] = (
            value if name not in configured or name.endswith("spark_catalog") else f"{value},{configured[name]}"
        )
    if java_options:
        settings[_JAVA_OPTIONS] = f"{java_options} {configured.get(_JAVA_OPTIONS, '')}".strip()
    settings["spark.jars"] = ",".join([*jars, *filter(None, [configured.get("spark.jars")])])
    return settings


def driver_memory() -> int:
    """Memory of the JVM in MiB: a quarter of the machine's, from 1 to 8 GiB; Python and the page cache get the rest."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    except (ValueError, OSError):
        return 2048
    return max(1024, min(total // 4, 8192))


@contextlib.contextmanager
def _log_file(path: Path | None) -> Iterator[None]:
    """Redirect the standard error of started processes to a file, to keep the JVM's log off the terminal."""
    if path is None:
        yield
        return
    sys.stderr.flush()
    kept, log = os.dup(2), os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    try:
        os.dup2(log, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(log)
