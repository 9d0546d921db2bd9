"""The parts of a rule's text that findings point to: alternatives between its ORs, and comparisons that NULL spoils."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.arrays import offsets_of
from rules_index.language.analyser import Analyser
from rules_index.language.build_formula import Splitter
from rules_index.language.constants import clamp
from rules_index.language.formula import And, Fixed, Formula, Not, Predicate, Truth
from rules_index.language.nodes import Node
from rules_index.language.parser import parse
from rules_index.language.scope import Scope
from rules_index.language.tokens import END, Tokens, tokenise
from rules_index.language.typed import Expression

_CLOSING_OF = {"(": ")", "[": "]", "CASE": "END"}
_CONNECTED = frozenset((")", "AND", "OR", END))
"""The tokens that may follow brackets which are ANDed or ORed with the rest of the rule."""
_HAS_OR = r"(?i)\bor\b"
_IS_NULL = r"(?i)\bis\s+(?:not\s+)?null\b"
_HAS_NULL = r"(?i)null|\btry_"
"""What a text contains, beside IS NULL, if it may compare with NULL."""
_MOST_PAIRS = 10_000
"""The most pairs of comparisons of one rule that are tested for excluding each other."""


@dataclass(frozen=True)
class Alternatives:
    """The alternatives of rules, in groups: those between the ORs of a whole rule, and those between the ORs in
    brackets that are ANDed or ORed with the rest of the rule.

    rule       [groups] int64, ascending
    is_whole   [groups] bool, whether the rule is TRUE wherever one of the group's alternatives is
    start      [groups + 1] int64, offsets into the next two
    texts      the text of each alternative
    positions  [.] int64, where it begins in the rule's text
    """

    rule: np.ndarray
    is_whole: np.ndarray
    start: np.ndarray
    texts: pa.LargeStringArray
    positions: np.ndarray


def alternatives_of(expressions: pa.LargeStringArray) -> Alternatives:
    """The alternatives of rules, all of which compile."""
    groups: list[tuple[int, bool, int]] = []
    texts: list[str] = []
    positions: list[int] = []
    for rule in np.flatnonzero(_matching(expressions, _HAS_OR)).tolist():
        text = expressions[rule].as_py()
        for is_whole, spans in _groups(tokenise(text)):
            groups.append((rule, is_whole, len(spans)))
            texts += [text[begin:end] for begin, end in spans]
            positions += [begin for begin, _ in spans]
    rules, whole, lengths = np.array(groups, np.int64).reshape(-1, 3).T
    return Alternatives(
        rules,
        whole.astype(bool),
        offsets_of(lengths),
        pa.array(texts, pa.large_string()),
        np.array(positions, np.int64),
    )


def _matching(expressions: pa.LargeStringArray, pattern: str) -> np.ndarray:
    """Which texts [rules] bool have a match of a pattern."""
    return np.asarray(pc.match_substring_regex(expressions, pattern))


@dataclass(slots=True)
class _Level:
    """The tokens between two brackets, or all tokens of a rule.

    opening: the bracket, or CASE, that they follow, "" for all; is_connected: whether the brackets are ANDed or ORed
    with the tokens around them; first: the index of the first token; alternatives: the index of the token behind each
    OR; betweens: the number of BETWEENs that still lack their AND.
    """

    opening: str
    is_connected: bool
    first: int
    alternatives: list[int] = field(default_factory=list)
    betweens: int = 0


_Spans: TypeAlias = list[tuple[int, int]]


def _groups(tokens: Tokens) -> Iterator[tuple[bool, _Spans]]:
    """Yields for each group of alternatives whether it is the whole rule, apart from brackets around it, and where each
    alternative begins and ends in the text."""
    kinds, connective = tokens.kinds, True
    levels = [_Level("", True, 0)]
    found: list[tuple[list[_Level], bool, _Spans]] = []
    for at, kind in enumerate(kinds):
        level = levels[-1]
        # behind a dot a keyword is a field's name
        if at and kinds[at - 1] == ".":
            connective = False
            continue
        if kind in _CLOSING_OF:
            levels.append(_Level(kind, kind == "(" and connective, at + 1))
        elif kind == END or kind == _CLOSING_OF.get(level.opening):
            level.is_connected &= kind == END or kinds[at + 1] in _CONNECTED
            if level.alternatives:
                first = [level.first, *level.alternatives]
                ends = [tokens.ends[behind - 2] for behind in level.alternatives]
                begins = [tokens.starts[place] for place in first]
                depth = len(levels) - 1
                is_whole = level.first == depth and at == len(kinds) - 1 - depth
                found.append(([*levels], is_whole, list(zip(begins, [*ends, tokens.ends[at - 1]], strict=True))))
            levels.pop()
        elif kind == "OR":
            level.alternatives.append(at + 1)
        level.betweens += kind == "BETWEEN"
        bounds = kind == "AND" and level.betweens > 0
        level.betweens -= bounds
        connective = kind in ("(", "AND", "OR") and not bounds
    for around, is_whole, spans in found:
        if all(level.is_connected for level in around):
            yield is_whole, spans


@dataclass(frozen=True, slots=True)
class NullComparison:
    """A comparison that NULL keeps from ever having the truth value that would make its rule TRUE.

    rule: the rule's number; begin, end: the comparison's position in its text; negated: whether it would have to be
    FALSE; always: whether it is NULL on every row. Otherwise it can be FALSE, or TRUE if negated.
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
        except MemoryError:
            raise
        except Exception:  # this rule gets no findings; the others still do
            continue


