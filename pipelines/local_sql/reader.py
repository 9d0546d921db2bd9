"""Reads the tokens of a statement: names, tables, and the texts of expressions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from pipelines.errors import NeedsSparkError
from pipelines.local_sql.syntax import Path, TableName
from rules_index.language import literals
from rules_index.language.tokens import END, NUMBER, QUOTED_NAME, STRING, Tokens, words

NO_NAMES = words(
    "SELECT FROM WHERE GROUP ORDER BY LIMIT HAVING DISTINCT ALL AS ON USING JOIN LEFT RIGHT FULL INNER CROSS NATURAL "
    "SEMI ANTI UNION EXCEPT MINUS INTERSECT LATERAL WINDOW OVER FILTER NULL TRUE FALSE CASE CAST NOT EXISTS INTERVAL "
    "DATE TIMESTAMP TIMESTAMP_NTZ ARRAY MAP STRUCT CURRENT_DATE CURRENT_TIMESTAMP CURRENT_USER CURRENT_TIME "
    "LOCALTIMESTAMP SESSION_USER USER DEFAULT VALUES SET TABLE OFFSET QUALIFY SORT CLUSTER DISTRIBUTE TABLESAMPLE "
    "PIVOT UNPIVOT WITH"
)
"""Words that Spark may read as something else than a name; a column with such a name needs back-quotes."""
_LARGEST = (1 << 31) - 1
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_T = TypeVar("_T")


class Reader:
    """A recursive-descent parser of a statement; `position` is the index of the next token."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens, self.position = tokens, 0

    @property
    def kind(self) -> str:
        """The kind of the next token."""
        return self.tokens.kinds[self.position]

    @property
    def is_qualified(self) -> bool:
        """True if a dot follows the next token."""
        return "." in self.tokens.kinds[self.position + 1 : self.position + 2]

    def takes(self, *kinds: str) -> bool:
        """Consume the next tokens if they are of these kinds; returns whether they were."""
        if tuple(self.tokens.kinds[self.position : self.position + len(kinds)]) != kinds:
            return False
        self.position += len(kinds)
        return True

    def expect(self, *kinds: str) -> None:
        """Like `takes`, but NeedsSparkError if the next tokens are others."""
        if not self.takes(*kinds):
            raise NeedsSparkError(f"it has {self.kind or 'an end'} where only Spark knows what that means")

    def listed(self, item: Callable[[], _T]) -> tuple[_T, ...]:
        """Items separated by commas."""
        found = [item()]
        while self.takes(","):
            found.append(item())
        return tuple(found)

    def table(self, versioned: bool = False) -> TableName:
        """A table's name, with the version if `versioned` allows one."""
        name, is_path = self.name(), False
        if self.takes("."):
            is_path = name.lower() == "delta" and self.kind == QUOTED_NAME
            name = self.name()
            if not is_path or not name.startswith("/"):
                raise NeedsSparkError("it names a table of a catalog")
        version = self.number() if versioned and self.takes("VERSION", "AS", "OF") else None
        return TableName(name, is_path, version)

    def expression(self, ends: frozenset[str], stops: str = "") -> str:
        """The text up to the first word of `ends`, or character of `stops`, outside of brackets."""
        start, depth = self.position, 0
        while self.kind != END and not (depth == 0 and self.is_at(ends, stops)):
            depth += (self.kind in ("(", "[")) - (self.kind in (")", "]"))
            self.position += 1
        if self.position == start or depth:
            raise NeedsSparkError("it lacks an expression")
        return self.tokens.text[self.tokens.starts[start] : self.tokens.ends[self.position - 1]]

    def is_at(self, ends: frozenset[str], stops: str) -> bool:
        """True at a word of `ends`, a character of `stops`, or the end."""
        return self.kind in ends or self.kind == END or self.kind in stops

    @property
    def is_name(self) -> bool:
        """True if the next token is a name: a word without another meaning, or any name in back-quotes."""
        spelling = self.tokens.spelling(self.position)
        is_word = self.kind not in (STRING, NUMBER, END) and self.kind not in NO_NAMES and _WORD.fullmatch(spelling)
        return self.kind == QUOTED_NAME or bool(is_word)

    def name(self) -> str:
        """A name: a word without another meaning, or any name in back-quotes."""
        if not self.is_name:
            spelling = self.tokens.spelling(self.position)
            raise NeedsSparkError(f"it has {spelling or 'an end'} where a name is expected")
        self.position += 1
        return self.tokens.name(self.position - 1)

    def alias(self) -> str:
        """An alias."""
        self.takes("AS")
        return self.name()

    def path(self) -> Path:
        """A column, or a field within it."""
        found = [self.name()]
        while self.kind == "." and self.tokens.kinds[self.position + 1] != "*":
            self.position += 1
            found.append(self.name())
        return tuple(found)

    def number(self) -> int:
        """An unsigned INT."""
        spelling = self.tokens.spelling(self.position)
        if self.kind != NUMBER or not spelling.isdecimal():
            raise NeedsSparkError(f"it has {spelling or 'an end'} where a whole number is expected")
        self.position += 1
        found = int(literals.number(spelling, 0).value)
        if found > _LARGEST:
            raise NeedsSparkError(f"{found} is not an INT, which Spark asks for")
        return found
