"""Reads the syntax of java.util.regex, character for character as Java's own reader does.

The reader works on the pattern after its quotations (`\\Q...\\E`) are written out, with a cursor that skips
white space and comments under the flag (?x). Constructs that no linear-time engine can carry out are refused.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from typing import NoReturn

from rules_index.errors import RuleError
from rules_index.expressions.patterns import code_points as cp
from rules_index.expressions.patterns.syntax import (
    EMPTY,
    Assertion,
    Characters,
    Choice,
    Node,
    Place,
    Repeat,
    Sequence,
)
from rules_index.values import ValueSet, points, union

DEPTH_LIMIT = 100
_WHITE = frozenset(map(ord, " \t\n\x0b\f\r"))
_END = 0
_PAIR = Sequence((Characters(points((0x0D,))), Characters(points((0x0A,)))))
_LINE_BREAK = Choice((_PAIR, Characters(cp.VERTICAL_SPACE)))
_WHOLE_LINE_BREAK = Choice(
    (_PAIR, Sequence((Characters(cp.VERTICAL_SPACE), Assertion(Place.INSIDE_PAIR, negated=True))))
)
r"""What \R matches where a quantifier follows it: Java never gives back half of a pair then."""
_PLAIN_ESCAPES = {"a": 0x07, "e": 0x1B, "f": 0x0C, "n": 0x0A, "r": 0x0D, "t": 0x09}


@dataclass
class _Flags:
    """The inline flags in force; copied at each group's start and put back at its end."""

    on: frozenset[str] = frozenset()

    def __contains__(self, flag: str) -> bool:
        return flag in self.on


@dataclass
class _Class:
    """A character class while it is read: literals are kept apart, as Java joins them last."""

    literals: list[ValueSet] = field(default_factory=list)
    others: ValueSet | None = None
    last: ValueSet | None = None
    pending: bool = False

    def add(self, literal: ValueSet) -> None:
        """A single character of the first 256, which Java holds in a bit set of its own."""
        self.literals.append(literal)
        self.last, self.pending = None, True

    def join(self, more: ValueSet) -> None:
        """A range, an escape, a property or a class."""
        self.others = more if self.others is None else self.others | more
        self.last = more

    def settle(self) -> None:
        """Joins the literals with the rest."""
        if self.pending:
            literals = union(self.literals)
            if self.others is None:
                self.others = self.last = literals
            else:
                self.others |= literals
            self.pending = False


def parse(pattern: str) -> Node:
    """The syntax tree of a pattern of java.util.regex; `RuleError` (`PATTERN`) where it is refused or wrong."""
    return _Reader(pattern).whole()


