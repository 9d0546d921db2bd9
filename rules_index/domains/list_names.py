"""How a rule's text names a list of values: `account IN LIST('sanctioned')`."""

from __future__ import annotations

import re

_SPACE = r"[ \t\r\n]*"
NAMED = re.compile(rf"""\bLIST{_SPACE}\({_SPACE}(?:'([\w.-]+)'|"([\w.-]+)"){_SPACE}\)""", re.IGNORECASE | re.ASCII)
"""How a rule's text names a list."""
NAMES_ANY = rf"(?i)LIST{_SPACE}\("
"""What stands in each text that names a list, and in few others; Python, Arrow and Polars read it alike."""


def names_in(text: str) -> list[str]:
    """The lists that a rule's text names, and perhaps others that a string in it does."""
    return sorted({single or double for single, double in NAMED.findall(text)})
