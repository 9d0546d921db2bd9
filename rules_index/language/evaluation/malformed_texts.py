"""Texts that are not UTF-8, as the functions that are evaluated here take them.

Spark stores any bytes as a STRING. Some of its functions read them as Java does, with U+FFFD for what is malformed.
Others count characters by their first bytes, and keep the bytes: for these, malformed characters are replaced by code
points of private use, and the results get the bytes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum

import numpy as np
import pyarrow as pa

from rules_index.language.coercion import STRING
from rules_index.language.patterns.strings import is_utf8

SIZES = np.repeat(np.array([1, 2, 3, 4, 1], np.uint8), [0xC2, 30, 16, 5, 11])
"""[256] uint8: the bytes of a character by its first byte, as Spark counts them."""
_FIRST, _COUNT = 0xF0000, 0x20000
"""The code points of private use behind all others: the first one, and how many there are."""


class Texts(Enum):
    """How a function takes texts that are not UTF-8."""

    STORED = "as they are stored"
    DECODED = "decoded as by Java"
    CHARACTERS = "with a code point of private use for each malformed character"


def made_valid(texts: pa.Array) -> pa.Array:
    """The texts as `make_valid_utf8` returns them: U+FFFD for each maximal part of a character that is malformed. Java
    has one U+FFFD for an encoded surrogate, which are three here."""
    if is_utf8(texts):
        return texts
    stored = texts.cast(pa.binary()).to_pylist()
    return pa.array([None if each is None else each.decode(errors="replace") for each in stored], STRING)


def with_private_use(columns: Sequence[pa.Array]) -> tuple[list[pa.Array], Callable[[pa.Array], pa.Array]]:
    """The columns with valid texts, and a function that puts the malformed characters back into a column of results."""
    known: dict[int, dict[bytes, str]] = {}
    found = [
        _replaced(column, known) if column.type == STRING and not is_utf8(column) else column for column in columns
    ]
    back = {row: list(stand_ins) for row, stand_ins in known.items()}
    return found, lambda values: _restored(values, back) if back and values.type == STRING else values


def _replaced(texts: pa.Array, known: dict[int, dict[bytes, str]]) -> pa.Array:
    """The texts with code points of private use; `known` has, and gets, those of each row by the bytes that they stand
    for."""
    found: list[str | None] = []
    for row, data in enumerate(texts.cast(pa.binary()).to_pylist()):
        text = None if data is None else data.decode(errors="replace")
        if data is not None and text is not None and ("\ufffd" in text or row in known):
            stand_ins = known.setdefault(row, {})
            text = "".join(_letter(each, stand_ins) for each in characters(data))
        found.append(text)
    return pa.array(found, STRING)


def _letter(data: bytes, stand_ins: dict[bytes, str]) -> str:
    """The letter for a character with these bytes: itself, or if it is malformed or of private use, a stand-in."""
    letter = data.decode(errors="replace")
    if "\ufffd" not in letter and ord(letter) < _FIRST:
        return letter
    if data not in stand_ins and len(stand_ins) == _COUNT:
        return "\ufffd"  # more different ones than there are code points
    return stand_ins.setdefault(data, chr(_FIRST + len(stand_ins)))


def characters(data: bytes) -> Iterator[bytes]:
    """The bytes of each character of a text as Spark counts them, by their first bytes."""
    at = 0
    while at < len(data):
        size = int(SIZES[data[at]])
        yield data[at : at + size]
        at += size


def _restored(values: pa.Array, back: Mapping[int, Sequence[bytes]]) -> pa.Array:
    """Texts with the bytes for which code points of private use stand; `back` has these, in order, by row."""
    found = values.cast(pa.binary()).to_pylist()
    for row, stand_ins in back.items():
        if found[row] is not None:
            stood_for = {chr(_FIRST + place): data for place, data in enumerate(stand_ins)}
            found[row] = b"".join(stood_for.get(letter, letter.encode()) for letter in found[row].decode())
    return pa.array(found, pa.binary()).view(STRING)