class _Reader:
    def __init__(self, pattern: str) -> None:
        self.text, self.origin = _without_quotations(pattern)
        self.length = len(self.text)
        self.text += [_END, _END]
        self.origin += [len(pattern)] * 2
        self.cursor = 0
        self.depth = 0
        self.flags = _Flags()
        self.names: set[str] = set()

    def whole(self) -> Node:
        node = self.expression()
        if self.cursor != self.length:
            self.fail("this ')' closes no group" if self.peek() == ord(")") else "it cannot be read further")
        return node

    def fail(self, message: str, back: int = 0) -> NoReturn:
        """Refuses the pattern, pointing at the cursor (or `back` characters before it)."""
        position = self.origin[min(max(self.cursor - back, 0), len(self.origin) - 1)]
        raise RuleError("PATTERN", f"The regular expression cannot be used: {message}.", position)

    # The cursor

    def at(self, index: int) -> int:
        return self.text[index] if index < len(self.text) else _END

    def past_white(self) -> int:
        code = self.at(self.cursor)
        while "x" in self.flags:
            while code in _WHITE:
                self.cursor += 1
                code = self.at(self.cursor)
            if code != ord("#"):
                break
            while code != _END and not self.ends_line(code):
                self.cursor += 1
                code = self.at(self.cursor)
            if code == _END:
                break
        return code

    def ends_line(self, code: int) -> bool:
        return code == 0x0A if "d" in self.flags else code in (0x0A, 0x0D, 0x85, 0x2028, 0x2029)

    def peek(self) -> int:
        return self.past_white()

    def read(self) -> int:
        code = self.past_white()
        self.cursor += 1
        return code

    def next(self) -> int:
        self.cursor += 1
        return self.past_white()

    def next_escaped(self) -> int:
        self.cursor += 1
        return self.at(self.cursor)

    def skip(self) -> int:
        code = self.at(self.cursor + 1)
        self.cursor += 2
        return code

    def unread(self) -> None:
        self.cursor -= 1

    # Expressions

    def expression(self) -> Node:
        self.depth += 1
        if self.depth > DEPTH_LIMIT:
            self.fail(f"its groups are nested more than {DEPTH_LIMIT} deep")
        branches = [self.sequence()]
        while self.peek() == ord("|"):
            self.next()
            branches.append(self.sequence())
        self.depth -= 1
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def sequence(self) -> Node:
        items: list[Node] = []
        while True:
            code = self.peek()
            if code in (ord("|"), ord(")")) or (code == _END and self.cursor >= self.length):
                return items[0] if len(items) == 1 else Sequence(tuple(items))
            if code == ord("("):
                group = self.group()
                if group is not None:
                    items.append(self.quantified(group))
            elif code in map(ord, "?*+"):
                self.fail(f"'{chr(code)}' has nothing to repeat")
            else:
                items.append(self.quantified(self.item(code)))

    def item(self, code: int) -> Node:
        """One thing that a quantifier may follow, other than a group."""
        if code == ord("["):
            return Characters(self.character_class(True))
        if code == ord("\\"):
            if self.at(self.cursor + 1) in (ord("p"), ord("P")):
                self.next_escaped()
                return Characters(self.property())
            return self.escaped_item()
        if code == ord("^"):
            self.next()
            if "m" not in self.flags:
                return Assertion(Place.START)
            return Assertion(Place.CARET_MULTI_UNIX if "d" in self.flags else Place.CARET_MULTI)
        if code == ord("$"):
            self.next()
            return self.dollar("m" in self.flags)
        if code == ord("."):
            self.next()
            return Characters(self.dot())
        if code == ord("{"):  # Java repeats an empty literal here
            return EMPTY
        self.next()
        return self.literal(code)

    def dollar(self, multi: bool) -> Node:
        if "d" in self.flags:
            return Assertion(Place.DOLLAR_MULTI_UNIX if multi else Place.DOLLAR_UNIX)
        return Assertion(Place.DOLLAR_MULTI if multi else Place.DOLLAR)

    def dot(self) -> ValueSet:
        if "s" in self.flags:
            return cp.ALL
        return cp.complement(points((0x0A,)) if "d" in self.flags else cp.LINE_TERMINATORS)

    def literal(self, code: int) -> Node:
        return Characters(self.single(code))

    def single(self, code: int) -> ValueSet:
        return cp.single(code, "i" in self.flags, "u" in self.flags)

    def quantified(self, node: Node) -> Node:
        code = self.peek()
        if code == ord("?"):
            low, high = 0, 1
        elif code in (ord("*"), ord("+")):
            low, high = int(code == ord("+")), None
        elif code == ord("{"):
            low, high = self.counts()
        else:
            return node
        code = self.next()
        if code == ord("+"):
            self.fail("possessive quantifiers are not supported; write the repetition without the '+'")
        if code == ord("?"):
            self.next()
        return Repeat(_WHOLE_LINE_BREAK if node is _LINE_BREAK else node, low, high)

    def counts(self) -> tuple[int, int | None]:
        """The bounds of `{n}`, `{n,}` or `{n,m}`; leaves the cursor on the closing brace."""
        code = self.skip()
        if not _is_digit(code):
            self.fail("'{' must be followed by a number; write '\\{' for a brace", 2)
        low, code = self.number(code)
        high: int | None = low
        if code == ord(","):
            high, code = None, self.read()
            if code != ord("}"):
                high, code = self.number(code)
        if code != ord("}"):
            self.fail("a counted repetition lacks its '}'", 1)
        if high is not None and high < low:
            self.fail("a counted repetition has its smaller bound last", 1)
        self.unread()
        return low, high

    def number(self, code: int) -> tuple[int, int]:
        """A decimal number whose first digit was read, and the code after it."""
        value = 0
        while _is_digit(code):
            value = value * 10 + code - ord("0")
            code = self.read()
        if value > 0x7FFFFFFF:
            self.fail("a counted repetition is too large", 1)
        return value, code

    # Groups

    def group(self) -> Node | None:
        """A group from its '('; None for flags that stand alone, as in `(?i)`."""
        start, saved = self.cursor, self.flags
        if self.next() == ord("?"):
            code = self.skip()
            if code in map(ord, "=!>"):
                self.refuse_group(start, "atomic groups" if code == ord(">") else "look-ahead")
            if code == ord("<"):
                code = self.read()
                if code in map(ord, "=!"):
                    self.refuse_group(start, "look-behind")
                self.group_name(code)
            elif code != ord(":"):
                self.unread()
                if self.inline_flags():
                    return None
        node = self.expression()
        if self.read() != ord(")"):
            self.cursor = start
            self.fail("this group lacks its ')'")
        self.flags = saved
        return Sequence((node,))  # even around a single set: Java repeats a group otherwise than a set

    def refuse_group(self, start: int, what: str) -> NoReturn:
        self.cursor = start
        self.fail(f"{what} cannot be matched in linear time; write the pattern without")

    def group_name(self, code: int) -> None:
        letters = []
        if not _is_alpha(code):
            self.fail("a group's name must start with a letter from a to z", 1)
        while _is_alpha(code) or _is_digit(code):
            letters.append(chr(code))
            code = self.read()
        if code != ord(">"):
            self.fail("a group's name lacks its '>'", 1)
        name = "".join(letters)
        if name in self.names:
            self.fail(f"two groups are named '{name}'", 1)
        self.names.add(name)

    def inline_flags(self) -> bool:
        """Reads flags up to ':' (False) or ')' (True)."""
        adding = True
        while True:
            code = self.peek()
            letter = chr(code)
            if letter == "-" and adding:
                adding = False
            elif letter in "imsduxU" and code != _END:
                more = frozenset(letter if letter != "U" else "Uu")
                self.flags = _Flags(self.flags.on | more if adding else self.flags.on - more)
            elif letter == "c":
                self.fail("the flag 'c' (canonical equivalence) is not supported")
            else:
                break
            self.next()
        code = self.read()
        if code not in map(ord, ":)"):
            self.fail("after '(?' stands something that is neither a flag nor a kind of group", 1)
        return code == ord(")")

    # Escapes

    def escaped_item(self) -> Node:
        start = self.cursor
        letter = chr(self.at(start + 1))
        places = {
            "A": Assertion(Place.START),
            "G": Assertion(Place.START),
            "B": Assertion(self.word_edge(), negated=True),
            "Z": self.dollar(False),
            "z": Assertion(Place.END),
        }
        if letter in places:
            self.cursor += 2
            return places[letter]
        if letter == "R":
            self.cursor += 2
            return _LINE_BREAK
        if letter == "b":
            self.cursor += 2
            if self.peek() == ord("{"):
                self.fail("\\b{g} (grapheme boundaries) is not supported")
            return Assertion(self.word_edge())
        if letter == "X":
            self.fail("\\X (grapheme clusters) is matched atomically by Java, which is not supported")
        if letter == "k" or letter in "123456789":
            self.fail("back-references cannot be matched in linear time; write the pattern without")
        value = self.escape(False)
        return Characters(value) if isinstance(value, ValueSet) else self.literal(value)

    def word_edge(self) -> Place:
        return Place.WORD_EDGE_UNICODE if "U" in self.flags else Place.WORD_EDGE

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
        return cp.complement(members) if letter.isupper() else members

    def escape(self, is_bound: bool) -> ValueSet | int:
        r"""What an escape from its backslash stands for; as the bound of a class range \v is one code point."""
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
        if _is_alpha(code) or _is_digit(code):
            self.fail(f"\\{letter} means nothing here", 2)
        if code == _END and self.cursor > self.length:
            self.fail("it ends in a backslash; write '\\\\' for one", 2)
        return code

    def octal(self) -> int:
        digits = [self.read()]
        if not _is_octal(digits[0]):
            self.fail("\\0 must be followed by an octal digit", 1)
        for _ in range(2 if digits[0] <= ord("3") else 1):
            code = self.read()
            if not _is_octal(code):
                self.unread()
                break
            digits.append(code)
        return int("".join(map(chr, digits)), 8)

    def hexadecimal(self) -> int:
        code = self.read()
        if _is_hex(code) and _is_hex(second := self.read()):
            return int(chr(code) + chr(second), 16)
        if code == ord("{") and _is_hex(self.peek()):
            digits = []
            while _is_hex(code := self.read()):
                digits.append(chr(code))
            value = int("".join(digits), 16)
            if value >= cp.CODE_POINTS:
                self.fail("a code point above 10FFFF", 1)
            if code != ord("}"):
                self.fail("\\x{ lacks its '}'", 1)
            return value
        return self.fail("\\x must be followed by two hexadecimal digits, or by some in braces", 1)

    def unicode_escape(self) -> int:
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
        value = 0
        for _ in range(4):
            code = self.read()
            if not _is_hex(code):
                self.fail("\\u must be followed by four hexadecimal digits", 1)
            value = value * 16 + int(chr(code), 16)
        return value

    def character_name(self) -> int:
        if self.read() != ord("{"):
            self.fail("\\N must be followed by a character's name in braces", 1)
        name = self.until_brace()
        try:
            return ord(unicodedata.lookup(name))
        except (KeyError, TypeError):
            self.fail(f"no character is named '{name}'", 1)

    def until_brace(self) -> str:
        start = self.cursor
        while self.at(self.cursor) != ord("}"):
            if self.cursor >= self.length:
                self.fail("a name lacks its '}'")
            self.cursor += 1
        self.cursor += 1
        return "".join(map(chr, self.text[start : self.cursor - 1]))

    def property(self) -> ValueSet:
        r"""The set of `\pX` or `\p{...}`, from the letter p on."""
        start = self.cursor
        negated = self.at(start) == ord("P")
        if self.next() == ord("{"):
            self.next()
            name = self.until_brace()
        else:
            name = chr(self.at(self.cursor))
            self.cursor += 1
        members = cp.named(name, "i" in self.flags, "U" in self.flags)
        if members is None:
            self.cursor = start
            self.fail(f"there is no character property '{name}'")
        return cp.complement(members) if negated else members

    # Classes

    def character_class(self, consume: bool) -> ValueSet:
        """A class from its '[' (or from the character before it), up to its ']', taken where `consume`."""
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
            elif code == ord("]") and (found.others is not None or found.pending):
                if consume:
                    self.next()
                break
            else:
                if code == _END and self.cursor >= self.length:
                    self.cursor = start
                    self.fail("this class lacks its ']'")
                self.class_member(found)
            code = self.peek()
        found.settle()
        self.depth -= 1
        members = found.others if found.others is not None else ValueSet(False, ())
        return cp.complement(members) if negated else members

    def intersect(self, found: _Class) -> bool:
        """Reads `&&` and what follows it; False (nothing read) where the '&' stands for itself."""
        if self.next() != ord("&"):
            self.unread()
            return False
        code = self.next()
        right: ValueSet | None = None
        while code not in map(ord, "]&"):
            if code == _END and self.cursor >= self.length:
                self.fail("a class lacks its ']'")
            if code != ord("["):
                self.unread()
            members = self.character_class(code == ord("["))
            right = members if right is None else right | members
            code = self.peek()
        found.settle()
        found.last = found.last if right is None else right
        if found.last is None:
            self.fail("'&&' has nothing to intersect")
        found.others = found.last if found.others is None else found.others & found.last
        return True

    def class_member(self, found: _Class) -> None:
        """One literal, range, escape or property of a class."""
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
        high = self.peek()
        if high == ord("\\"):
            value = self.escape(True)
            high = value if isinstance(value, int) else -1
        else:
            self.next()
        if high < low:
            self.fail("a class range has its lower end last", 1)
        return cp.span(low, high, "i" in self.flags, "u" in self.flags)


def _without_quotations(pattern: str) -> tuple[list[int], list[int]]:
    r"""The pattern's code points with `\Q...\E` written as escapes, and where each came from."""
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
        if _is_digit(code):  # as a hexadecimal escape, so that it prolongs no escape before the quotation
            put(index, *map(ord, "\\x3"), code) if opening else put(index, code)
        elif code >= 0x80 or _is_alpha(code):
            put(index, code)
        else:
            put(index, ord("\\"), code)
        opening = False
        index += 1
    return text, origin


def _is_digit(code: int) -> bool:
    return 0x30 <= code <= 0x39


def _is_octal(code: int) -> bool:
    return 0x30 <= code <= 0x37


def _is_hex(code: int) -> bool:
    return _is_digit(code) or 0x41 <= code <= 0x46 or 0x61 <= code <= 0x66


def _is_alpha(code: int) -> bool:
    return 0x41 <= code <= 0x5A or 0x61 <= code <= 0x7A
