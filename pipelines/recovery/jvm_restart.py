"""Survives the end of Spark's JVM in the middle of a step: reports it, and goes on in another JVM.

This is the only place where errors of communication with Spark become a sentence for people. A step that ends the JVM
ends neither the process nor later steps: if deltatag has started the JVM, it starts another one.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, TypeVar

from pipelines.errors import SparkEndedError
from pipelines.lake.runs import last_batch
from pipelines.sources.positions import Add
from pipelines.sources.slices import rows_of
from pipelines.spark import jvm
from pipelines.spark.failures import explained
from pipelines.workspace import Workspace

_T = TypeVar("_T")
_FATAL = ("java.lang.OutOfMemoryError", "java.lang.StackOverflowError", "ExecutorLostFailure", *jvm.ENDING)
"""Names in errors of Spark which show that the JVM or executor that evaluated a row has ended."""
_EXIT = {50: "a fatal error", 51: "an error while it reported another one", 52: "it ran out of memory"}
"""What Spark's own exit statuses mean."""


@contextmanager
def step(workspace: Workspace, what: str) -> Iterator[None]:
    """Run a step that uses Spark: TableError if Spark reports a failure, SparkEndedError if the JVM ends.

    `what` completes "Could not ..." in the message. After the JVM has ended, `workspace.spark` is a session of another
    JVM, if deltatag started the one that ended.
    """
    try:
        with explained(what):
            yield
    except SparkEndedError:
        raise
    except Exception as error:
        cause = error.__context__
        while cause is not None and not isinstance(cause, SparkEndedError):
            cause = cause.__context__
        if cause is not None:
            raise cause from error  # `error` only says that a clean-up found no JVM
        reason = _why_ended(error)
        if reason is None:
            raise
        raise spark_ended(workspace, what, reason) from error


def spark_ended(workspace: Workspace, what: str, reason: str) -> SparkEndedError:
    """The error of a step that has ended Spark, or was ended; prepares the workspace for another JVM."""
    usable = workspace.renew()
    advice = (
        ""
        if usable
        else (
            " deltatag was given the session from outside, and cannot start another one: start the session or the "
            "cluster again, and run the same command again. It continues where it stopped."
        )
    )
    return SparkEndedError(f"Could not {what}: {reason}.{advice}", usable)


def _why_ended(error: BaseException) -> str | None:
    """How Spark has ended, as a clause; None if it has not."""
    if jvm.is_dead(error):
        status = jvm.exit_status()
        how = _EXIT.get(status, f"exit status {status}") if status is not None and status >= 0 else None
        if status is not None and status < 0:
            how = f"it was killed by signal {-status}"
        return f"Spark's JVM ended meanwhile ({how})" if how else "Spark's JVM ended meanwhile"
    if jvm.is_stopped():
        return "Spark was stopped meanwhile, though its JVM has not ended"
    seen: BaseException | None = error
    while seen is not None:
        text = str(seen)
        if found := next((name for name in _FATAL if name in text), None):
            return f"Spark could not go on after {found}"
        seen = seen.__cause__
    return None


def batch_time_limit(
    workspace: Workspace, what: str, files: Sequence[Add], predicates: int
) -> AbstractContextManager[None]:
    """A time limit for Spark to evaluate `predicates` derived predicates on the rows of files.

    It is `[rules] time_limit`, plus 1 second per MiB, plus 10 microseconds per row and predicate.
    """
    if not predicates:
        return nullcontext()
    seconds = workspace.configuration.rules.time_limit / 1e6
    seconds += sum(int(add["size"]) for _, add in files) / 2**20
    return time_limit(workspace, what, seconds + (rows_of(tuple(files)) or 0) * predicates / 1e5)


@contextmanager
def time_limit(workspace: Workspace, what: str, seconds: float) -> Iterator[None]:
    """End Spark's work, with SparkEndedError, if it takes longer than `seconds`.

    A task inside the JVM cannot be interrupted, so deltatag's own JVM is ended. In a session that was given from
    outside only the jobs are cancelled.
    """
    expired = threading.Event()
    own, context = workspace.owns_spark, workspace.spark.sparkContext
    tag = f"deltatag-{uuid.uuid4().hex}"

    def expire() -> None:
        """End the JVM, or cancel the jobs."""
        expired.set()
        with suppress(Exception):
            if own:
                jvm.end()
            else:
                context.cancelJobsWithTag(tag)

    context.addJobTag(tag)
    timer = threading.Timer(seconds, expire)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if not expired.is_set():
            raise
        reason = f"it took longer than {seconds:,.0f} seconds ([rules] time_limit), and was ended"
        raise spark_ended(workspace, what, reason) from error
    finally:
        timer.cancel()
        if not expired.is_set():
            with suppress(Exception):
                context.removeJobTag(tag)


def surviving(workspace: Workspace, scopes: Sequence[str], action: Callable[[bool], _T]) -> _T:
    """The result of `action`, which is called again after it has ended Spark, as long as `runs` shows progress.

    Its argument says whether it has just ended Spark. Its progress must be recorded in `runs`, so that the next call
    goes on from there.
    """
    before = _recorded(workspace, scopes)
    ended = False
    while True:
        try:
            return action(ended)
        except SparkEndedError as error:
            now = _recorded(workspace, scopes)
            if not error.usable or now == before:
                raise
            workspace.progress(f"{', '.join(scopes)}: {error} Trying again")
            before, ended = now, True


def _recorded(workspace: Workspace, scopes: Sequence[str]) -> list[Any]:
    """The state of each scope in `runs`, for comparison."""
    last = [last_batch(workspace.lake, scope) for scope in scopes]
    return [None if each is None else (each.batch, each.state, each.started_at, dict(each.plan)) for each in last]
