"""The text of a part of a rule as it is passed to Spark."""

from __future__ import annotations

from rules_index.errors import RuleError
from rules_index.language.nodes import Node
from rules_index.language.tokens import TOKENS_A_STEP, Tokens

MAX_BRACKETS = 100
"""The deepest nesting of brackets in a text for Spark."""
MAX_OPERATORS = 1000
"""The most operators in a text for Spark, whose parser and planner recurse over chains of them."""

_OPENING = frozenset("([")
_CLOSING = frozenset(")]")
_CHAINED = frozenset(("AND", "OR", "+", "-", "*", "/", "||", "%", "|", "&", "^", "NOT", "[", "."))


def text_of(tokens: Tokens, node: Node) -> str:
    """The author's text for a node, without comments, and with a single blank wherever there is space between tokens.

    Raises `RuleError` if Spark could not process the text: `TOO_DEEP`, or `NOT_ALLOWED` for a variable in it.
    """
    tokens.work.spend((node.last - node.first) // TOKENS_A_STEP, tokens.starts[node.first])
    depth = deepest = chained = 0
    parts: list[str] = []
    behind = tokens.ends[node.first]
    for index in range(node.first, node.last + 1):
        kind = tokens.kinds[index]
        if kind in _OPENING:
            depth += 1
            deepest = max(deepest, depth)
        elif kind in _CLOSING:
            depth -= 1
        chained += kind in _CHAINED
        if tokens.starts[index] > behind:
            parts.append(" ")
        parts.append(_spelling(tokens, index))
        behind = tokens.ends[index]
    if deepest > MAX_BRACKETS or chained > MAX_OPERATORS:
        raise too_deep(tokens, node)
    return "".join(parts)


def too_deep(tokens: Tokens, node: Node) -> RuleError:
    """The error for a value that Spark's parser and planner could not recurse into."""
    return RuleError(
        "TOO_DEEP",
        f"This part is evaluated by Spark, which takes at most {MAX_BRACKETS} nested brackets and "
        f"{MAX_OPERATORS:,} operators in one value. Split it.",
        tokens.starts[node.first],
    )


def _spelling(tokens: Tokens, index: int) -> str:
    """One token's text; `${` in a string is escaped so that Spark substitutes no variable for it."""
    spelling = tokens.spelling(index)
    if "${" not in spelling:
        return spelling
    if spelling[0] not in "'\"":
        raise RuleError(
            "NOT_ALLOWED",
            "${...} would be replaced by a variable of the session here; write it in a plain string.",
            tokens.starts[index],
        )
    return spelling.replace("${", "\\u0024{")
