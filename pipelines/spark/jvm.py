"""The JVM behind a session: starts it, checks that it is alive, ends it, and prepares for another one."""

from __future__ import annotations

import codecs
import contextlib
import locale
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
    from pyspark.sql import SparkSession

_WAIT_SECONDS = 10.0
"""Maximum seconds to wait for the end of a JVM after it has broken off its connections."""
ENDING = ("SparkContext was shut down", "stopped SparkContext")
"""Texts in the errors of jobs that are aborted because the JVM is ending."""
_own: list[Any] = []
"""The gateway of the JVM that deltatag has started in this process; empty if there is none."""


def launch(conf: SparkConf, kept_open: tuple[int, ...]) -> None:
    """Start a JVM with some settings; it ends with this process.

    kept_open: file descriptors that the JVM inherits. Ctrl-C is deferred until the JVM is up, since it would leave an
    orphan that does not notice the end of this process.
    """
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    name_a_utf8_locale()
    with _interrupts_deferred():
        gateway = launch_gateway(conf, {"pass_fds": kept_open})  # type: ignore[no-untyped-call]
        _own[:] = [gateway]
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def name_a_utf8_locale() -> None:
    """Set a UTF-8 locale in the environment of started processes, if theirs would be ASCII.

    Java takes the encoding of file names from the locale. With the locale C, it would neither start in a folder with a
    name that is not ASCII, nor read a table there.
    """
    if codecs.lookup(locale.getencoding()).name == "ascii":
        os.environ["LC_ALL"] = "C.UTF-8"


def keep_its_end_quiet() -> None:
    """Suppress the stack trace that PySpark prints when the JVM ends and closes the connection for accumulators."""
    from pyspark import SparkContext

    server: Any = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)
    if server is None:
        return
    print_trace = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exc_info()[1], EOFError | OSError):
            print_trace(request, address)

    server.handle_error = handle_error


def is_own() -> bool:
    """Whether deltatag has started the JVM to which this process is connected."""
    return bool(_own) and _gateway() is _own[0]


def is_dead(error: BaseException | None = None) -> bool:
    """Whether the JVM to which this process is connected has ended.

    error: the error that raises the question. If it looks like the end of the JVM, this waits up to `_WAIT_SECONDS` for
    the JVM's process to exit.
    """
    gateway = _gateway()
    if gateway is None:
        return False
    process = getattr(gateway, "proc", None)
    if process is None:
        return _is_network(error) and not _answers(gateway)
    ending = error is not None and (any(text in str(error) for text in ENDING) or is_stopped())
    deadline = time.monotonic() + (_WAIT_SECONDS if ending or _is_network(error) else 0.0)
    while process.poll() is None:
        if time.monotonic() >= deadline or (not ending and _answers(gateway)):
            return False
        time.sleep(0.1)
    return True


def is_alive(spark: SparkSession) -> bool:
    """Whether the JVM of a session still answers."""
    jvm: Any = spark._jvm
    try:
        return bool(jvm.java.lang.System.nanoTime())
    except (Py4JError, OSError):
        return False


def is_stopped() -> bool:
    """Whether the JVM has stopped Spark, as it does first when it ends. Jobs may then fail with any error.

    Some JVMs do not end after that, since a thread or a shutdown hook keeps them alive, but they run no more jobs.
    """
    from pyspark import SparkContext

    java: Any = getattr(SparkContext._active_spark_context, "_jsc", None)
    try:
        return java is not None and bool(java.sc().isStopped())
    except Exception:
        return False


def exit_status() -> int | None:
    """The exit status of the JVM, negative for a signal; None if it is alive, or not a child of this process."""
    process = getattr(_gateway(), "proc", None)
    return None if process is None else process.poll()


def end() -> None:
    """Kill the JVM that deltatag has started, and wait for its end; nothing is done to any other JVM."""
    if is_own():
        process = _own[0].proc
        process.kill()
        process.wait()


def forget() -> None:
    """Clear pyspark's state about a JVM that has ended, so that the next session starts another one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    if context is not None:
        context._jsc = None  # stop() must not call into the JVM, which has ended
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
    """Whether an error, or one of its causes, is about the connection to the JVM, and not reported by the JVM."""
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
    """Defer Ctrl-C to the end of the block."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives Ctrl-C
        return
    interrupts: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: interrupts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupts:
        raise KeyboardInterrupt
