"""Finds the fault in a CSV text and its line, which the CSV reader's own errors do not name."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator

_SEPARATORS = {";": ";", "\t": "tabs", "|": "|"}


def separated_otherwise(text: str) -> str | None:
    """The separator, in words, of a text with another one than commas in its header; None if there is none."""
    names = next((line for line in text.splitlines() if line.strip()), "")
    return next((name for mark, name in _SEPARATORS.items() if mark in names and "," not in names), None)


def repeated_name(text: str) -> str | None:
    """The first column that the header has twice; None if there is none."""
    try:
        _, names = next(_records(text))
    except (StopIteration, _WrongQuotesError):
        return None
    return next((name for place, name in enumerate(names) if name in names[:place]), None)


def fault_of(text: str) -> str | None:
    """The line of the first record with too many values or wrong quotes, and what is wrong; None if there is none."""
    records = _records(text)
    try:
        _, names = next(records)
        for line, values in records:
            if len(values) > len(names):
                rule = f" (rule {values[0]})" if names[0].strip().lower() == "rule_id" else ""
                return (
                    f"line {line}{rule}: it has {len(values)} values for {len(names)} columns. Put an expression "
                    'with commas in double quotes: "x IN (1, 2)"'
                )
    except StopIteration:
        return None
    except _WrongQuotesError as error:
        return (
            f"line {error.line}: {error}. Put a text with commas or quotes in double quotes, and "
            'write a quote in it as ""'
        )
    return None


def is_blank(values: Iterable[str | None]) -> bool:
    """Whether a record has no value, as empty lines and rows of empty cells have."""
    return not any(value and value.strip() for value in values)


def line_of(text: str, number: int) -> int | None:
    """The line on which a record begins; None if the text cannot be parsed so far. number: from 1, after the header,
    blank records left out."""
    try:
        for place, (line, _) in enumerate(each for each in _records(text) if not is_blank(each[1])):
            if place == number:
                return line
    except _WrongQuotesError:
        return None
    return None


class _WrongQuotesError(Exception):
    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def _records(text: str) -> Iterator[tuple[int, list[str]]]:
    """The records, the header first, each with the line on which it begins."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    begun, begins = False, 1
    try:
        for values in reader:
            begun = begun or bool(values)
            if begun:
                yield begins, values
            begins = reader.line_num + 1
    except csv.Error as error:
        raise _WrongQuotesError(str(error), begins) from None
