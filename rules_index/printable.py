"""Texts of users on a terminal, which must neither obey them nor hide a part of them."""

from __future__ import annotations

import unicodedata

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of controls, of bidirectional and zero-width characters, of lone surrogates, and of line separators."""


def escaped(value: object, keep: str = "") -> str:
    """A value as text in which characters that a terminal obeys or hides are written like \\x1b.

    keep: characters that stay.
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
