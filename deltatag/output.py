"""What commands print on standard output: tables, CSV and JSON."""

from __future__ import annotations

import base64
import csv
import datetime
import decimal
import json
import math
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any


def paragraph(text: str) -> str:
    """The text on one line."""
    return " ".join(text.split())


def counted(count: int, noun: str) -> str:
    """How many there are of what the noun means, with its plural where that is not one."""
    plural = noun + ("es" if noun.endswith("ch") else "s")
    return f"{count:,} {noun if count == 1 else plural}"


def print_json(value: Any) -> None:
    """Print a value as JSON: dates and timestamps in ISO form, decimals as numbers in full, binary as base64."""
    print(json.dumps(jsonable(value), indent=None, ensure_ascii=False))


def jsonable(value: Any) -> Any:
    """The value with only the types that JSON has; a float that JSON has not becomes its name."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() and value.as_tuple().exponent == 0 else float(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Iterable):
        return [jsonable(item) for item in value]
    return str(value)


def print_csv(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows as CSV with a header; NULL is empty, nested values are JSON."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow(["" if value is None else _plain(value) for value in row])


def print_table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows under their names, aligned, numbers to the right; on a terminal, long values are cut to fit."""
    texts = [["NULL" if value is None else _plain(value).replace("\n", "\\n") for value in row] for row in rows]
    limit = _longest_value(len(names))
    texts = [[text if len(text) <= limit else text[: limit - 1] + "…" for text in row] for row in texts]
    widths = [max([len(name), *(len(row[i]) for row in texts)]) for i, name in enumerate(names)]
    right = [all(_is_number(row[i]) for row in texts) and bool(texts) for i in range(len(names))]

    def line(cells: Sequence[str]) -> str:
        padded = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True))
        return "  ".join(padded).rstrip()

    print(line(names))
    print("  ".join("-" * width for width in widths))
    for row in texts:
        print(line(row))


def _longest_value(columns: int) -> int:
    if not sys.stdout.isatty():
        return sys.maxsize
    return max(20, (shutil.get_terminal_size().columns - 2 * columns) // max(min(columns, 4), 1))


def _is_number(text: str) -> bool:
    return text == "NULL" or text.replace("-", "", 1).replace(".", "", 1).replace(",", "").isdigit()


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict | list | tuple):
        return json.dumps(jsonable(value), ensure_ascii=False)
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    return str(value)
