"""Shows on standard error what is being done, and for how long. Only the standard library is used."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rules_index.printable import escaped

SECONDS_BETWEEN_LINES = 30.0
"""Seconds between lines if standard error is not a terminal."""
_TICK_SECONDS = 1.0
_shown: Progress | None = None
"""The progress that was shown last; `clear_line` removes its line."""


class Progress:
    """On a terminal, one line that is updated every second; elsewhere, a line now and then during long steps."""

    def __init__(self, stream: TextIO | None = None, between: float = SECONDS_BETWEEN_LINES) -> None:
        """stream: replaces standard error; between: seconds between lines if it is not a terminal."""
        self._stream = sys.stderr if stream is None else stream
        self._between = between
        self._in_place = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._lock = threading.Lock()
        self._message: str | None = None
        self._began = self._told = time.monotonic()
        self._clock: threading.Thread | None = None

    def __call__(self, message: str) -> None:
        """Show what is being done from now on, with the time since then."""
        global _shown
        _shown = self
        with self._lock:
            now = time.monotonic()
            if self._message is None:
                self._told = now
            self._message, self._began = escaped(message), now
            self._show(now)
            if self._clock is None:
                self._clock = threading.Thread(target=self._tick, name="progress", daemon=True)
                self._clock.start()

    def clear(self) -> None:
        """Remove the line: nothing is being done."""
        with self._lock:
            if self._in_place and self._message is not None:
                self._write("\r\033[K")
            self._message = None

    @contextmanager
    def during(self, message: str) -> Iterator[None]:
        """Show a message during the block."""
        self(message)
        try:
            yield
        finally:
            self.clear()

    def _tick(self) -> None:
        while True:
            time.sleep(min(_TICK_SECONDS, self._between))
            with self._lock:
                if self._message is not None:
                    self._show(time.monotonic())

    def _show(self, now: float) -> None:
        clock = _clock(now - self._began)
        if self._in_place:
            width = shutil.get_terminal_size().columns - 1
            room = max(0, width - len(clock) - 1)
            text = f"{(self._message or '')[:room]} {clock}" if clock else (self._message or "")[:width]
            self._write(f"\r\033[K{text}")
        elif now - self._told >= self._between:
            self._told = now
            self._write(f"deltatag: {self._message}{f' ({clock})' if clock else ''}\n")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._message = None  # the stream is closed


def clear_line() -> None:
    """Remove the line that is shown, if any, before other output is printed."""
    if _shown is not None:
        _shown.clear()


def _clock(seconds: float) -> str:
    """Seconds as text for people; "" below one second."""
    whole = int(seconds)
    if whole < 1:
        return ""
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"
