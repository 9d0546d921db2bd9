"""Escapes users' texts for a terminal: they must neither control it nor hide a part of themselves."""

from __future__ import annotations

import unicodedata

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of control characters, bidirectional and zero-width characters, lone surrogates, line and paragraph
separators."""


def escaped(value: object, keep: str = "") -> str:
    """The value as text. Characters that a terminal would obey or hide are written like \\x1b.

    keep: characters that are left as they are.
    """
    text = str(value)
    if text.isprintable():
        return text
    return "".join(
        _escape(each) if each not in keep and unicodedata.category(each) in _UNSEEN else each for each in text
    )


def _escape(character: str) -> str:
    code = ord(character)
    wide = f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return _NAMED.get(character, wide)
