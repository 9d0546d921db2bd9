"""A Spark session of deltatag's own: beside the one that already runs, or started with Java and Delta's jars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.config import Configuration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_session(
    configuration: Configuration,
    running: SparkSession | None = None,
    quiet: bool = False,
) -> SparkSession:
    """A new session (`newSession()`) with the settings that decide what a rule means.

    Where no session runs, one is started: local[*] unless `[spark]` says otherwise. `quiet` sends the JVM's
    own log to a file instead of standard error. SessionError, JavaNotFoundError or JarsNotFoundError say
    what is missing.
    """
    raise NotImplementedError
