"""Reads escapes, properties and character classes of java.util.regex as sets of code points."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field

from rules_index.domains.values import ValueSet, union
from rules_index.language.patterns import case_folding
from rules_index.language.patterns import code_points as cp
from rules_index.language.patterns.cursor import DEPTH_LIMIT, END, Cursor, is_alpha, is_digit, is_hex, is_octal
from rules_index.language.patterns.syntax import Characters

_PLAIN_ESCAPES = {"a": 0x07, "e": 0x1B, "f": 0x0C, "n": 0x0A, "r": 0x0D, "t": 0x09}


@dataclass
class _Class:
    """A character class while it is read. Literals are kept apart, because Java adds them last.

    `last` is the part that was added last, None if that is a literal: with it `&&` intersects the class if nothing
    stands on its right. `pending` is True if there are literals that `settle` has not added yet.
    """

    literals: list[ValueSet] = field(default_factory=list)
    others: list[ValueSet] = field(default_factory=list)
    last: ValueSet | None = None
    pending: bool = False

    def add(self, literal: ValueSet) -> None:
        """Adds a single character of the first 256, which Java keeps in a separate bit set."""
        self.literals.append(literal)
        self.last, self.pending = None, True

    def join(self, more: ValueSet) -> None:
        """Adds a range, an escape, a property or a class."""
        self.others.append(more)
        self.last = more

    def settle(self) -> None:
        """Adds the literals to the other parts."""
        if self.pending:
            literals = union(self.literals)
            if not self.others:
                self.last = literals
            self.others.append(literals)
            self.pending = False

    def members(self) -> ValueSet:
        """All that was added."""
        if len(self.others) > 1:
            self.others = [union(self.others)]
        return self.others[0] if self.others else ValueSet(False, ())


_STEPS_OF_SET = 4
_CUTS_A_STEP = 16
"""How many cuts of a set count as one step of work."""


class SetReader(Cursor):
    """A cursor that reads elements that match a single code point.

    `is_known` is False after a property that only Java knows, until `characters` has made a node of it.
    """

    is_known = True

    def characters(self, members: ValueSet) -> Characters:
        """The node of the set that was just read."""
        is_known, self.is_known = self.is_known, True
        return Characters(members) if is_known else Characters(cp.ALL, is_known=False)

    def single(self, code: int) -> ValueSet:
        """The set of one literal, in any case under the flag i."""
        return self.spent(case_folding.single(code, "i" in self.flags, "u" in self.flags))

    def spent(self, members: ValueSet) -> ValueSet:
        """The set itself; its size counts as work."""
        self.work.spend(_STEPS_OF_SET + len(members.cuts) // _CUTS_A_STEP)
        return members

    def predefined(self, letter: str) -> ValueSet | None:
        r"""The set of \d \D \s \S \w \W \h \H \v \V."""
        unicode = "U" in self.flags
        members: ValueSet | None
        match letter.lower():
            case "d":
                members = cp.category("Nd") if unicode else cp.ASCII_DIGIT
            case "s":
                members = cp.named("IsWhite_Space", False, True) if unicode else cp.ASCII_SPACE
            case "w":
                members = cp.word() if unicode else cp.ASCII_WORD
            case "h":
                members = cp.HORIZONTAL_SPACE
            case "v":
                members = cp.VERTICAL_SPACE
            case _:
                return None
        assert members is not None
        return self.spent(cp.complement(members) if letter.isupper() else members)

    def escape(self, is_bound: bool) -> ValueSet | int:
        r"""Reads an escape from its backslash on; returns its set or code point. As a bound of a class range, \v is one
        code point."""
        code = self.skip()
        letter = chr(code)
        if letter == "0":
            return self.octal()
        if letter == "v" and is_bound:
            return 0x0B
        if code < 0x80 and (members := self.predefined(letter)) is not None:
            return members
        if letter in _PLAIN_ESCAPES:
            return _PLAIN_ESCAPES[letter]
        match letter:
            case "c":
                if self.cursor >= self.length:
                    self.fail("\\c must be followed by a character", 1)
                return self.read() ^ 64
            case "u":
                return self.unicode_escape()
            case "x":
                return self.hexadecimal()
            case "N":
                return self.character_name()
        if is_alpha(code) or is_digit(code):
            self.fail(f"\\{letter} means nothing here", 2)
        if code == END and self.cursor > self.length:
            self.fail("it ends in a backslash; write '\\\\' for one", 2)
        return code

    def octal(self) -> int:
        r"""The code point of `\0nnn`, read from behind the 0 on."""
        digits = [self.read()]
        if not is_octal(digits[0]):
            self.fail("\\0 must be followed by an octal digit", 1)
        for _ in range(2 if digits[0] <= ord("3") else 1):
            code = self.read()
            if not is_octal(code):
                self.unread()
                break
            digits.append(code)
        return int("".join(map(chr, digits)), 8)

    def hexadecimal(self) -> int:
        r"""The code point of `\xhh` or `\x{h...}`, read from behind the x on."""
        code = self.read()
        if is_hex(code) and is_hex(second := self.read()):
            return int(chr(code) + chr(second), 16)
        if code == ord("{") and is_hex(self.peek()):
            digits = []
            while is_hex(code := self.read()):
                digits.append(chr(code))
            value = int("".join(digits), 16)
            if value >= cp.CODE_POINTS:
                self.fail("a code point above 10FFFF", 1)
            if code != ord("}"):
                self.fail("\\x{ lacks its '}'", 1)
            return value
        return self.fail("\\x must be followed by two hexadecimal digits, or by some in braces", 1)

    def unicode_escape(self) -> int:
        r"""The code point of `\uhhhh`, or of two of them for a surrogate pair."""
        first = self.four_digits()
        if 0xD800 <= first < 0xDC00:
            start = self.cursor
            if self.read() == ord("\\") and self.read() == ord("u"):
                second = self.four_digits()
                if 0xDC00 <= second < 0xE000:
                    return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)
            self.cursor = start
        return first

    def four_digits(self) -> int:
        """Reads a number of four hexadecimal digits."""
        value = 0
        for _ in range(4):
            code = self.read()
            if not is_hex(code):
                self.fail("\\u must be followed by four hexadecimal digits", 1)
            value = value * 16 + int(chr(code), 16)
        return value

    def character_name(self) -> int:
        r"""The code point of `\N{name}`, read from behind the N on."""
        if self.read() != ord("{"):
            self.fail("\\N must be followed by a character's name in braces", 1)
        name = self.until_brace()
        try:
            return ord(unicodedata.lookup(name))
        except (KeyError, TypeError):
            self.fail(f"no character is named '{name}'", 1)

    def until_brace(self) -> str:
        """The text up to the next closing brace; moves behind it."""
        start = self.cursor
        while self.at(self.cursor) != ord("}"):
            if self.cursor >= self.length:
                self.fail("a name lacks its '}'")
            self.cursor += 1
        self.cursor += 1
        return "".join(map(chr, self.text[start : self.cursor - 1]))

    def property(self) -> ValueSet:
        r"""The set of `\pX` or `\p{...}`, read from the letter p on."""
        start = self.cursor
        negated = self.at(start) == ord("P")
        if self.next() == ord("{"):
            self.next()
            name = self.until_brace()
        else:
            name = chr(self.at(self.cursor))
            self.cursor += 1
        if cp.is_only_java(name):
            self.is_known = False
            return cp.ALL
        members = cp.named(name, "i" in self.flags, "U" in self.flags)
        if members is None:
            self.cursor = start
            self.fail(f"there is no character property '{name}'")
        return self.spent(cp.complement(members) if negated else members)

    # Classes

    def character_class(self, consume: bool) -> ValueSet:
        """A class from its '[' (or from the character before it) up to its ']', which is read if `consume`."""
        start = self.cursor
        self.depth += 1
        if self.depth > DEPTH_LIMIT:
            self.fail(f"its classes are nested more than {DEPTH_LIMIT} deep")
        found = _Class()
        code = self.next()
        negated = code == ord("^") and self.at(self.cursor - 1) == ord("[")
        if negated:
            code = self.next()
        while True:
            if code == ord("["):
                found.join(self.character_class(True))
            elif code == ord("&") and self.intersect(found):
                pass
            elif code == ord("]") and (found.others or found.pending):
                if consume:
                    self.next()
                break
            else:
                if code == END and self.cursor >= self.length:
                    self.cursor = start
                    self.fail("this class lacks its ']'")
                self.class_member(found)
            code = self.peek()
        found.settle()
        self.depth -= 1
        members = self.spent(found.members())
        return cp.complement(members) if negated else members

    def intersect(self, found: _Class) -> bool:
        """Reads `&&` and its right operand. Returns False, with nothing read, if the '&' is a literal."""
        if self.next() != ord("&"):
            self.unread()
            return False
        code = self.next()
        rights: list[ValueSet] = []
        while code not in map(ord, "]&"):
            if code == END and self.cursor >= self.length:
                self.fail("a class lacks its ']'")
            if code != ord("["):
                self.unread()
            rights.append(self.character_class(code == ord("[")))
            code = self.peek()
        found.settle()
        found.last = union(rights) if rights else found.last
        if found.last is None:
            self.fail("'&&' has nothing to intersect")
        found.others = [self.spent(found.members() & found.last) if found.others else found.last]
        return True

    def class_member(self, found: _Class) -> None:
        """Reads one literal, range, escape or property of a class."""
        code = self.peek()
        if code == ord("\\"):
            code = self.next_escaped()
            if code in (ord("p"), ord("P")):
                found.join(self.property())
                return
            is_range = self.at(self.cursor + 1) == ord("-")
            self.unread()
            value = self.escape(is_range)
            if isinstance(value, ValueSet):
                found.join(value)
                return
            code = value
        else:
            self.next()
        if self.peek() == ord("-") and self.at(self.cursor + 1) not in map(ord, "[]"):
            self.next()
            found.join(self.class_range(code))
            return
        if code < 256:
            found.add(self.single(code))
        else:
            found.join(self.single(code))

    def class_range(self, low: int) -> ValueSet:
        """Reads the rest of a range, from behind its hyphen."""
        high = self.peek()
        if high == ord("\\"):
            value = self.escape(True)
            high = value if isinstance(value, int) else -1
        else:
            self.next()
        if high < low:
            self.fail("a class range has its lower end last", 1)
        return self.spent(case_folding.span(low, high, "i" in self.flags, "u" in self.flags))
