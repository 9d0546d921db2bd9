"""The demonstration's output: headings, paragraphs, indented SQL, and tables that fit a terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from deltatag.output import print_table, shown, write
from deltatag.progress import Progress

WIDTH = 100
"""Width of the text in characters; on a terminal, the maximum width."""


class Narrator:
    """Prints the story and counts its chapters; `progress` shows what is being done."""

    def __init__(self) -> None:
        """Starts the clock."""
        self.progress = Progress()
        self._chapters = 0
        self._started = time.perf_counter()
        self._bold = sys.stdout.isatty()

    def title(self, text: str) -> None:
        """Print the first line."""
        write(self._strong(text))

    def chapter(self, text: str) -> None:
        """Print a numbered heading."""
        self._chapters += 1
        heading = f"{self._chapters}. {text}"
        write(f"\n{self._strong(heading)}\n{'-' * len(heading)}", flush=True)

    def say(self, text: str, indent: str = "") -> None:
        """Print a paragraph."""
        write(textwrap.fill(text, _width(), initial_indent=indent, subsequent_indent=indent), flush=True)

    def sql(self, title: str, text: str) -> None:
        """Print a statement under its title."""
        write(f"\n-- {title}\n{textwrap.indent(text, '   ')};", flush=True)

    def verbatim(self, lines: Iterable[str]) -> None:
        """Print lines unchanged, but indented."""
        for line in lines:
            write(f"  {line}".rstrip(), flush=True)

    def line_break(self) -> None:
        """Print an empty line."""
        write("")

    def table(self, names: Sequence[str], rows: Sequence[Sequence[Any]], cut: bool = True) -> None:
        """Print a table; cut: cut texts of the widest column that do not fit the width."""
        write("")
        print_table(names, _fitted(names, rows) if cut else rows)
        sys.stdout.flush()

    @contextmanager
    def timed(self, message: str) -> Iterator[None]:
        """Show what is being done during the block."""
        with self.progress.during(message):
            yield

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self._started

    def _strong(self, text: str) -> str:
        return f"\033[1m{text}\033[0m" if self._bold else text


def _width() -> int:
    return min(shutil.get_terminal_size((WIDTH, 24)).columns, WIDTH) if sys.stdout.isatty() else WIDTH


def _fitted(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The rows with the widest column cut so that a row fits the width, if that is enough."""
    fitted = [[" ".join(cell.split()) if isinstance(cell, str) else cell for cell in row] for row in rows]
    if not fitted:
        return fitted
    widths = [max(len(name), *(len(shown(row[i])) for row in fitted)) for i, name in enumerate(names)]
    widest = max(range(len(widths)), key=widths.__getitem__)
    room = max(_width() - (sum(widths) - widths[widest]) - 2 * (len(widths) - 1), len(names[widest]), 12)
    for row in fitted:
        text = shown(row[widest])
        if len(text) > room:
            row[widest] = text[: room - 1] + "…"
    return fitted
