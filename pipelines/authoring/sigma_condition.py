"""Parses the condition of a Sigma rule, such as `selection and not 1 of filter_*`, over its searches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

from pipelines.authoring.conditions import Condition, Not, all_of, any_of
from pipelines.authoring.foreign import RefusedError

_TOKEN = re.compile(r"\s*(?:(?P<bracket>[()])|(?P<word>[^\s()|]+)|(?P<pipe>\|))")
_OF = re.compile(r"(?i)1|any|all")
_MOST_DEEP = 50


def condition_of(text: str, searches: Mapping[str, Condition]) -> Condition:
    """The condition that a text states; RefusedError if it cannot be parsed, or has an aggregation."""
    found = _Reader(text, searches)
    condition = found.alternatives()
    if found.ahead() is not None:
        raise found.error()
    return condition


class _Reader:
    """A recursive-descent parser of a condition: its words, and a position among them."""

    def __init__(self, text: str, searches: Mapping[str, Condition]) -> None:
        self.text, self.searches, self.position, self.depth = text, searches, 0, 0
        self.words: list[str] = []
        place = 0
        while text[place:].strip():
            token = _TOKEN.match(text, place)
            if token is None or token["pipe"]:
                raise RefusedError(
                    "AGGREGATION",
                    f"The condition {text!r:.120} counts events; a rule looks at one row at a time.",
                )
            self.words.append(token["bracket"] or token["word"])
            place = token.end()

    def ahead(self) -> str | None:
        """The next word in lower case; None at the end."""
        return self.words[self.position].lower() if self.position < len(self.words) else None

    def error(self) -> RefusedError:
        """The error of a condition that cannot be parsed at the current word."""
        word = self.words[self.position] if self.position < len(self.words) else "its end"
        return RefusedError("CONDITION", f"The condition {self.text!r:.120} cannot be read at {word}.")

    def alternatives(self) -> Condition:
        """Operands joined by OR."""
        parts = [self._conjunction()]
        while self.ahead() == "or":
            self.position += 1
            parts.append(self._conjunction())
        return any_of(parts)

    def _conjunction(self) -> Condition:
        parts = [self._negated()]
        while self.ahead() == "and":
            self.position += 1
            parts.append(self._negated())
        return all_of(parts)

    def _negated(self) -> Condition:
        negations = 0
        while self.ahead() == "not":
            self.position += 1
            negations += 1
        found = self._operand()
        return Not(found) if negations % 2 else found

    def _operand(self) -> Condition:
        word = self.ahead()
        if word is None or word in (")", "and", "or", "of"):
            raise self.error()
        self.position += 1
        if word == "(":
            self.depth += 1
            if self.depth > _MOST_DEEP:
                raise RefusedError("CONDITION", f"The condition has more than {_MOST_DEEP} brackets within each other.")
            found = self.alternatives()
            if self.ahead() != ")":
                raise self.error()
            self.position += 1
            self.depth -= 1
            return found
        if self.ahead() == "of":
            return self._of(word)
        name = self.words[self.position - 1]
        if name not in self.searches:
            raise RefusedError("CONDITION", f"The condition names {name}, and the detection has no such search.")
        return self.searches[name]

    def _of(self, count: str) -> Condition:
        self.position += 1
        pattern = self.words[self.position] if self.position < len(self.words) else None
        if pattern is None or not _OF.fullmatch(count):
            raise RefusedError(
                "CONDITION", f"`{count} of {pattern or ''}` is not supported; there are `1 of`, `any of` and `all of`."
            )
        self.position += 1
        if pattern.lower() == "them":
            names = [name for name in self.searches if not name.startswith("_")]
        else:
            names = [name for name in self.searches if fnmatchcase(name, pattern.replace("[", "[[]"))]
        if not names:
            raise RefusedError("CONDITION", f"The condition names {pattern}, and the detection has no such search.")
        parts = [self.searches[name] for name in names]
        return all_of(parts) if count == "all" else any_of(parts)
