"""Unary tests of DMN (FEEL), the cells of a decision table, as conditions over a column.

| cell | |
|---|---|
| `-`, or nothing | anything |
| `"DE"`, `5`, `true`, `null`, `date("2026-01-01")`, `@"2026-01-01"` | this value |
| `< 5`, `<= 5`, `> 5`, `>= 5`, `= 5`, `!= 5` | a comparison |
| `[1..5]`, `(1..5)`, `]1..5[` | an interval with its ends, or without them |
| `1, 2, > 7` | any of them |
| `not(1, 2)` | none of them |
| `contains(?, "x")`, `starts with(?, "x")`, `ends with(?, "x")` | a part of a text |

A comparison with a missing value does not hold. A value may also be another column.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

from pipelines.authoring.conditions import TRUE, Condition, Not, Test, any_of, readable_literal
from pipelines.authoring.foreign import Column, RefusedError
from rules_index.arrays import is_text
from rules_index.language.coercion import name_of
from rules_index.language.evaluation.datetime_parser import parse_date, parse_timestamp

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<text>"(?:[^"\\]|\\.)*")
  | (?P<number>-?(?:\d+(?:\.\d+)?|\.\d+)(?!\.?\w*[A-Za-z]))
  | (?P<sign><=|>=|!=|\.\.|[<>=\[\](),?@-])
  | (?P<word>[^\W\d]\w*(?:\.\w+)*)
)""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{6})|(.))", re.DOTALL)
_ENDS = {"contains": "contains", "starts with": "startswith", "ends with": "endswith"}
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}
_AND = ("word", "and")


def unary_tests(text: str, column: Column, columns: Callable[[str], Column | None]) -> Condition:
    """The condition that a cell states about a column; `columns` gives other columns by name.

    RefusedError for a cell that is not one of the supported tests.
    """
    if text.strip() in ("", "-"):
        return TRUE
    found = _Reader(text, column, columns)
    condition = found.tests()
    if found.kind() is not None:
        raise found.error()
    return condition


class _Reader:
    """A recursive-descent parser of a cell: its tokens, and a position among them."""

    def __init__(self, text: str, column: Column, columns: Callable[[str], Column | None]) -> None:
        self.text, self.column, self.columns, self.position = text, column, columns, 0
        self.others: list[str] = []
        self.tokens: list[tuple[str, str]] = []
        place = 0
        while text[place:].strip():
            token = _TOKEN.match(text, place)
            if token is None:
                raise self.error()
            kind = str(token.lastgroup)
            self.tokens.append((kind, token[kind]))
            place = token.end()

    def kind(self, ahead: int = 0) -> str | None:
        """The next sign, or the kind of the next token if it is no sign; None at the end."""
        if self.position + ahead >= len(self.tokens):
            return None
        kind, spelling = self.tokens[self.position + ahead]
        return spelling if kind == "sign" else kind

    def error(self) -> RefusedError:
        """The error of a test that is not supported."""
        quotes = f' If a text is meant, write "{self.text}".' if re.fullmatch(r"\w+", self.text) else ""
        return RefusedError(
            "FEEL",
            f"The test {self.text!r:.120} is not supported; supported are values, comparisons, intervals, lists "
            f"of them, not(...), and parts of texts.{quotes}",
        )

    def take(self, *signs: str) -> str:
        """Consume one of these signs; RefusedError if another token is next."""
        if self.kind() not in signs:
            raise self.error()
        self.position += 1
        return self.tokens[self.position - 1][1]

    def tests(self) -> Condition:
        """Tests separated by commas, or NOT of such a list."""
        if self.kind() == "word" and self.tokens[self.position][1] == "not" and self.kind(1) == "(":
            self.position += 2
            inner = self._listed()
            self.take(")")
            return Not(inner)
        return self._listed()

    def _listed(self) -> Condition:
        parts = [self._test()]
        while self.kind() == ",":
            self.position += 1
            parts.append(self._test())
        return any_of(parts)

    def _test(self) -> Condition:
        kind = self.kind()
        if kind in ("<", "<=", ">", ">=", "=", "!="):
            self.position += 1
            return self._compared("<>" if kind == "!=" else str(kind), self._value())
        if kind in ("[", "(", "]") and self._is_interval():
            return self._interval()
        name = " ".join(spelling for _, spelling in self.tokens[self.position : self.position + 2])
        words = next((each for each in (name, name.split(" ")[0]) if each in _ENDS), None)
        if words is not None and self.kind(len(words.split())) == "(":
            return self._part(words)
        return self._compared("=", self._value())

    def _compared(self, operator: str, value: str) -> Condition:
        sql = self.column.sql
        if value == "NULL":
            is_null = Test(f"{sql} IS NULL", f"{sql} IS NOT NULL")
            if operator not in ("=", "<>"):
                raise self.error()
            return is_null if operator == "=" else Not(is_null)
        if operator == "<>":
            # in FEEL a missing value differs from every value
            return Not(self._holds(f"{sql} = {value}", f"{sql} <> {value}"))
        return self._holds(f"{sql} {operator} {value}", f"{sql} {_OPPOSITE[operator]} {value}")

    def _holds(self, sql: str, negated: str) -> Test:
        """A comparison of the column with values; it does not hold if the column, or one among the values, is NULL."""
        missing = [f"{each} IS NULL" for each in dict.fromkeys([self.column.sql, *self.others])]
        self.others.clear()
        return Test(sql, f"({' OR '.join([*missing, negated])})")

    def _is_interval(self) -> bool:
        depth = 0
        for _, spelling in self.tokens[self.position + 1 :]:
            depth += (spelling == "(") - (spelling == ")" and depth > 0)
            if spelling == "..":
                return True
            if spelling == ",":
                return False
        return False

    def _interval(self) -> Condition:
        opening = self.take("[", "(", "]")
        low = self._value()
        self.take("..")
        high = self._value()
        closing = self.take("]", ")", "[")
        if "NULL" in (low, high):
            raise self.error()
        sql = self.column.sql
        if (opening, closing) == ("[", "]"):
            return self._holds(f"{sql} BETWEEN {low} AND {high}", f"{sql} NOT BETWEEN {low} AND {high}")
        first, second = (">=" if opening == "[" else ">"), ("<=" if closing == "]" else "<")
        return self._holds(
            f"({sql} {first} {low} AND {sql} {second} {high})",
            f"{sql} {_OPPOSITE[first]} {low} OR {sql} {_OPPOSITE[second]} {high}",
        )

    def _part(self, words: str) -> Condition:
        self.position += len(words.split())
        self.take("(")
        self.take("?")
        self.take(",")
        value = self._checked(self._value(), "text")
        self.take(")")
        if value == "NULL":
            raise self.error()
        test = f"{_ENDS[words]}({self.column.sql}, {value})"
        return self._holds(test, f"NOT {test}")

    def _value(self) -> str:
        """A value as a literal, or another column."""
        kind = self.kind()
        if kind is None:
            raise self.error()
        spelling = self.tokens[self.position][1]
        self.position += 1
        if kind == "text":
            return self._checked(readable_literal(_unquoted(spelling)), "text")
        if kind == "number":
            return self._checked(spelling, "number")
        if kind == "-" and self.kind() == "number":
            self.position += 1
            return self._checked(f"-{self.tokens[self.position - 1][1]}", "number")
        if kind == "@" and self.kind() == "text":
            self.position += 1
            return self._time(_unquoted(self.tokens[self.position - 1][1]))
        if kind != "word":
            raise self.error()
        if spelling in ("true", "false"):
            return self._checked(spelling.upper(), "truth value")
        if spelling == "null":
            return "NULL"
        if spelling == "date" and (self.kind() == "(" or self.tokens[self.position : self.position + 1] == [_AND]):
            return self._called()
        other = self.columns(spelling) if self.kind() != "(" else None
        if other is None:
            raise self.error()
        self.others.append(other.sql)
        return other.sql if other.type == self.column.type else self._checked(other.sql, _kind_of(other.type))

    def _called(self) -> str:
        if self.tokens[self.position : self.position + 2] == [_AND, ("word", "time")]:
            self.position += 2
        self.take("(")
        if self.kind() != "text":
            raise self.error()
        self.position += 1
        value = self._time(_unquoted(self.tokens[self.position - 1][1]))
        self.take(")")
        return value

    def _time(self, text: str) -> str:
        plain = re.sub(r"(?<=\d)T(?=\d)", " ", text).replace("@", " ")  # FEEL writes a zone's name behind @
        if parse_date(plain) is not None and re.fullmatch(r"-?\d+-\d\d-\d\d", plain):
            return self._checked(f"DATE'{plain}'", "time")
        if parse_timestamp(plain) is None:
            raise RefusedError("FEEL", f"The text {text!r:.60} is neither a date nor a date and time.")
        return self._checked(f"TIMESTAMP'{plain}'", "time")

    def _checked(self, value: str, kind: str) -> str:
        """The value, if it has the kind of the column's type, so that Spark casts neither; else RefusedError."""
        if kind != _kind_of(self.column.type):
            raise RefusedError(
                "TYPE_MISMATCH",
                f"The column {self.column.sql} is {name_of(self.column.type)}, and the test {self.text!r:.80} asks for "
                f"a {kind}.",
            )
        return value


def _kind_of(data_type: pa.DataType) -> str:
    """What values of a type are, for people."""
    t = pa.types
    if is_text(data_type):
        return "text"
    if t.is_integer(data_type) or t.is_floating(data_type) or t.is_decimal(data_type):
        return "number"
    if t.is_boolean(data_type):
        return "truth value"
    return "time" if t.is_date(data_type) or t.is_timestamp(data_type) else f"value of the type {name_of(data_type)}"


def _unquoted(spelling: str) -> str:
    """The value of a text literal; a backslash before any other character stays. RefusedError for a code point that no
    text has."""
    escapes = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}

    def character(found: re.Match[str]) -> str:
        """The character that an escape sequence stands for."""
        code = found[1] or found[2]
        return chr(int(code, 16)) if code else escapes.get(found[3], found[0])

    try:
        # a pair of \u may stand for one character, as in UTF-16
        return _ESCAPE.sub(character, spelling[1:-1]).encode("utf-16", "surrogatepass").decode("utf-16")
    except ValueError:
        raise RefusedError("FEEL", f"The text {spelling!s:.60} has a code point that no text has.") from None
