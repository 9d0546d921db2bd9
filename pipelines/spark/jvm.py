"""The JVM behind a session: whether it lives, how one of deltatag's own is ended, and how another one can follow it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError

if TYPE_CHECKING:
    from pyspark import SparkConf

_WAIT_SECONDS = 10.0
"""How long a JVM that breaks off its connections may take to end."""
ENDING = ("SparkContext was shut down", "stopped SparkContext")
"""What jobs tell of that a JVM breaks off when it ends."""
_own: list[Any] = []
"""The gateway of the JVM that deltatag has started in this process, where it has one."""


def launch(conf: SparkConf, kept_open: tuple[int, ...]) -> None:
    """Start a JVM for the settings, which keeps files open that are open here; it ends with this process.

    A Ctrl-C meanwhile is told when the JVM is up: it would leave an orphan behind, which nobody's end is told any more.
    """
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    with _interrupts_deferred():
        options: dict[str, Any] = {} if os.name == "nt" else {"pass_fds": kept_open}
        gateway = launch_gateway(conf, options)  # type: ignore[no-untyped-call]
        _own[:] = [gateway]
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def keep_its_end_quiet() -> None:
    """Have pyspark print no stack trace where the JVM breaks off, by ending, the connection that sends accumulators."""
    from pyspark import SparkContext

    server: Any = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)
    if server is None:
        return
    told = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exc_info()[1], EOFError | OSError):
            told(request, address)

    server.handle_error = handle_error


def is_own() -> bool:
    """Whether deltatag has started the JVM that this process talks to."""
    return bool(_own) and _gateway() is _own[0]


def is_dead(error: BaseException | None = None) -> bool:
    """Whether the JVM that this process talks to has ended; `error` is why one asks.

    A JVM that has just broken off a connection is given a moment to end.
    """
    gateway = _gateway()
    if gateway is None:
        return False
    process = getattr(gateway, "proc", None)
    if process is None:
        return _is_network(error) and not _answers(gateway)
    ending = error is not None and (any(text in str(error) for text in ENDING) or is_stopped())
    waited = time.monotonic() + (_WAIT_SECONDS if ending or _is_network(error) else 0.0)
    while process.poll() is None:
        if time.monotonic() >= waited or (not ending and _answers(gateway)):
            return False
        time.sleep(0.1)
    return True


def is_stopped() -> bool:
    """Whether the JVM has stopped Spark, as it does first when it ends: what jobs then tell is any error at all.

    Some never end, since a thread or a shutdown hook keeps them; no job runs in them any more.
    """
    from pyspark import SparkContext

    java: Any = getattr(SparkContext._active_spark_context, "_jsc", None)
    try:
        return java is not None and bool(java.sc().isStopped())
    except Exception:
        return False


def exit_status() -> int | None:
    """The exit status of the JVM; negative for a signal; None where it lives, or is not this process's child."""
    process = getattr(_gateway(), "proc", None)
    return None if process is None else process.poll()


def end() -> None:
    """End the JVM that deltatag has started, whatever it is doing."""
    if is_own():
        process = _own[0].proc
        process.kill()
        process.wait()


def forget() -> None:
    """Have pyspark know nothing of a JVM that has ended, so that the next session starts another one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    if context is not None:
        context._jsc = None  # there is nobody to be told to stop
        context.stop()
    if gateway is not None:
        with contextlib.suppress(Exception):
            gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    _own.clear()


def _gateway() -> Any:
    context = sys.modules.get("pyspark")
    return None if context is None else context.SparkContext._gateway


def _is_network(error: BaseException | None) -> bool:
    """Whether an error is one of talking to the JVM, not one that the JVM has told of."""
    while error is not None:
        if isinstance(error, OSError | EOFError | Py4JError) and not isinstance(error, Py4JJavaError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _answers(gateway: Any) -> bool:
    try:
        return bool(gateway.jvm.java.lang.System.nanoTime())
    except Exception:
        return False


@contextlib.contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """While inside, a Ctrl-C waits."""
    if threading.current_thread() is not threading.main_thread():
        yield  # a Ctrl-C is told to the main thread alone
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt
