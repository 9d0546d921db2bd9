"""Printing on standard output: tables, CSV and JSON."""

from __future__ import annotations

import base64
import csv
import datetime
import decimal
import json
import math
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, TextIO

from deltatag.progress import clear_line
from rules_index.printable import escaped

_NARROWEST = 12
"""Minimum width of a column, in characters, on a terminal that is too narrow for its table."""
_MOST_REJECTED = 100
"""Maximum number of rejected rules that have a line of their own."""


def write(text: str, file: TextIO | None = None, flush: bool = False) -> None:
    """Print lines unchanged, on standard output by default; the line that shows the progress is removed first."""
    clear_line()
    print(text, file=file, flush=flush)


def say(text: object = "", file: TextIO | None = None) -> None:
    """Print lines for people, on standard output by default, escaped; line breaks and tabs stay.

    Users' texts that must stay on one line have to go through `escaped` or `paragraph` first.
    """
    write(escaped(text, "\n\t"), file)


def paragraph(text: str) -> str:
    """The text on one line."""
    return " ".join(text.split())


def counted(count: int, noun: str) -> str:
    """A count with its noun, in the plural unless the count is 1."""
    plural = noun + ("es" if noun.endswith("ch") else "s")
    return f"{count:,} {noun if count == 1 else plural}"


def say_rejected(lines: Sequence[str]) -> None:
    """Print a line on standard error for each of the first `_MOST_REJECTED` rejected rules, and how many there are."""
    for line in lines[:_MOST_REJECTED]:
        say(f"deltatag: {line}", file=sys.stderr)
    if len(lines) > _MOST_REJECTED:
        say(
            f"deltatag: these are {_MOST_REJECTED:,} of {len(lines):,} rejected rules; --json has all.", file=sys.stderr
        )


def print_json(value: Any) -> None:
    """Print a value as JSON: dates and timestamps in ISO form, decimals as numbers in full, binary as base64."""
    write(json_text(value))


def json_text(value: Any) -> str:
    """A value as JSON on one line.

    Decimals are written in full: as strings with a random mark at first, whose quotes and mark are then removed.
    """
    mark = os.urandom(16).hex()
    text = json.dumps(jsonable(value), default=lambda number: f"{mark}{number:f}", ensure_ascii=False)
    return re.sub(f'"{mark}([^"]*)"', r"\1", text)


def jsonable(value: Any) -> Any:
    """The value with only JSON's types, and finite decimals; NaN and infinities become their names."""
    if isinstance(value, decimal.Decimal) and value.is_finite():
        return value
    if isinstance(value, decimal.Decimal):
        return jsonable(float(value))
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Iterable):
        return [jsonable(item) for item in value]
    return str(value)


def print_csv(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows as CSV with a header; NULL is empty, nested values are JSON."""
    clear_line()
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow(["" if value is None else plain_text(value) for value in row])


def print_table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print an aligned table, numbers to the right; on a terminal, long values are wrapped.

    Line breaks in a value begin a new line of its cell; those in the first column are escaped, so that nothing looks
    like a row that is none, unless the table is a single cell.
    """
    names = [escaped(name) for name in names]
    texts = [[shown(value) for value in row] for row in rows]
    alone = len(names) == 1 and len(texts) == 1
    cells = [[_lines(text, place > 0 or alone) for place, text in enumerate(row)] for row in texts]
    widths = [max([len(name), *(len(line) for row in cells for line in row[i])]) for i, name in enumerate(names)]
    if sys.stdout.isatty():
        widths = _fitting(widths, shutil.get_terminal_size().columns)
        cells = [[_folded(cell, width) for cell, width in zip(row, widths, strict=True)] for row in cells]
    right = [all(_is_number(row[i]) for row in texts) and bool(texts) for i in range(len(names))]
    header = [_folded([name], width) for name, width in zip(names, widths, strict=True)]

    for row in (header, [["-" * width] for width in widths], *cells):
        for parts in zip_longest(*row, fillvalue=""):
            padded = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(parts, widths, right, strict=True))
            write("  ".join(padded).rstrip())


def _lines(text: str, broken: bool) -> list[str]:
    """The escaped lines of a cell; a single line unless `broken`."""
    lines = text.replace("\r\n", "\n").rstrip("\n").split("\n") if broken else [text]
    return [escaped(line) for line in lines]


def _fitting(widths: Sequence[int], whole: int) -> list[int]:
    """The widths of columns on a terminal of width `whole`: narrow columns keep theirs, the others share the rest."""
    found = list(widths)
    left, open_columns = whole - 2 * (len(widths) - 1), sorted(range(len(widths)), key=widths.__getitem__)
    for place, column in enumerate(open_columns):
        share = max(left // (len(open_columns) - place), _NARROWEST)
        found[column] = min(widths[column], share)
        left -= found[column]
    return found


def _folded(lines: Sequence[str], width: int) -> list[str]:
    """The lines wrapped to a width, at blanks if possible."""
    return [part for line in lines for part in ([line] if len(line) <= width else textwrap.wrap(line, width) or [""])]


def _is_number(text: str) -> bool:
    return text == "NULL" or text.replace("-", "", 1).replace(".", "", 1).replace(",", "").isdigit()


def shown(value: Any) -> str:
    """A value as text in tables; NULL for None."""
    return "NULL" if value is None else plain_text(value)


def plain_text(value: Any) -> str:
    """A value other than None as text; nested values are JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict | list | tuple):
        return json_text(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    return str(value)
