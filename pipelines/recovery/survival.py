"""What ends Spark's JVM in the middle of a step, how that is told, and how the work goes on in another JVM.

The one place where errors of talking to Spark become a sentence for people. A step that ends its JVM ends neither the
process nor the steps after it: where deltatag has started the JVM, it starts another one.
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
"""What names, in an error that Spark has told, the end of whatever evaluated a row."""
_EXIT = {50: "an error that nothing may catch", 51: "an error while it told of another", 52: "it ran out of memory"}
"""How Spark's own exit statuses are told."""


@contextmanager
def step(workspace: Workspace, what: str) -> Iterator[None]:
    """A step that asks Spark. TableError where Spark tells of a failure, SparkEndedError where the step ends the JVM.

    After that `workspace.spark` is a session of another JVM, where deltatag has started the one that ended.
    """
    try:
        with explained(what):
            yield
    except SparkEndedError:
        raise
    except Exception as error:
        told = error.__context__
        while told is not None and not isinstance(told, SparkEndedError):
            told = told.__context__
        if told is not None:
            raise told from error  # what was to be put in order behind it found no JVM
        reason = _why_ended(error)
        if reason is None:
            raise
        raise spark_ended(workspace, what, reason) from error


def spark_ended(workspace: Workspace, what: str, reason: str) -> SparkEndedError:
    """The error of a step that has ended Spark, or was ended; the workspace is made ready for another JVM."""
    usable = workspace.renew()
    way_out = (
        ""
        if usable
        else (
            " deltatag was given the session from outside, and cannot start another one: start the session, or the "
            "cluster, anew, and run the same command again. It goes on where it stopped."
        )
    )
    return SparkEndedError(f"Could not {what}: {reason}.{way_out}", usable)


def _why_ended(error: BaseException) -> str | None:
    """How Spark has ended, for the middle of a sentence; None where it has not."""
    if jvm.is_dead(error):
        status = jvm.exit_status()
        told = _EXIT.get(status, f"exit status {status}") if status is not None and status >= 0 else None
        if status is not None and status < 0:
            told = f"it was killed by signal {-status}"
        return f"Spark's JVM ended meanwhile ({told})" if told else "Spark's JVM ended meanwhile"
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
    """What bounds the time that Spark takes for so many predicates, which only it evaluates, on rows of files.

    The limit is `[rules] time_limit`, a second more for each MiB, and 10 microseconds for each row and predicate.
    """
    if not predicates:
        return nullcontext()
    seconds = workspace.configuration.rules.time_limit / 1e6
    seconds += sum(int(add["size"]) for _, add in files) / 2**20
    return time_limit(workspace, what, seconds + (rows_of(tuple(files)) or 0) * predicates / 1e5)


@contextmanager
def time_limit(workspace: Workspace, what: str, seconds: float) -> Iterator[None]:
    """While inside, work of Spark's that takes longer is ended: SparkEndedError.

    A task that runs on and on cannot be interrupted where it runs inside of the JVM: deltatag's own JVM is ended then;
    of a session that was given from outside only the jobs are cancelled.
    """
    expired = threading.Event()
    own, context = workspace.owns_spark, workspace.spark.sparkContext
    tag = f"deltatag-{uuid.uuid4().hex}"

    def expire() -> None:
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
    """What `action` gives. Where it ends Spark it is called again, as long as `runs` shows that it has come further.

    It is told whether it has just ended Spark. What it did before must stand in `runs`, so that it goes on behind it.
    """
    before = _standing(workspace, scopes)
    ended = False
    while True:
        try:
            return action(ended)
        except SparkEndedError as error:
            now = _standing(workspace, scopes)
            if not error.usable or now == before:
                raise
            workspace.progress(f"{', '.join(scopes)}: {error} Trying again")
            before, ended = now, True


def _standing(workspace: Workspace, scopes: Sequence[str]) -> list[Any]:
    """Where `runs` has each scope."""
    last = [last_batch(workspace.lake, scope) for scope in scopes]
    return [None if each is None else (each.batch, each.state, each.started_at, dict(each.plan)) for each in last]
