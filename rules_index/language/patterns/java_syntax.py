"""Parses the syntax of java.util.regex, character for character as Java's own parser does.

Constructs that no linear-time engine can implement are refused.
"""

from __future__ import annotations

from typing import NoReturn

from rules_index.domains.values import ValueSet, points
from rules_index.language.patterns import code_points as cp
from rules_index.language.patterns.cursor import DEPTH_LIMIT, END, Flags, is_alpha, is_digit
from rules_index.language.patterns.java_classes import SetReader
from rules_index.language.patterns.syntax import EMPTY, Assertion, Characters, Choice, Node, Place, Repeat, Sequence
from rules_index.work_budget import Work

_PAIR = Sequence((Characters(points((0x0D,))), Characters(points((0x0A,)))))
_LINE_BREAK = Choice((_PAIR, Characters(cp.VERTICAL_SPACE)))
_WHOLE_LINE_BREAK = Choice(
    (_PAIR, Sequence((Characters(cp.VERTICAL_SPACE), Assertion(Place.INSIDE_PAIR, negated=True))))
)
r"""What \R matches before a quantifier, where Java never gives back half of a \r\n pair."""


def parse(pattern: str, work: Work | None = None) -> Node:
    """The syntax tree of a java.util.regex pattern. Raises `RuleError` (`PATTERN`) if it is refused or malformed."""
    return _PatternParser(pattern, work or Work()).whole()


class _PatternParser(SetReader):
    def whole(self) -> Node:
        """The whole pattern."""
        node = self.expression()
        if self.cursor != self.length:
            self.fail("this ')' closes no group" if self.peek() == ord(")") else "it cannot be read further")
        return node

    # Expressions

    def expression(self) -> Node:
        """Alternatives that '|' separates."""
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
        """Items in a row, up to '|', ')' or the end."""
        items: list[Node] = []
        while True:
            code = self.peek()
            if code in (ord("|"), ord(")")) or (code == END and self.cursor >= self.length):
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
        """Reads one element that a quantifier can follow, other than a group."""
        if code == ord("["):
            return self.characters(self.character_class(True))
        if code == ord("\\"):
            if self.at(self.cursor + 1) in (ord("p"), ord("P")):
                self.next_escaped()
                return self.characters(self.property())
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
        if code == ord("{"):  # Java reads it as the quantifier of an empty literal
            return EMPTY
        self.next()
        return self.literal(code)

    def dollar(self, multi: bool) -> Node:
        """What '$' asserts under the flags: the end of every line if `multi`, else the end of the string."""
        if "d" in self.flags:
            return Assertion(Place.DOLLAR_MULTI_UNIX if multi else Place.DOLLAR_UNIX)
        return Assertion(Place.DOLLAR_MULTI if multi else Place.DOLLAR)

    def dot(self) -> ValueSet:
        """What '.' matches under the flags."""
        if "s" in self.flags:
            return cp.ALL
        return cp.complement(points((0x0A,)) if "d" in self.flags else cp.LINE_TERMINATORS)

    def literal(self, code: int) -> Node:
        """A character as itself, in any case under the flag i."""
        return Characters(self.single(code))

    def quantified(self, node: Node) -> Node:
        """The item, repeated if a quantifier stands behind it."""
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
        return Repeat(_WHOLE_LINE_BREAK if node is _LINE_BREAK else node, low, high, code == ord("?"))

    def counts(self) -> tuple[int, int | None]:
        """The bounds of `{n}`, `{n,}` or `{n,m}`; leaves the cursor at the closing brace."""
        code = self.skip()
        if not is_digit(code):
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
        """A decimal number whose first digit has been read, and the code point behind it."""
        value = 0
        while is_digit(code):
            value = value * 10 + code - ord("0")
            code = self.read()
        if value > 0x7FFFFFFF:
            self.fail("a counted repetition is too large", 1)
        return value, code

    # Groups

    def group(self) -> Node | None:
        """Reads a group from its '('. Returns None for flags alone, as in `(?i)`."""
        start, saved, number = self.cursor, self.flags, 0
        if self.next() == ord("?"):
            code = self.skip()
            if code in map(ord, "=!>"):
                self.refuse_group(start, "atomic groups" if code == ord(">") else "look-ahead")
            if code == ord("<"):
                code = self.read()
                if code in map(ord, "=!"):
                    self.refuse_group(start, "look-behind")
                self.group_name(code)
                number = self.new_group()
            elif code != ord(":"):
                self.unread()
                if self.inline_flags():
                    return None
        else:
            number = self.new_group()
        node = self.expression()
        if self.read() != ord(")"):
            self.cursor = start
            self.fail("this group lacks its ')'")
        self.flags = saved
        return Sequence((node,), number)  # even around a single set: Java repeats a group differently from a set

    def new_group(self) -> int:
        """The number of the capturing group that begins here."""
        self.groups += 1
        return self.groups

    def refuse_group(self, start: int, construct: str) -> NoReturn:
        """Fails at a group's start."""
        self.cursor = start
        self.fail(f"{construct} cannot be matched in linear time; write the pattern without")

    def group_name(self, code: int) -> None:
        """Reads a group's name, of which `code` is the first letter. Fails if another group has the same name."""
        letters = []
        if not is_alpha(code):
            self.fail("a group's name must start with a letter from a to z", 1)
        while is_alpha(code) or is_digit(code):
            letters.append(chr(code))
            code = self.read()
        if code != ord(">"):
            self.fail("a group's name lacks its '>'", 1)
        name = "".join(letters)
        if name in self.names:
            self.fail(f"two groups are named '{name}'", 1)
        self.names.add(name)

    def inline_flags(self) -> bool:
        """Reads flags up to ':' (returns False) or ')' (returns True)."""
        adding = True
        while True:
            code = self.peek()
            letter = chr(code)
            if letter == "-" and adding:
                adding = False
            elif letter in "imsduxU" and code != END:
                more = frozenset(letter if letter != "U" else "Uu")
                self.flags = Flags(self.flags.on | more if adding else self.flags.on - more)
            elif letter == "c":
                self.fail("the flag 'c' (canonical equivalence) is not supported")
            else:
                break
            self.next()
        code = self.read()
        if code not in map(ord, ":)"):
            self.fail("after '(?' comes something that is neither a flag nor a kind of group", 1)
        return code == ord(")")

    # Escapes

    def escaped_item(self) -> Node:
        """An item that begins with a backslash."""
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
            if self.peek() == ord("{") and self.at(self.cursor + 1) == ord("g"):
                self.fail("\\b{g} (grapheme boundaries) is not supported")
            return Assertion(self.word_edge())
        if letter == "X":
            self.fail("\\X (grapheme clusters) is matched atomically by Java, which is not supported")
        if letter == "k" or letter in "123456789":
            self.fail("back-references cannot be matched in linear time; write the pattern without")
        value = self.escape(False)
        return Characters(value) if isinstance(value, ValueSet) else self.literal(value)

    def word_edge(self) -> Place:
        """What '\\b' asserts under the flags."""
        return Place.WORD_EDGE_UNICODE if "U" in self.flags else Place.WORD_EDGE
