"""Splits a text into SQL statements at its semicolons."""

from __future__ import annotations

import re

_PIECE = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)
    |[rR]'[^']*'|[rR]"[^"]*"  # raw strings know no escapes
    |'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`
    |(?P<end>;)|\w+|.""",
    re.DOTALL | re.VERBOSE,
)
_SCRIPT = re.compile(r"(?:--[^\n]*\n|/\*.*?\*/|\s)*BEGIN\b", re.DOTALL | re.IGNORECASE)


def statements_of(text: str) -> list[str]:
    """The statements of a text, without the semicolons between them; comments alone are no statement.

    Semicolons within strings, quoted names and comments do not separate. A text that starts with BEGIN is one
    statement: a script of Spark SQL with its own semicolons.
    """
    if _SCRIPT.match(text):
        return [text.strip().rstrip(";")]
    found, start, says_something = [], 0, False
    for piece in _PIECE.finditer(text):
        if piece["end"]:
            if says_something:
                found.append(text[start : piece.start()].strip())
            start, says_something = piece.end(), False
        elif not piece["comment"] and not piece[0].isspace():
            says_something = True
    return [*found, text[start:].strip()] if says_something else found
