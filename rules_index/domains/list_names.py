"""How a rule's text names a value list: `account IN LIST('sanctioned')`."""

from __future__ import annotations

import re

_SPACE = r"[ \t\r\n]*"
NAMED = re.compile(rf"""\bLIST{_SPACE}\({_SPACE}(?:'([\w.-]+)'|"([\w.-]+)"){_SPACE}\)""", re.IGNORECASE | re.ASCII)
"""A value list as a rule's text names it."""
NAMES_ANY = rf"(?i)LIST{_SPACE}\("
"""Finds each text that names a list, and few others; Python, Arrow and Polars all read this pattern alike."""


def names_in(text: str) -> list[str]:
    """The lists that a rule's text names; also those that only a string literal in it seems to name."""
    return sorted({single or double for single, double in NAMED.findall(text)})
