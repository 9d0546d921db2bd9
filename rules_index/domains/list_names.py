"""How a rule's text names a value list: `account IN LIST('sanctioned')`."""

from __future__ import annotations

import re

_SPACE = r"[ \t\r\n]*"
NAMED = re.compile(rf"""\bLIST{_SPACE}\({_SPACE}(?:'([\w.-]+)'|"([\w.-]+)"){_SPACE}\)""", re.IGNORECASE | re.ASCII)
"""Matches a value list as a rule's text names it; one of the two groups is its name."""
NAMES_ANY = rf"(?i)LIST{_SPACE}\("
"""A pattern for texts that may name a list. It finds all of them and few others, and means the same to Python, Arrow
and Polars."""


def names_in(text: str) -> list[str]:
    """The names of the lists that a rule's text names, ascending. May include names that are only in a string
    literal."""
    return sorted({single or double for single, double in NAMED.findall(text)})
