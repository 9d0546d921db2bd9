"""How a step fails: with the sentence that says what is wrong and what to do, and without a stack trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
from dagster._core.errors import DagsterUserCodeProcessError
from dagster_shared.error import SerializableErrorInfo


class ToldError(dg.Failure, DagsterUserCodeProcessError):
    """A failure of which the page shows the sentence alone.

    Dagster writes the frames of each `Failure` down; of an error that tells itself what to write it takes that.
    """

    def __init__(self, sentence: str) -> None:
        Exception.__init__(self, sentence)
        self.description = sentence
        self.metadata = {}
        self.allow_retries = False
        self.user_code_process_error_infos = [SerializableErrorInfo(sentence, [], type(self).__name__)]


@contextmanager
def telling() -> Iterator[None]:
    """While inside, an error of deltatag's own fails the step with its sentence; others keep their stack trace."""
    from pipelines.errors import PipelineError

    try:
        yield
    except PipelineError as error:
        raise ToldError(str(error)) from None
