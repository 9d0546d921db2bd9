"""Where in a rule's text a finding points: the alternatives between its ORs, and comparisons that NULL spoils."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.errors import RuleError
from rules_index.expressions.analyser import Analyser
from rules_index.expressions.constants import clamp
from rules_index.expressions.formula import And, Fixed, Formula, Not, Predicate, Truth
from rules_index.expressions.parser import parse
from rules_index.expressions.predicates import Splitter
from rules_index.expressions.scope import Scope
from rules_index.expressions.syntax import Node
from rules_index.expressions.tokens import Tokens, tokenise

_OPENING, _CLOSING = frozenset(("(", "[", "CASE")), frozenset((")", "]", "END"))
_HAS_OR = r"(?i)\bor\b"
_IS_NULL = r"(?i)\bis\s+(?:not\s+)?null\b"
_HAS_NULL = r"(?i)null|\btry_"
"""What a text has if one of its comparisons may be with NULL, beside IS NULL."""


@dataclass(frozen=True)
class Alternatives:
    """What stands between the ORs of rules, brackets around the whole rule left out; of a rule without OR nothing.

    start      [rules + 1] int64 into the others
    texts      of each alternative
    positions  [.] int64, where it begins in the rule's text
    """

    start: np.ndarray
    texts: pa.LargeStringArray
    positions: np.ndarray


def alternatives_of(expressions: pa.LargeStringArray) -> Alternatives:
    """The alternatives of rules, all of which compile."""
    count = np.zeros(len(expressions), np.int64)
    texts: list[str] = []
    positions: list[int] = []
    for rule in np.flatnonzero(_matching(expressions, _HAS_OR)).tolist():
        text = expressions[rule].as_py()
        spans = _spans(tokenise(text))
        count[rule] = len(spans)
        texts += [text[begin:end] for begin, end in spans]
        positions += [begin for begin, _ in spans]
    start = np.concatenate([[0], np.cumsum(count)])
    return Alternatives(start, pa.array(texts, pa.large_string()), np.array(positions, np.int64))


def _matching(expressions: pa.LargeStringArray, pattern: str) -> np.ndarray:
    """Which texts [rules] bool have something that fits a pattern."""
    return np.asarray(pc.match_substring_regex(expressions, pattern))


def _spans(tokens: Tokens) -> list[tuple[int, int]]:
    """Where each alternative begins and ends; none where there is only one."""
    kinds = tokens.kinds
    first, last = 0, len(kinds) - 1
    while True:
        found = []
        begin, depth, closed_at = first, 0, last
        for at in range(first, last):
            kind = kinds[at]
            # behind a dot a keyword is a field's name
            if at and kinds[at - 1] == ".":
                continue
            if kind in _OPENING:
                depth += 1
            elif kind in _CLOSING and depth:
                depth -= 1
                closed_at = at if depth == 0 and closed_at == last else closed_at
            elif kind == "OR" and depth == 0:
                found.append((tokens.starts[begin], tokens.ends[at - 1]))
                begin = at + 1
        if found:
            return [*found, (tokens.starts[begin], tokens.ends[last - 1])]
        if last - first < 2 or kinds[first] != "(" or closed_at != last - 1:
            return []
        first, last = first + 1, last - 1


@dataclass(frozen=True, slots=True)
class NullComparison:
    """A comparison that NULL keeps from ever being what makes its rule TRUE.

    rule: the place among the rules; begin, end: of its text in the rule's; negated: whether it would have to be FALSE;
    always: whether it is NULL on every row, not only where it is not FALSE (or TRUE, if negated).
    """

    rule: int
    begin: int
    end: int
    negated: bool
    always: bool


def null_comparisons(expressions: pa.LargeStringArray, scope: Scope) -> Iterator[NullComparison]:
    """The comparisons with NULL of rules, all of which compile: `a = NULL`, `a NOT IN (1, NULL)`, ..."""
    rest = pc.replace_substring_regex(expressions, _IS_NULL, "")
    for rule in np.flatnonzero(_matching(rest, _HAS_NULL)).tolist():
        try:
            node, tokens = parse(expressions[rule].as_py(), scope.time_zone)
            splitter = Splitter(Analyser(tokens, scope))
            for leaf, wanted in _comparisons(node):
                named, hinted = _names_null(tokens, leaf)
                formula = splitter.formula(leaf) if named or hinted else Fixed(Truth.TRUE)
                always = _never(formula, wanted) and _never(formula, not wanted)
                if always or (named and _never(formula, wanted)):
                    yield NullComparison(rule, tokens.starts[leaf.first], tokens.ends[leaf.last], not wanted, always)
        except RuleError:
            continue


def _comparisons(node: Node) -> Iterator[tuple[Node, bool]]:
    """What AND, OR and NOT join, and whether it is to be TRUE, or FALSE, for the rule to be TRUE."""
    waiting = [(node, True)]
    while waiting:
        node, wanted = waiting.pop()
        if node.kind in ("and", "or"):
            waiting += [(child, wanted) for child in reversed(node.children)]
        elif node.kind == "not":
            waiting.append((node.children[0], not wanted))
        else:
            yield node, wanted


def _names_null(tokens: Tokens, leaf: Node) -> tuple[bool, bool]:
    """Whether a comparison has NULL in it, and whether it has what may make one, like NULLIF."""
    kinds = tokens.kinds[leaf.first : leaf.last + 1]
    return "NULL" in kinds, any("NULL" in kind or kind.startswith("TRY_") for kind in kinds)


def _never(formula: Formula, wanted: bool) -> bool:
    """Whether a formula is sure to be TRUE, or, if not `wanted`, FALSE, on no row."""
    truth = Truth.TRUE if wanted else Truth.FALSE
    if isinstance(formula, Predicate):
        return (formula.true if wanted else formula.false).is_empty and formula.null is not truth
    if isinstance(formula, Fixed):
        return formula.truth is not truth
    if isinstance(formula, Not):
        return _never(formula.operand, not wanted)
    joined = (_never(operand, wanted) for operand in formula.operands)
    return any(joined) if isinstance(formula, And) == wanted else all(joined)


def conflict_of(text: str, scope: Scope) -> tuple[str, str] | None:
    """Two comparisons of a rule, which compiles, that must both hold and cannot; None where no two alone are such."""
    node, tokens = parse(text, scope.time_zone)
    splitter = Splitter(Analyser(tokens, scope))
    met: list[tuple[str, Predicate]] = []
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node.kind == "and":
            waiting += reversed(node.children)
            continue
        formula = splitter.formula(node)
        if not isinstance(formula, Predicate):
            continue
        mine = text[tokens.starts[node.first] : tokens.ends[node.last]]
        for other, known in met:
            if known.attribute == formula.attribute and _exclude(known, formula):
                return other, mine
        met.append((mine, formula))
    return None


def _exclude(one: Predicate, other: Predicate) -> bool:
    """Whether two predicates on one attribute are TRUE together nowhere."""
    both_null = one.null is Truth.TRUE and other.null is Truth.TRUE
    return not both_null and clamp(one.true & other.true, one.attribute.type).is_empty