def _comparisons(node: Node) -> Iterator[tuple[Node, bool]]:
    """The operands of AND, OR and NOT, each with whether it has to be TRUE or FALSE for the rule to be TRUE."""
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
    """Whether a comparison contains NULL, and whether it contains something that can produce NULL, like NULLIF."""
    kinds = tokens.kinds[leaf.first : leaf.last + 1]
    return "NULL" in kinds, any("NULL" in kind or kind.startswith("TRY_") for kind in kinds)


def _never(formula: Formula, wanted: bool) -> bool:
    """Whether a formula is certainly TRUE (or, if not `wanted`, FALSE) on no row."""
    truth = Truth.TRUE if wanted else Truth.FALSE
    if isinstance(formula, Predicate):
        values = clamp(formula.true if wanted else formula.false, formula.attribute.type)
        return values.is_empty and formula.null is not truth
    if isinstance(formula, Fixed):
        return formula.truth is not truth
    if isinstance(formula, Not):
        return _never(formula.operand, not wanted)
    joined = (_never(operand, wanted) for operand in formula.operands)
    return any(joined) if isinstance(formula, And) == wanted else all(joined)


def conflict_of(text: str, scope: Scope) -> tuple[str, ...]:
    """One comparison that must be TRUE for a rule to be TRUE and never is, or two that must both be TRUE and cannot. ()
    if there are none, or the search takes too long. The rule must compile."""
    try:
        return _conflict_of(text, scope)
    except MemoryError:
        raise
    except Exception:  # the finding is reported without it
        return ()


def _conflict_of(text: str, scope: Scope) -> tuple[str, ...]:
    node, tokens = parse(text, scope.time_zone)
    splitter = Splitter(Analyser(tokens, scope))
    by_attribute: dict[Expression, list[tuple[str, Predicate]]] = {}
    tried = 0
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node.kind == "and":
            waiting += reversed(node.children)
            continue
        comparison = text[tokens.starts[node.first] : tokens.ends[node.last]]
        formula = splitter.formula(node)
        if _never(formula, True):
            return (comparison,)
        if not isinstance(formula, Predicate):
            continue
        earlier = by_attribute.setdefault(formula.attribute, [])
        tried += len(earlier)
        if tried > _MOST_PAIRS:
            return ()
        for other, earlier_formula in earlier:
            if _exclude(earlier_formula, formula):
                return other, comparison
        earlier.append((comparison, formula))
    return ()


def _exclude(one: Predicate, other: Predicate) -> bool:
    """Whether there is no row on which two predicates on one attribute are both TRUE."""
    both_null = one.null is Truth.TRUE and other.null is Truth.TRUE
    return not both_null and clamp(one.true & other.true, one.attribute.type).is_empty
