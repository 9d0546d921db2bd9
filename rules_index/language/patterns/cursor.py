"""A cursor over the text of a pattern that moves as the one of java.util.regex does.

Quotations (`\\Q...\\E`) are expanded beforehand. Under the flag (?x) the cursor skips white space and comments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from rules_index.errors import RuleError
from rules_index.work_budget import Work

DEPTH_LIMIT = 100
END = 0
_WHITE = frozenset(map(ord, " \t\n\x0b\f\r"))


@dataclass
class Flags:
    """The inline flags in force; saved at each group's start and restored at its end."""

    on: frozenset[str] = frozenset()

    def __contains__(self, flag: str) -> bool:
        return flag in self.on


class Cursor:
    """A position in a pattern; reads code points, END behind the last. `origin[i]` is the position in the pattern from
    which code point i of `text` came."""

    def __init__(self, pattern: str, work: Work) -> None:
        self.text, self.origin = without_quotations(pattern)
        self.length = len(self.text)
        self.text += [END, END]
        self.origin += [len(pattern)] * 2
        self.cursor = 0
        self.depth = 0
        self.work = work
        self.flags = Flags()
        self.names: set[str] = set()
        self.groups = 0

    def fail(self, message: str, back: int = 0) -> NoReturn:
        """Refuses the pattern, pointing at the cursor (or `back` characters before it)."""
        position = self.origin[min(max(self.cursor - back, 0), len(self.origin) - 1)]
        raise RuleError("PATTERN", f"The regular expression cannot be used: {message}.", position)

    def at(self, index: int) -> int:
        """The code point at an index, END beyond the text."""
        return self.text[index] if index < len(self.text) else END

    def past_white(self) -> int:
        """Moves the cursor past white space and comments under the flag (?x); returns the code point there."""
        code = self.at(self.cursor)
        while "x" in self.flags:
            while code in _WHITE:
                self.cursor += 1
                code = self.at(self.cursor)
            if code != ord("#"):
                break
            while code != END and not self.ends_line(code):
                self.cursor += 1
                code = self.at(self.cursor)
            if code == END:
                break
        return code

    def ends_line(self, code: int) -> bool:
        """Whether a code point ends a comment."""
        return code == 0x0A if "d" in self.flags else code in (0x0A, 0x0D, 0x85, 0x2028, 0x2029)

    def peek(self) -> int:
        """The code point at the cursor."""
        return self.past_white()

    def read(self) -> int:
        """Returns the code point at the cursor, and moves behind it."""
        code = self.past_white()
        self.cursor += 1
        return code

    def next(self) -> int:
        """Moves one forward; returns the code point there."""
        self.cursor += 1
        return self.past_white()

    def next_escaped(self) -> int:
        """Like `next`, but does not skip white space."""
        self.cursor += 1
        return self.at(self.cursor)

    def skip(self) -> int:
        """Returns the code point behind the one at the cursor, and moves behind it, without skipping white space."""
        code = self.at(self.cursor + 1)
        self.cursor += 2
        return code

    def unread(self) -> None:
        """Moves one back."""
        self.cursor -= 1


def without_quotations(pattern: str) -> tuple[list[int], list[int]]:
    r"""The pattern's code points, with `\Q...\E` expanded to escapes, and the position in the pattern from which each
    came."""
    source = [ord(c) for c in pattern]
    text: list[int] = []
    origin: list[int] = []

    def put(where: int, *codes: int) -> None:
        text.extend(codes)
        origin.extend([where] * len(codes))

    quoted = opening = False
    index = 0
    while index < len(source):
        code = source[index]
        pair = chr(code) + (chr(source[index + 1]) if index + 1 < len(source) else "")
        if pair == ("\\E" if quoted else "\\Q"):
            quoted = opening = not quoted
            index += 2
            continue
        if not quoted:
            length = 2 if code == ord("\\") and len(pair) == 2 else 1
            for step in range(length):
                put(index + step, source[index + step])
            index += length
            continue
        if is_digit(code):  # as a hexadecimal escape, so that it does not extend an escape before the quotation
            put(index, *map(ord, "\\x3"), code) if opening else put(index, code)
        elif code >= 0x80 or is_alpha(code):
            put(index, code)
        else:
            put(index, ord("\\"), code)
        opening = False
        index += 1
    return text, origin


def is_digit(code: int) -> bool:
    """Whether a code point is a digit from 0 to 9."""
    return 0x30 <= code <= 0x39


def is_octal(code: int) -> bool:
    """Whether a code point is a digit from 0 to 7."""
    return 0x30 <= code <= 0x37


def is_hex(code: int) -> bool:
    """Whether a code point is a hexadecimal digit."""
    return is_digit(code) or 0x41 <= code <= 0x46 or 0x61 <= code <= 0x66


def is_alpha(code: int) -> bool:
    """Whether a code point is a letter from a to z or A to Z."""
    return 0x41 <= code <= 0x5A or 0x61 <= code <= 0x7A
