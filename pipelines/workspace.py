"""The workspace of a verb: one configuration, its lake, and a Spark session that is started on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.errors import SessionError
from pipelines.lake.lake import Lake
from pipelines.settings.configuration import load_configuration
from pipelines.settings.model import Configuration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str], None]
"""Receives one short phrase on what is being done."""


def no_progress(message: str) -> None:
    """A `Progress` that ignores the message."""


class Workspace:
    """A configuration and its lake. `spark` is a session of deltatag's own, started on first use."""

    def __init__(
        self,
        configuration: Configuration,
        spark: SparkSession | None = None,
        quiet: bool = False,
        progress: Progress = no_progress,
    ) -> None:
        """spark: a running session, in whose JVM deltatag opens its own; quiet: keep the JVM's log off the terminal."""
        self.configuration = configuration
        self.progress = progress
        self._running = spark
        self._quiet = quiet
        self._spark: SparkSession | None = None
        self._ended = False
        self.lake = Lake(configuration.lake, lambda: self.spark)

    @classmethod
    def open(cls, path: str | Path | None = None, spark: SparkSession | None = None) -> Workspace:
        """The workspace of a deltatag.toml (by default the one in the working directory)."""
        return cls(load_configuration(path), spark)

    @property
    def spark(self) -> SparkSession:
        """The session, started on first use; SessionError if that is impossible."""
        if self._ended:
            raise SessionError(
                "The Spark session that deltatag was given has ended. Start the session or the cluster again, and run "
                "the same command again."
            )
        if self._spark is None:
            from pipelines.spark.session import open_session

            self._spark = open_session(self.configuration, self._running, self._quiet)
        return self._spark

    @contextmanager
    def active_session(self) -> Iterator[SparkSession]:
        """Make the session the thread's active one, so that its settings decide how expressions are read.

        SessionError if a setting that decides what a rule means was changed since the session was opened.
        """
        from pipelines.spark.active_session import active
        from pipelines.spark.session import check_meaning

        spark = self.spark
        check_meaning(spark, self.configuration)
        with active(spark):
            yield spark

    @property
    def is_given(self) -> bool:
        """True if the session was given from outside."""
        return self._running is not None

    @property
    def owns_spark(self) -> bool:
        """True if deltatag started the session's JVM itself, and so may start another one."""
        from pipelines.spark import jvm

        return self._running is None and jvm.is_own()

    def renew(self) -> bool:
        """Replace the session by one of a new JVM, because the old JVM has ended or cannot be trusted any more.

        A session that was given from outside is kept if it still runs. False if it has ended: then there is none.
        """
        from pipelines.spark import jvm

        if self.owns_spark:
            jvm.end()
            jvm.forget()
            self._spark = None
            return True
        self._ended = jvm.is_dead() or jvm.is_stopped()
        return not self._ended
