"""Failures of steps that show a sentence on what is wrong and what to do, without a stack trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
from dagster._core.errors import DagsterUserCodeProcessError
from dagster_shared.error import SerializableErrorInfo


class ReportedError(dg.Failure, DagsterUserCodeProcessError):
    """A failure for which Dagster's page shows only a sentence.

    Of a plain `Failure`, Dagster records the stack trace. A DagsterUserCodeProcessError provides its own error infos
    instead.
    """

    def __init__(self, sentence: str) -> None:
        Exception.__init__(self, sentence)
        self.description = sentence
        self.metadata = {}
        self.allow_retries = False
        self.user_code_process_error_infos = [SerializableErrorInfo(sentence, [], type(self).__name__)]


@contextmanager
def reporting_failures() -> Iterator[None]:
    """Turn an error that deltatag raised on purpose into a failure with its message; others keep their stack trace."""
    from pipelines.errors import PipelineError

    try:
        yield
    except PipelineError as error:
        raise ReportedError(str(error)) from None
