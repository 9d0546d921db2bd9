"""Sets of Unicode code points as java.util.regex defines them: properties, categories, case.

A set is a `ValueSet` over code points. Properties are those of Unicode 13.0, the version of Java 17, so that a pattern
has the same meaning whichever Python or Java runs it; a code point assigned later counts as unassigned.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rules_index.domains.values import ValueSet, interval, points, union
from rules_index.language.patterns.scripts import is_script

if TYPE_CHECKING:
    import polars as pl

CODE_POINTS = sys.maxunicode + 1
ALL = interval(0, CODE_POINTS)
UNICODE_VERSION = "13.0"

_JOINED_LATER: dict[str, tuple[tuple[int, int], ...]] = {
    "Alphabetic": (
        *((0x363, 0x36F), (0xC04, 0xC04), (0xF82, 0xF83), (0x1DD3, 0x1DE6)),
        (0x11080, 0x11081),
    ),
    "Lowercase": ((0x10FC, 0x10FC), (0xAB69, 0xAB69)),
    "sc=HAN": ((0x16FE2, 0x16FE3),),
}
"""Code points that were assigned in Unicode 13.0, but got the property in a later version."""
_MARKS_MOVED = (0x1734,)
"""Code points that are non-spacing marks in Unicode 13.0, and spacing marks in later versions."""

LINE_TERMINATORS = points((0x0A, 0x0D, 0x85, 0x2028, 0x2029))
ASCII_DIGIT = interval(0x30, 0x3A)
ASCII_UPPER = interval(0x41, 0x5B)
ASCII_LOWER = interval(0x61, 0x7B)
ASCII_ALPHA = ASCII_UPPER | ASCII_LOWER
ASCII_ALNUM = ASCII_ALPHA | ASCII_DIGIT
ASCII_WORD = ASCII_ALNUM | points((0x5F,))
ASCII_SPACE = interval(0x09, 0x0E) | points((0x20,))
HORIZONTAL_SPACE = points((0x09, 0x20, 0xA0, 0x1680, 0x180E, 0x202F, 0x205F, 0x3000)) | interval(0x2000, 0x200B)
VERTICAL_SPACE = interval(0x0A, 0x0E) | points((0x85, 0x2028, 0x2029))

_CATEGORIES = [
    "Lu",
    "Ll",
    "Lt",
    "Lm",
    "Lo",
    "Mn",
    "Me",
    "Mc",
    "Nd",
    "Nl",
    "No",
    "Zs",
    "Zl",
    "Zp",
    "Cc",
    "Cf",
    "Co",
    "Cs",
    "Pd",
    "Ps",
    "Pe",
    "Pc",
    "Po",
    "Sm",
    "Sc",
    "Sk",
    "So",
    "Pi",
    "Pf",
    "Cn",
]
_CATEGORY_GROUPS = {
    **{name: (name,) for name in _CATEGORIES},
    **{letter: tuple(c for c in _CATEGORIES if c[0] == letter) for letter in "LMNZCPS"},
    "LC": ("Lu", "Ll", "Lt"),
    "LD": ("Lu", "Ll", "Lt", "Lm", "Lo", "Nd"),
}


@lru_cache(maxsize=4096)
def complement(members: ValueSet) -> ValueSet:
    """All code points that are not in the set."""
    return ~members & ALL


def _from_mask(mask: npt.NDArray[np.bool_]) -> ValueSet:
    """The set of the code points whose element in the mask [0x110000] is set."""
    flips = np.flatnonzero(np.diff(mask.astype(np.int8))) + 1
    cuts = ([0] if mask[0] else []) + flips.tolist() + ([CODE_POINTS] if mask[-1] else [])
    return ValueSet(False, tuple(cuts))


@cache
def _characters() -> pl.Series:
    """Every code point as a string; NULL for a surrogate, which UTF-8 does not have."""
    import polars as pl

    return pl.Series([None if 0xD800 <= c < 0xE000 else chr(c) for c in range(CODE_POINTS)], dtype=pl.String)


@cache
def _unicode(name: str) -> ValueSet | None:
    """The set of a property in the Unicode version of Polars; None if its regular expressions do not have the
    property."""
    import polars as pl

    try:
        mask = _characters().str.contains(rf"^(?s:\p{{{name}}})$")
    except pl.exceptions.PolarsError:
        return None
    return _from_mask(mask.fill_null(False).to_numpy())


@cache
def _assigned() -> ValueSet:
    known = _unicode(f"age={UNICODE_VERSION}")
    if known is None:
        raise RuntimeError("This Polars does not know the age of a code point; install the version of the lock file.")
    return known | interval(0xD800, 0xE000)


def _known(name: str) -> ValueSet:
    """The code points with a property in Unicode 13.0; none if Polars does not have the property."""
    members = _unicode(name)
    removed = union([interval(low, high + 1) for low, high in _JOINED_LATER.get(name, ())])
    return ValueSet(False, ()) if members is None else members & _assigned() & ~removed


@cache
def _category_codes() -> npt.NDArray[np.uint8]:
    """The general category of each code point in Unicode 13.0, as its index in `_CATEGORIES`, [0x110000] uint8."""
    order = {name: code for code, name in enumerate(_CATEGORIES)}
    codes = np.fromiter((order[unicodedata.category(chr(c))] for c in range(CODE_POINTS)), np.uint8, CODE_POINTS)
    cuts = np.array((0, *_assigned().cuts, CODE_POINTS))
    for low, high in zip(cuts[0:-1:2], cuts[1::2], strict=False):
        codes[low:high] = order["Cn"]
    codes[list(_MARKS_MOVED)] = order["Mn"]
    return codes


@cache
def category(*names: str) -> ValueSet:
    """The code points with one of these two-letter general categories."""
    wanted = np.zeros(len(_CATEGORIES), np.bool_)
    wanted[[_CATEGORIES.index(name) for name in names]] = True
    return _from_mask(wanted[_category_codes()])


@cache
def letters_and_digits() -> ValueSet:
    """The code points that Character.isLetterOrDigit accepts."""
    return category("Lu", "Ll", "Lt", "Lm", "Lo", "Nd")


def _cased() -> ValueSet:
    return _known("Lowercase") | _known("Uppercase") | category("Lt")


def _white_space() -> ValueSet:
    return category("Zs", "Zl", "Zp") | interval(0x09, 0x0E) | points((0x85,))


def _hex_digit() -> ValueSet:
    ranges = ((0x41, 0x47), (0x61, 0x67), (0xFF10, 0xFF1A), (0xFF21, 0xFF27), (0xFF41, 0xFF47))
    return union((category("Nd"), *(interval(low, high) for low, high in ranges)))


def _graph() -> ValueSet:
    return complement(category("Zs", "Zl", "Zp", "Cc", "Cs", "Cn"))


def _blank() -> ValueSet:
    return category("Zs") | points((0x09,))


@cache
def word() -> ValueSet:
    r"""The set of \w under the flag (?U)."""
    return union((_known("Alphabetic"), category("Mn", "Me", "Mc", "Nd", "Pc"), interval(0x200C, 0x200E)))


def _punctuation() -> ValueSet:
    return category(*_CATEGORY_GROUPS["P"])


def _noncharacters() -> ValueSet:
    return union([interval(0xFDD0, 0xFDF0), *(interval((p << 16) + 0xFFFE, (p + 1) << 16) for p in range(17))])


def _ideographic() -> ValueSet:
    return _known("Ideographic")


_POSIX_UNICODE: dict[str, Callable[[], ValueSet]] = {
    "ALPHA": lambda: _known("Alphabetic"),
    "LOWER": lambda: _known("Lowercase"),
    "UPPER": lambda: _known("Uppercase"),
    "SPACE": _white_space,
    "PUNCT": _punctuation,
    "XDIGIT": _hex_digit,
    "ALNUM": lambda: _known("Alphabetic") | category("Nd"),
    "CNTRL": lambda: category("Cc"),
    "DIGIT": lambda: category("Nd"),
    "BLANK": _blank,
    "GRAPH": _graph,
    "PRINT": lambda: (_graph() | _blank()) & complement(category("Cc")),
}
_BINARY: dict[str, Callable[[], ValueSet]] = {
    "ALPHABETIC": lambda: _known("Alphabetic"),
    "ASSIGNED": lambda: complement(category("Cn")),
    "CONTROL": lambda: category("Cc"),
    "HEXDIGIT": _hex_digit,
    "HEX_DIGIT": _hex_digit,
    "IDEOGRAPHIC": _ideographic,
    "JOINCONTROL": lambda: interval(0x200C, 0x200E),
    "JOIN_CONTROL": lambda: interval(0x200C, 0x200E),
    "LETTER": lambda: category("Lu", "Ll", "Lt", "Lm", "Lo"),
    "LOWERCASE": lambda: _known("Lowercase"),
    "NONCHARACTERCODEPOINT": _noncharacters,
    "NONCHARACTER_CODE_POINT": _noncharacters,
    "TITLECASE": lambda: category("Lt"),
    "PUNCTUATION": _punctuation,
    "UPPERCASE": lambda: _known("Uppercase"),
    "WHITESPACE": _white_space,
    "WHITE_SPACE": _white_space,
    "WORD": word,
}
_ASCII_GRAPH = interval(0x21, 0x7F)
_POSIX_ASCII: dict[str, ValueSet] = {
    "ASCII": interval(0, 0x80),
    "Alnum": ASCII_ALNUM,
    "Alpha": ASCII_ALPHA,
    "Blank": points((0x09, 0x20)),
    "Cntrl": interval(0, 0x20) | points((0x7F,)),
    "Digit": ASCII_DIGIT,
    "Graph": _ASCII_GRAPH,
    "Lower": ASCII_LOWER,
    "Print": interval(0x20, 0x7F),
    "Punct": _ASCII_GRAPH & ~ASCII_ALNUM,
    "Space": ASCII_SPACE,
    "Upper": ASCII_UPPER,
    "XDigit": ASCII_DIGIT | interval(0x41, 0x47) | interval(0x61, 0x67),
    "L1": interval(0, 0x100),
    "all": ALL,
}


_ONLY_JAVA = re.compile("In[^=]*|(?i:blk|block)=.*|(Is|(?i:gc|general_category)=)?java.*", re.DOTALL)
_CASE_NAMES = {"LOWER", "UPPER", "LOWERCASE", "UPPERCASE", "TITLECASE"}


def _by_name(table: dict[str, Callable[[], ValueSet]], name: str, ignore_case: bool) -> ValueSet | None:
    if name not in table:
        return None
    return _cased() if ignore_case and name in _CASE_NAMES else table[name]()


def _general_property(name: str, ignore_case: bool) -> ValueSet | None:
    """A general category or an ASCII POSIX class; names are case-sensitive."""
    if name in _CATEGORY_GROUPS:
        return category(*_CATEGORY_GROUPS["LC" if ignore_case and name in ("Lu", "Ll", "Lt") else name])
    if name in _POSIX_ASCII:
        return ASCII_ALPHA if ignore_case and name in ("Lower", "Upper") else _POSIX_ASCII[name]
    return None


@cache
def _script(name: str) -> ValueSet | None:
    """The set of a script; None if java.util.regex or Polars does not have it."""
    if not is_script(name):
        return None
    upper = {"ZZZZ": "UNKNOWN", "HANI": "HAN", "ZYYY": "COMMON"}.get(name.upper(), name.upper())
    if upper == "UNKNOWN":
        return category("Cn", "Co", "Cs")
    if _unicode(f"sc={upper}") is None:
        return None
    members = _known(f"sc={upper}")
    return members | interval(0x16FE2, 0x16FE4) if upper == "COMMON" else members


def is_only_java(name: str) -> bool:
    r"""Whether only Java knows the set of `\p{name}`: a block of Unicode, or a method of its class `Character`."""
    return _ONLY_JAVA.fullmatch(name) is not None


@cache
def named(name: str, ignore_case: bool, unicode_classes: bool) -> ValueSet | None:
    r"""The set of `\p{name}`; None if java.util.regex has no such name, or if only Java knows the set."""
    if "=" in name:
        key, _, value = name.partition("=")
        if key.lower() in ("sc", "script"):
            return _script(value)
        return _general_property(value, ignore_case) if key.lower() in ("gc", "general_category") else None
    if name.startswith("Is"):
        short = name[2:]
        for table in (_BINARY, _POSIX_UNICODE):
            if (found := _by_name(table, short.upper(), ignore_case)) is not None:
                return found
        found = _general_property(short, ignore_case)
        return _script(short) if found is None else found
    found = _by_name(_POSIX_UNICODE, name.upper(), ignore_case) if unicode_classes else None
    return _general_property(name, ignore_case) if found is None else found
