"""Texts that nobody would write: rules with tokens dropped, doubled, swapped, exchanged and nested, from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

from rules_index.errors import RuleError
from rules_index.language.tokens import tokenise

AROUND = (
    "NOT ({})",
    "({}) IS TRUE",
    "({}) IS NOT NULL",
    "({}) AND ({})",
    "({}) OR NOT ({})",
    "coalesce({}, {}) IS NULL",
    "nullif({}, {}) IS NULL",
    "if({}, {}, NULL)",
    "CASE WHEN {} THEN {} ELSE {} END",
    "CASE {} WHEN {} THEN TRUE END",
    "({}) = ({})",
    "({}) <=> ({})",
    "({}) IN ({}, {})",
    "({}) BETWEEN ({}) AND ({})",
    "CAST({} AS BOOLEAN)",
    "CAST({} AS STRING) LIKE '%'",
    "({}, {}) = ({}, {})",
    "equal_null({}, {})",
    "exists(array(1), x -> {})",
)
LITERALS = (
    "NULL",
    "TRUE",
    "0",
    "1",
    "-1",
    "128Y",
    "2147483648",
    "1e400",
    "'1e309'",
    "float('1e400')",
    "'0e38'",
    "'NaN'",
    "1.5",
    "0.99999999999999999999",
    "'epoch'",
    "DATE'epoch UTC'",
    "'999999-01-01'",
    "DATE'299999-01-01'",
    "'2024-01-01+800'",
    "TIMESTAMP'2024-01-01 00:00:00 Europe/Nowhere'",
    "X'00'",
    "''",
    "'%'",
    "INTERVAL '1' DAY",
    "CAST(NULL AS INT)",
    "array()",
    "named_struct('a', 1)",
    "map()",
    "concat()",
    "9223372036854775808",
    "99999999999999999999999999999999999999",
)


class Mutator:
    """Draws texts out of valid ones."""

    def __init__(self, texts: Sequence[str], seed: int) -> None:
        self.choice = random.Random(seed)
        self.texts = texts
        self.spellings = [_spellings(text) for text in texts]

    def text(self) -> str:
        """One text, changed in one to four places, or several of them nested."""
        if self.choice.random() < 0.25:
            return self._nested()
        tokens = list(self.choice.choice(self.spellings))
        for _ in range(self.choice.choice((1, 1, 1, 2, 2, 3, 4))):
            self._change(tokens)
        return " ".join(tokens)

    def _nested(self) -> str:
        text = self.choice.choice(self.texts)
        for _ in range(self.choice.choice((1, 1, 2, 3))):
            form = self.choice.choice(AROUND)
            while "{}" in form:
                filling = text if self.choice.random() < 0.6 else self.choice.choice(self.texts)
                form = form.replace("{}", filling, 1)
            text = form
        return text

    def _change(self, tokens: list[str]) -> None:
        at = self.choice.randrange(len(tokens)) if tokens else 0
        way = self.choice.randrange(7)
        if not tokens or way == 0:
            tokens.insert(at, self.choice.choice(LITERALS))
        elif way == 1:
            del tokens[at]
        elif way == 2:
            tokens.insert(at, tokens[at])
        elif way == 3:
            other = self.choice.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif way == 4:
            tokens[at] = self.choice.choice(LITERALS)
        elif way == 5:
            tokens[at] = self.choice.choice(self.choice.choice(self.spellings))
        else:
            end = self.choice.randrange(at, len(tokens)) + 1
            tokens[at:end] = ["(", *tokens[at:end], ")"]


def _spellings(text: str) -> list[str]:
    try:
        tokens = tokenise(text)
    except RuleError:
        return text.split()
    return [tokens.spelling(at) for at in range(len(tokens.kinds) - 1)]
