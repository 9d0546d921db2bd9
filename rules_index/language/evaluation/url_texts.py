"""`url_decode` and `try_url_decode`, as java.net.URLDecoder decodes a text."""

from __future__ import annotations

import re
from functools import partial
from unicodedata import decimal

import pyarrow as pa

from rules_index.language.coercion import STRING
from rules_index.language.evaluation import argument_types
from rules_index.language.evaluation.malformed_texts import Texts
from rules_index.language.evaluation.scalar import Columns, Result, ScalarFunction, nulls_of
from rules_index.language.patterns.strings import as_java

_ESCAPES = re.compile(r"(?:%..)+", re.DOTALL)
_PLAIN_ESCAPES = re.compile(r"(?:%[0-9a-fA-F]{2})+")
_WIDE_LETTERS = {code: code - 0xFEE0 for start in (0xFF21, 0xFF41) for code in range(start, start + 6)}
"""The letters A to F and a to f of full width, which Java reads as digits, too."""


def _decode(columns: Columns, _: str, quiet: bool) -> Result:
    """Decodes each distinct text; one with a wrong escape raises or, if `quiet`, becomes NULL."""
    codes = columns[0].dictionary_encode()
    texts = [None if each is None else _decoded(each) for each in codes.dictionary.to_pylist()]
    values = pa.array(texts, STRING).take(codes.indices)
    return values, None if quiet else nulls_of(values) & ~nulls_of(columns[0])


def _decoded(text: str) -> str | None:
    """The text with bytes for its escapes and blanks for `+`; None if an escape is wrong."""
    parts, at = [], 0
    for match in _ESCAPES.finditer(text):
        data = _bytes_of(match[0])
        if data is None:
            return None
        parts += [text[at : match.start()].replace("+", " "), as_java(data)]
        at = match.end()
    rest = text[at:]
    return None if "%" in rest else "".join([*parts, rest.replace("+", " ")])


def _bytes_of(escapes: str) -> bytes | None:
    if _PLAIN_ESCAPES.fullmatch(escapes):
        return bytes.fromhex(escapes.replace("%", ""))
    numbers = [_number(escapes[place : place + 2]) for place in range(1, len(escapes), 3)]
    known = [number for number in numbers if number is not None]
    return bytes(known) if len(known) == len(numbers) else None


def _number(digits: str) -> int | None:
    """Two letters as java.lang.Integer.parseInt reads a hexadecimal number that is not negative: one may be a sign."""
    sign, digits = (digits[0], digits[1:]) if digits[0] in "+-" else ("", digits)
    values = [_digit(letter) for letter in digits.translate(_WIDE_LETTERS)]
    if -1 in values or (sign == "-" and any(values)):
        return None
    return values[0] if len(values) == 1 else 16 * values[0] + values[1]


def _digit(letter: str) -> int:
    return int(letter, 16) if letter in "abcdefABCDEF" else -1 if letter > "\uffff" else int(decimal(letter, -1))


URL_TEXTS: dict[str, ScalarFunction] = {
    "url_decode": ScalarFunction(
        argument_types.one_text, partial(_decode, quiet=False), raises=True, texts=Texts.DECODED
    ),
    "try_url_decode": ScalarFunction(argument_types.one_text, partial(_decode, quiet=True), texts=Texts.DECODED),
}
