"""What every verb works with: one configuration, its lake, and a Spark session that starts when first asked for."""

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
"""Takes one short sentence on what is being done now."""


def no_progress(message: str) -> None:
    """A Progress that tells nobody."""


class Workspace:
    """A configuration and its lake. `spark` is a session of deltatag's own, started on first use."""

    def __init__(
        self,
        configuration: Configuration,
        spark: SparkSession | None = None,
        quiet: bool = False,
        progress: Progress = no_progress,
    ) -> None:
        """`spark`: a running session to open deltatag's own beside; `quiet`: keep the JVM's log off the terminal."""
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
        """The session; SessionError says why there can be none."""
        if self._ended:
            raise SessionError(
                "The Spark session that deltatag was given has ended. Start the session, or the cluster, anew, and run "
                "the same command again."
            )
        if self._spark is None:
            from pipelines.spark.session import open_session

            self._spark = open_session(self.configuration, self._running, self._quiet)
        return self._spark

    @contextmanager
    def active_session(self) -> Iterator[SparkSession]:
        """While inside, the session is the active one of the thread, so that all texts are read with its settings.

        SessionError where a setting that decides what a rule means was changed since the session was opened.
        """
        from pipelines.spark.active_session import active
        from pipelines.spark.session import check_meaning

        spark = self.spark
        check_meaning(spark, self.configuration)
        with active(spark):
            yield spark

    @property
    def is_given(self) -> bool:
        """True where the session was given from outside."""
        return self._running is not None

    @property
    def owns_spark(self) -> bool:
        """True if deltatag has started the JVM of the session, and may start another one."""
        from pipelines.spark import jvm

        return self._running is None and jvm.is_own()

    def renew(self) -> bool:
        """Have `spark` be a session of another JVM, for the one there is has ended or is not to be trusted any more.

        False if it was given from outside and has ended, so that there can be none. One that was given and lives stays.
        """
        from pipelines.spark import jvm

        if self.owns_spark:
            jvm.end()
            jvm.forget()
            self._spark = None
            return True
        self._ended = jvm.is_dead() or jvm.is_stopped()
        return not self._ended
