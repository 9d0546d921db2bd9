"""The errors of the Spark jobs: each says what is wrong, where, and what to do, in one paragraph for people."""

from __future__ import annotations


class PipelineError(Exception):
    """Base of every error that a job raises on purpose."""


class ConfigurationError(PipelineError):
    """deltatag.toml, or what the command line says beside it, cannot be used; nothing was done."""


class SessionError(PipelineError):
    """No Spark session could be started, or the one that runs cannot read Delta tables."""


class MissingTableError(PipelineError):
    """A Delta table that should be there is not."""


class TableError(PipelineError):
    """A Delta table of deltatag's cannot be read or written, or lacks columns that it must have."""


class NoIndexError(PipelineError):
    """There is no index yet to tag with."""


class IndexDamagedError(PipelineError):
    """The stored bytes of an index are not those that were written."""


class IndexOutdatedError(PipelineError):
    """The newest index was compiled for other column types than the source has now."""


class SourceError(PipelineError):
    """A source cannot be read as a stream: it is missing, unreadable, or no Delta table."""


class SourceChangedError(SourceError):
    """The source changed in a way that a stream of appended rows cannot follow."""


class NotImpliedError(SourceError):
    """A stream reads what another one has tagged, and has rules that can match rows which are not there."""


class NeedsSparkError(PipelineError):
    """Something that only Spark reads, evaluates or writes for certain as Spark does. Its text goes on behind
    "because"."""


class SparkEndedError(PipelineError):
    """A step has ended Spark's JVM, or was ended since it took too long. `usable`: there is a session to go on with."""

    def __init__(self, message: str, usable: bool = False) -> None:
        super().__init__(message)
        self.usable = usable


class RestartedError(PipelineError):
    """Another run has emptied the tables, or planned a micro-batch anew, meanwhile."""


class JoinChangedError(PipelineError):
    """A join is defined otherwise than when its earlier rows were joined."""


class CheckError(PipelineError):
    """A row check of a stream is no valid condition over the source's columns."""


class QuarantineShareError(PipelineError):
    """More of a micro-batch's rows would go to quarantine than `max_quarantine_share` allows."""


class StatementError(PipelineError):
    """Spark refused a statement given to `deltatag sql`, or failed while running it."""
