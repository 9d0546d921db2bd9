"""The errors of the pipelines: each says what is wrong, where, and what to do, in one paragraph for people."""

from __future__ import annotations

import logging

from pipelines.error_texts import AGAIN, first_line, why_denied, why_full
from rules_index.errors import RulesIndexError


class PipelineError(Exception):
    """Base of every error that the pipelines raise on purpose."""


class ConfigurationError(PipelineError):
    """deltatag.toml, or an argument of the command line, cannot be used; nothing was done."""


class SessionError(PipelineError):
    """No Spark session could be started, or the active one cannot read Delta tables."""


class SparkNotStartedError(SessionError):
    """The JVM of a Spark session could not be started."""


class ScratchError(PipelineError):
    """The folder for scratch files cannot be written to."""


class MissingTableError(PipelineError):
    """A Delta table that is needed does not exist."""


class UnforeseenError(PipelineError):
    """Something that deltatag did not foresee has stopped one stream, join or scope; the others go on."""

    @classmethod
    def of(cls, error: Exception) -> UnforeseenError:
        """An error as one paragraph with its kind; also logs its stack trace, which --verbose shows."""
        logging.getLogger("deltatag").error("unforeseen", exc_info=error)
        text = next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
        if reason := why_full(error):
            named = error.filename if isinstance(error, OSError) and error.filename else "A file"
            return cls(f"{named} cannot be written: {reason}. {AGAIN}")
        if isinstance(error, OSError) and why_denied(error):
            return cls(f"{error.strerror}{f': {error.filename}' if error.filename else ''}")
        return cls(f"{type(error).__name__}: {text} (This is not supposed to happen; --verbose shows where it did.)")


class TableError(PipelineError):
    """A Delta table cannot be read or written, or lacks columns that it must have."""


class AccessError(TableError):
    """This user may not read a table."""


def not_written(what: str, error: Exception, then: str = AGAIN) -> TableError:
    """The error for a failed write. A full disk or a missing permission is stated in our own words, not the library's.

    what: the sentence's beginning, such as "The table runs cannot be written"; then: what to do if there is no space.
    """
    if reason := why_full(error):
        return TableError(f"{what}: {reason}. {then}")
    return TableError(f"{what}: {why_denied(error) or first_line(error)}")


class NoIndexError(PipelineError):
    """There is no index yet to tag with."""


class IndexDamagedError(PipelineError):
    """The stored bytes of an index differ from the bytes that were written."""

    @classmethod
    def of(cls, scope: str, reason: str) -> IndexDamagedError:
        """The error for the index of a scope, with what to do."""
        return cls(
            f"The stored index of {scope} is damaged: {reason.rstrip('.')}. Compile it again with: deltatag compile "
            f"{scope} --force"
        )


class IndexOutdatedError(PipelineError):
    """An index no longer fits: the source has other column types, or the index lacks annotations or is unreadable."""


class SourceError(PipelineError):
    """A source cannot be read as a stream: it is missing, unreadable, or no Delta table."""


class SourceChangedError(SourceError):
    """The source changed in a way that a stream of appended rows cannot follow."""


class NotImpliedError(SourceError):
    """A stream reads another stream's tagged rows, and its rules could match rows that the other stream left out."""


class NeedsSparkError(PipelineError):
    """Only Spark can read, evaluate or write something exactly.

    The message is a clause that can follow "because": the caller that goes on with Spark, or refuses to, completes it.
    """


class SparkRuledOutError(PipelineError):
    """Something needs Spark, and the configuration rules it out."""


class SparkEndedError(PipelineError):
    """A step ended Spark's JVM, or exceeded its time limit. `usable`: the session can still be used."""

    def __init__(self, message: str, usable: bool = False) -> None:
        super().__init__(message)
        self.usable = usable


class RestartedError(PipelineError):
    """A concurrent run has emptied the tables, or planned a micro-batch again."""


class JoinChangedError(PipelineError):
    """The definition of a join has changed since its earlier rows were joined."""


class CheckError(PipelineError):
    """A row check of a stream is not a valid condition over the source's columns."""


class QuarantineShareError(PipelineError):
    """More of a micro-batch's rows would go to quarantine than `max_quarantine_share` allows."""


class StatementError(PipelineError):
    """A statement given to `deltatag sql` cannot be executed, or failed while Spark executed it."""


def as_failure(error: Exception) -> Exception:
    """The error to report for a failed scope: `error` itself if it was raised on purpose, else an UnforeseenError."""
    return error if isinstance(error, (PipelineError, RulesIndexError)) else UnforeseenError.of(error)
