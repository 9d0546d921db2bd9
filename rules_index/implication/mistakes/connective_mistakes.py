"""Mistakes in how AND, OR and NOT join comparisons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from rules_index.domains.values import ValueSet, union
from rules_index.implication.kinds import MISSING_BRACKETS, TRUE_UNLESS_NULL
from rules_index.implication.messages import quoted
from rules_index.implication.mistakes.mistake import Mistake
from rules_index.implication.mistakes.parsed_rule import ConstantComparison, ParsedRule, can_hold
from rules_index.language.coercion import is_decimal, is_integer, is_number
from rules_index.language.constants import clamp
from rules_index.language.formula import Predicate, Truth
from rules_index.language.nodes import Node
from rules_index.language.typed import Expression, Leaf

_MOST_PRUNED = 50
"""If there are more alternatives, a message names all of them, even those that are not needed."""


def missing_brackets(rule: ParsedRule) -> Iterator[Mistake]:
    """`a = 'x' OR a = 'y' AND b > 1`: an AND without brackets beside an OR that tests the same column."""
    for node in rule.of("or"):
        for place, child in enumerate(node.children):
            if child.kind != "and" or _has_brackets(rule, child):
                continue
            neighbours = [(place - 1, child.children[0], True), (place + 1, child.children[-1], False)]
            for other, member, before in neighbours:
                if not 0 <= other < len(node.children):
                    continue
                column = _column_asked(rule, node.children[other])
                alike = column is not None and column == _column_asked(rule, member)
                if alike and rule.words(member) != rule.words(node.children[other]):
                    yield _missing_brackets(rule, node.children[other], child, member, before)
                    break


def _missing_brackets(rule: ParsedRule, lone: Node, joined: Node, member: Node, before: bool) -> Mistake:
    first, last = (lone, joined) if before else (joined, lone)
    rest = [rule.words(each) for each in joined.children if each is not member]
    pair = [rule.words(lone), rule.words(member)] if before else [rule.words(member), rule.words(lone)]
    either = f"({' OR '.join(pair)})"
    wanted = " AND ".join([either, *rest] if before else [*rest, either])
    message = (
        f"AND binds before OR, so that {quoted(rule.words(lone))} alone is enough here, whatever "
        f"{quoted(' AND '.join(rest))} is. Write {quoted(wanted)}, or put the AND into brackets if it is meant so."
    )
    return rule.mistake(MISSING_BRACKETS, first, message, last)


def _has_brackets(rule: ParsedRule, node: Node) -> bool:
    kinds = rule.tokens.kinds
    return node.first > 0 and kinds[node.first - 1] == "(" and kinds[node.last + 1] == ")"


def _column_asked(rule: ParsedRule, node: Node) -> Leaf | None:
    """The column that a comparison by = or IN tests for a value; None for other nodes."""
    asked = (node.kind == "compare" and node.value == "=") or (node.kind == "in" and not node.value)
    if not asked or (node.kind == "compare" and rule.constant(node.children[1]) is None):
        return None
    return rule.leaf(node.children[0])


def true_unless_null(rule: ParsedRule) -> Iterator[Mistake]:
    """`c <> 'DE' OR c <> 'FR'`: alternatives on one value that are TRUE together for all but NULL."""
    whole = {each.node for each in rule.comparisons if _may_be_beyond(rule, each)}
    waiting = [(rule.root, True)]
    while waiting:
        node, wanted = waiting.pop()
        if node.kind == "not":
            waiting.append((node.children[0], not wanted))
        elif node.kind in ("and", "or"):
            if (node.kind == "or") == wanted:
                yield from _exhausted(rule, node.children, wanted)
            waiting += [(child, wanted) for child in reversed(node.children)]
        elif node.kind in ("compare", "in", "between") and node in whole:
            yield from _exhausted(rule, [node], wanted)


def _may_be_beyond(rule: ParsedRule, each: ConstantComparison) -> bool:
    """Whether a column may have values on one side only of the number that it is compared with."""
    leaf = rule.leaf(each.subject)
    if leaf is None or not (is_integer(leaf.type) or is_decimal(leaf.type)):
        return False
    return is_number(each.constant.type) and not can_hold(leaf, each.constant)


def _exhausted(rule: ParsedRule, alternatives: list[Node], wanted: bool) -> Iterator[Mistake]:
    """Finds alternatives on one attribute, at least one of which is TRUE (or FALSE, if not `wanted`) for each value
    except NULL."""
    groups: dict[Expression, list[tuple[Node, Predicate]]] = {}
    asked = [node for node in alternatives if node.kind in ("compare", "in", "between")]
    subjects = Counter(_subject(rule, node) for node in asked)
    for node in asked:
        formula = rule.formula(node) if len(alternatives) == 1 or subjects[_subject(rule, node)] > 1 else None
        if isinstance(formula, Predicate) and formula.null is Truth.NULL:
            groups.setdefault(formula.attribute, []).append((node, formula))
    for attribute, group in groups.items():
        if len(group) < min(2, len(alternatives)) or attribute.type is None:
            continue
        sets = [each.true if wanted else each.false for _, each in group]
        if not _is_all(sets, attribute.type) or clamp(sets[0], attribute.type).is_empty:
            continue
        for place in reversed(range(len(group) if len(group) <= _MOST_PRUNED else 0)):
            others = sets[:place] + sets[place + 1 :]
            if others and _is_all(others, attribute.type):
                del sets[place], group[place]
        nodes = [node for node, _ in group]
        value = rule.words(
            nodes[0].children[0] if rule.constant(nodes[0].children[0]) is None else nodes[0].children[1]
        )
        yield rule.mistake(TRUE_UNLESS_NULL, nodes[0], _exhausted_message(rule, nodes, value, wanted), nodes[-1])


def _is_all(sets: list[ValueSet], data_type: pa.DataType) -> bool:
    """Whether each value of a type, except NULL, is in one of the sets."""
    return clamp(~union(sets), data_type).is_empty


def _subject(rule: ParsedRule, node: Node) -> str:
    """The subject of a comparison, as it is in the text."""
    side = node.children[1] if node.children[0].kind == "literal" else node.children[0]
    return rule.words(side).lower()


def _exhausted_message(rule: ParsedRule, nodes: list[Node], value: str, wanted: bool) -> str:
    texts = [quoted(rule.words(node)) for node in nodes]
    if len(texts) == 1:
        return (
            f"{texts[0]} is {'TRUE' if wanted else 'FALSE'} for every value but NULL: no value lies on the other side "
            f"of the constant. Correct the constant, or write {quoted(f'{value} IS NOT NULL')} if that is meant."
        )
    joined, instead = ("OR", "AND") if wanted else ("AND", "OR")
    unequal = all(node.kind == "compare" and node.value == ("<>" if wanted else "=") for node in nodes)
    constants = [rule.words(node.children[1]) for node in nodes]
    suggestion = quoted(f"{value} {'NOT ' if wanted else ''}IN ({', '.join(constants)})") if unequal else f"{instead}"
    what = f"at least one of {' and '.join(texts)} is TRUE" if wanted else f"not all of {' and '.join(texts)} are TRUE"
    return (
        f"For every value but NULL {what}, so that they leave out nothing. Write {suggestion} in place of {joined}, or "
        f"{quoted(f'{value} IS NOT NULL')} if that is meant."
    )
