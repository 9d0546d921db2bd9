"""`deltatag`: parses the arguments, calls the verb, and turns its errors into one paragraph and an exit status."""

from __future__ import annotations

import codecs
import io
import os
import sys

# Python itself has imported these already; other modules are imported once `main` can report a Ctrl-C in a sentence
TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
_CONTINUED = {"run", "compile", "tag", "join", "retag", "maintain"}
"""The verbs that leave work for the next run if they are stopped. The others write all or nothing."""
_OBJECTS_UNTIL_COLLECTION = 100_000
"""Threshold of the garbage collector. Most objects of a command are modules and their contents, which live until it
ends: with Python's own threshold of 700, searching them for garbage takes an eighth of a small run."""

_FREED_MEMORY_KEPT = "1000"
"""Milliseconds for which Arrow's allocator keeps freed memory, to use it again. By default it returns the memory to the
system after 10 ms. The system then has to clear the same pages for each batch, which takes up to a tenth of a large
tag."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns 0 (done, or nothing was due), 1 (failed), 2 (wrong usage or configuration) or 130
    (interrupted)."""
    verb, hook = None, sys.unraisablehook
    if arguments is None:
        _start_again_if_ascii()
    try:
        _make_streams_usable()
        sys.unraisablehook = _pass_interrupts_on
        parsed = _parsed(arguments)
        if isinstance(parsed, int):
            return parsed
        verb = parsed.verb
        from deltatag.logs import libraries_silent

        with libraries_silent(not parsed.verbose):
            return _run(parsed)
    except KeyboardInterrupt:
        goes_on = "; the next run continues where this one stopped" if verb in _CONTINUED else ""
        print(f"deltatag: stopped{goes_on}.", file=sys.stderr)
        return INTERRUPTED
    finally:
        sys.unraisablehook = hook


def _start_again_if_ascii() -> None:
    """Start this process again in Python's UTF-8 mode if Python encodes file names in ASCII.

    Arrow, delta-rs and the JVM encode them in UTF-8 whatever the environment says, so they would not find a file whose
    name is not ASCII.
    """
    if codecs.lookup(sys.getfilesystemencoding()).name == "ascii" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace | int:
    """The parsed arguments; or an exit status if they end the command, like --help or a wrong argument."""
    import atexit
    import gc

    from deltatag.arguments import parser

    gc.set_threshold(_OBJECTS_UNTIL_COLLECTION)
    # without this Python searches all objects for garbage before it exits, which takes a fifth of a small run
    atexit.register(gc.freeze)
    try:
        return parser().parse_args(arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else USAGE


def _pass_interrupts_on(unraisable: sys.UnraisableHookArgs) -> None:
    """Let a Ctrl-C that was raised within a callback, such as those of LLVM that load kernels, interrupt the command.

    Python itself only prints an exception in a callback, and goes on. So the signal is sent again after the callback.
    """
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    import signal
    import threading

    again = (threading.main_thread().ident, signal.SIGINT)
    threading.Timer(_UNTIL_CALLBACK_ENDS, signal.pthread_kill, again).start()


_UNTIL_CALLBACK_ENDS = 0.05
"""Seconds after which an interrupt that was raised within a callback is sent again."""


def _make_streams_usable() -> None:
    """Let standard output and standard error accept any text.

    A stream that was closed before the start drops the text; one with another encoding than UTF-8 gets escapes for the
    letters that it lacks.
    """
    codecs.register_error("json-escapes", _json_escapes)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - it stays open to the end
        elif isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(errors="json-escapes")


def _json_escapes(error: UnicodeError) -> tuple[str, int]:
    """An error handler for codecs: gives `\\uXXXX`, which stands for the letter in JSON, too."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    import json

    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def _run(parsed: argparse.Namespace) -> int:
    try:
        from deltatag import verbs
        from pipelines.spark.runtime import numba_cache_folder

        # before any import of Numba, so that this process and Spark's workers share its cache
        os.environ["NUMBA_CACHE_DIR"] = str(numba_cache_folder())
        # before any import of NumPy: nothing here uses its linear algebra, whose threads spin
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        # before any import of Arrow
        os.environ.setdefault("MIMALLOC_PURGE_DELAY", _FREED_MEMORY_KEPT)
        _keep_arrow_from_pandas()
        _keep_numba_from_others()
        return int(getattr(verbs, f"{parsed.verb}_verb")(parsed))
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _reader_is_gone():
            # the reader has closed the pipe; Python would raise again when it flushes
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return DONE
        return _explain(error, parsed.verbose)


def _keep_arrow_from_pandas() -> None:
    """Hide pandas from Arrow, which would import it for the first array that it makes of Python values.

    That import takes about a quarter of a second and 25 MB; a small run takes little more than a second without it.
    Nothing here gives Arrow an object of pandas. Great Expectations and PySpark can still import pandas.
    """
    if "pandas" in sys.modules:
        return
    finder = _Without({"pandas": ()})
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa

        pa.array(())  # Arrow looks for pandas, and remembers that there is none
    finally:
        sys.meta_path.remove(finder)


def _keep_numba_from_others() -> None:
    """Hide SciPy, cffi and PyYAML from the modules of Numba that import them.

    No kernel uses SciPy or cffi, and Numba has no configuration file here. The imports together take a quarter of a
    second.
    """
    importers = {
        "scipy": ("numba", "numba.np.arraymath"),
        "cffi": ("numba.core.typing.cffi_utils",),
        "yaml": ("numba.core.config",),
    }
    sys.meta_path.insert(0, _Without(importers))


class _Without:
    """An import finder that hides modules: name -> the modules that must not find it; none to hide it from all."""

    def __init__(self, modules: Mapping[str, Sequence[str]]) -> None:
        self._modules = modules

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise ModuleNotFoundError for a hidden module while a module that must not find it is being imported."""
        if name not in self._modules:
            return
        importers = self._modules[name]
        specs = [getattr(sys.modules.get(each), "__spec__", None) for each in importers]
        if not importers or any(getattr(spec, "_initializing", False) for spec in specs):
            raise ModuleNotFoundError(name)


def _reader_is_gone() -> bool:
    """Whether the reader of our output has closed the pipe.

    A BrokenPipeError alone does not show that: a connection to a JVM or a server may also break.
    """
    import select

    output = select.poll()
    for stream in (sys.stdout, sys.stderr):
        output.register(stream.fileno(), 0)
    return any(found & select.POLLERR for _, found in output.poll(0))


def _explain(error: Exception, verbose: bool) -> int:
    """Print an error on standard error, with the stack trace if `verbose`; returns the exit status."""
    from deltatag.output import paragraph, say
    from pipelines.errors import ConfigurationError, PipelineError, StatementError
    from rules_index.errors import RulesIndexError

    if verbose:
        import traceback

        traceback.print_exc()
    expected = (PipelineError, RulesIndexError)
    text = str(error) if isinstance(error, StatementError) else paragraph(str(error))
    if isinstance(error, OSError) and not isinstance(error, expected):
        text = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
    elif not isinstance(error, expected):
        text = f"{type(error).__name__}: {text or 'no message'}"
        text += "" if verbose else " This is not supposed to happen: add --verbose to see where."
    say(f"deltatag: {text}", file=sys.stderr)
    return USAGE if isinstance(error, ConfigurationError) else FAILED


if __name__ == "__main__":
    sys.exit(main())
