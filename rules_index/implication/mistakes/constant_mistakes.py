"""Mistakes in the strings and numbers that columns are compared with: their spelling, unit or wildcards."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rules_index.implication.kinds import (
    NO_WILDCARD,
    NULL_TEXT,
    PADDED_TEXT,
    UNIT,
    UNKNOWN_VALUE,
)
from rules_index.implication.messages import quoted
from rules_index.implication.mistakes.known_values import KnownValues
from rules_index.implication.mistakes.mistake import Mistake
from rules_index.implication.mistakes.parsed_rule import EQUALITIES, ConstantComparison, ParsedRule
from rules_index.language.coercion import STRING, is_decimal, is_float, is_number
from rules_index.language.nodes import Node
from rules_index.names import quoted_text

_LEAST_ROWS, _MOST_LISTED = 1_000, 20
"""A value that no known one resembles is reported only for a source of at least so many rows, and a column of at most
so many distinct values."""
_PERCENT = frozenset(("pct", "percent", "percentage", "perc", "prozent"))
_FRACTION = frozenset(("probability", "prob", "fraction"))
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_LEAST_PERCENT = 10.0
"""A column of percents has at least one value that is at least this."""
_FEW_ROWS = 20
"""Of a column with fewer known rows than this, its name alone says whether it is in percent."""


def spellings(rule: ParsedRule) -> Iterator[Mistake]:
    """Strings that no row has, that begin or end with a blank, or that are 'NULL'; at most one finding for each."""
    for each in rule.comparisons:
        if each.operator not in EQUALITIES or each.constant.type != STRING:
            continue
        known = rule.known(each.subject)
        value = rule.value(each.subject)
        if value is None or value.type != STRING:
            continue
        text = str(each.constant.value)
        if known is not None and known.texts is not None and text in known.texts:
            continue
        mistake = _null_text(rule, each, text) or _padded(rule, each, text, known) or _unknown(rule, each, text, known)
        if mistake is not None:
            yield mistake
    yield from _keys(rule)


def _null_text(rule: ParsedRule, each: ConstantComparison, text: str) -> Mistake | None:
    if text.strip().lower() != "null" or rule.leaf(each.subject) is None:
        return None
    name = rule.words(each.subject)
    test = f"{name} IS {'NOT ' if each.operator == '<>' else ''}NULL"
    message = (
        f"{rule.words(each.constant_node)} is a text of {len(text)} letters, not NULL: {quoted(name)} is compared with "
        f"that word. Write {quoted(test)}."
    )
    return rule.mistake(NULL_TEXT, each.node, message)


def _padded(rule: ParsedRule, each: ConstantComparison, text: str, known: KnownValues | None) -> Mistake | None:
    plain = text.strip()
    if plain == text or not plain or rule.leaf(each.subject) is None or plain in rule.literals:
        return None
    where = "at its end" if text.startswith(plain) else "at its beginning" if text.endswith(plain) else "at its ends"
    meant = known.near(text) if known is not None else None
    message = (
        f"{rule.words(each.constant_node)} has a blank {where}, and a text without it is a different one. Write "
        f"{quoted_text(meant if meant is not None else plain)}, or trim({rule.words(each.subject)}) where the column "
        "has blanks too."
    )
    return rule.mistake(PADDED_TEXT, each.node, message)


def _unknown(rule: ParsedRule, each: ConstantComparison, text: str, known: KnownValues | None) -> Mistake | None:
    if known is None or known.texts is None:
        return None
    name, near = rule.words(each.subject), known.near(text)
    if near is not None and near not in rule.literals:
        message = (
            f"{_looked_at(known)} {quoted(name)} = {rule.words(each.constant_node)}, and some have "
            f"{quoted_text(near)}. Write {quoted_text(near)} if that is meant; letters, accents and blanks all count."
        )
        return rule.mistake(UNKNOWN_VALUE, each.node, message)
    # of a list, others of its values may be those that exist
    is_alone = each.node.kind == "compare" or (each.node.kind == "in" and len(each.node.children) == 2)
    return _of_few(rule, each, known) if near is None and is_alone else None


def _of_few(rule: ParsedRule, each: ConstantComparison, known: KnownValues) -> Mistake | None:
    """Reports a value that is not among a column's few values, if all of these are known."""
    texts = known.texts or frozenset()
    if not known.complete or known.rows < _LEAST_ROWS or not 0 < len(texts) <= _MOST_LISTED:
        return None
    listed = ", ".join(map(quoted_text, sorted(texts)))
    name, constant = rule.words(each.subject), rule.words(each.constant_node)
    message = (
        f"{_looked_at(known)} {quoted(name)} = {constant}; its values are {listed}. Correct the text, or leave it "
        "if such rows will still come."
    )
    return rule.mistake(UNKNOWN_VALUE, each.node, message)


def _looked_at(known: KnownValues) -> str:
    rows = f"{known.rows:,} rows"
    return f"None of the source's {rows} has" if known.complete else f"None of the {rows} that were looked at has"


def _keys(rule: ParsedRule) -> Iterator[Mistake]:
    """`labels['segmnt']` and `array_contains(flags, 'vpm')`: keys of maps and items of arrays that no row has."""
    for node in rule.of("subscript", "call"):
        if node.kind == "call" and (node.value not in _LOOK_UPS or len(node.children) != 2):
            continue
        holder, key = node.children
        known, constant = rule.known(holder), rule.constant(key)
        if known is None or known.texts is None or constant is None or constant.type != STRING:
            continue
        text = str(constant.value)
        near = known.near(text)
        if text in known.texts or near in rule.literals:
            continue
        few = known.complete and known.rows >= _LEAST_ROWS and 0 < len(known.texts) <= _MOST_LISTED
        if near is None and not few:
            continue
        what = "item" if node.value in ("array_contains", "array_position") else "key"
        suggestion = (
            f"Write {quoted_text(near)}" if near is not None else f"Its {what}s are {_listed(known)}: correct it"
        )
        message = (
            f"{_looked_at(known)} the {what} {rule.words(key)} in {quoted(rule.words(holder))}. {suggestion}, or leave "
            "the rule if such rows will still come."
        )
        yield rule.mistake(UNKNOWN_VALUE, node, message)


_LOOK_UPS = frozenset(("element_at", "try_element_at", "map_contains_key", "array_contains", "array_position"))


def _listed(known: KnownValues) -> str:
    return ", ".join(map(quoted_text, sorted(known.texts or ())))


def wildcards(rule: ParsedRule) -> Iterator[Mistake]:
    """`LIKE 'mail'`: a pattern that only the same string matches."""
    for node in rule.of("like"):
        word, negated, quantifier, escape = node.value
        if word != "LIKE":
            continue
        for pattern in node.children[1:]:
            constant = rule.constant(pattern)
            text = str(constant.value) if constant is not None else None
            if text is None or _has_wildcard(text, escape):
                continue
            message = _without(rule, node, pattern, text, negated)
            if quantifier is None or "*" in text:
                yield rule.mistake(NO_WILDCARD, node if quantifier is None else pattern, message)


def _has_wildcard(pattern: str, escape: str) -> bool:
    at = 0
    while at < len(pattern):
        if pattern[at] in "%_" and pattern[at] != escape:
            return True
        at += 2 if pattern[at] == escape else 1
    return False


def _without(rule: ParsedRule, node: Node, pattern: Node, text: str, negated: bool) -> str:
    name, shown = rule.words(node.children[0]), rule.words(pattern)
    if "*" in text:
        return (
            f"{shown} has no wildcard: those of LIKE are % for any text and _ for one character, and * is an "
            f"ordinary character. Write {quoted_text(text.replace('*', '%'))}."
        )
    equal = f"{name} {'<>' if negated else '='} {shown}"
    return (
        f"{shown} has no wildcard, so LIKE matches only exactly this text. Write {quoted_text(f'%{text}%')} for texts "
        f"that contain it, or {quoted(equal)}."
    )


def units(rule: ParsedRule) -> Iterator[Mistake]:
    """A fraction where the column has percents, or percents where it has fractions."""
    for each in rule.comparisons:
        leaf = rule.leaf(each.subject)
        if leaf is None or not is_number(leaf.type) or not is_number(each.constant.type):
            continue
        scale = each.constant.type.scale if is_decimal(each.constant.type) else 0
        number = float(each.constant.value) / 10**scale
        name, known = leaf.name.rsplit(".", 1)[-1], rule.known(each.subject)
        is_exact = not (is_float(leaf.type) or is_decimal(leaf.type))
        shown, constant = quoted(rule.words(each.subject)), rule.words(each.constant_node)
        if 0 < number < 1 and _has_percents(name, known):
            message = (
                f"{shown} is in percent{_range(known)}, and {constant} is less than one percent. Write "
                f"{_plain(number * 100)} for {_plain(number * 100)} %."
            )
            yield rule.mistake(UNIT, each.node, message)
        elif 1 < number <= 100 and not is_exact and _has_fractions(name, known):
            message = (
                f"{shown} is a fraction of 1{_range(known)}, and {constant} is beyond all of them. Write "
                f"{_plain(number / 100)} for {_plain(number)} %."
            )
            yield rule.mistake(UNIT, each.node, message)


def _has_percents(name: str, known: KnownValues | None) -> bool:
    named = bool(_PERCENT & _words(name))
    if known is None or known.low is None or known.high is None:
        return named
    if known.high <= 1 or known.low < -100:
        return False
    if named:
        return known.high >= _LEAST_PERCENT or known.rows < _FEW_ROWS
    plain = known.low >= 0 and _LEAST_PERCENT * 2 <= known.high <= 100
    return plain and known.rows >= _LEAST_ROWS and not known.has_fraction and bool(_SHARES & _words(name))


_SHARES = frozenset(("share", "rate", "ratio", "utilisation", "utilization", "load", "usage", "score", "discount"))


def _has_fractions(name: str, known: KnownValues | None) -> bool:
    if known is None or known.low is None or known.high is None:
        return bool(_FRACTION & _words(name))
    return known.low >= 0 and known.high <= 1 and known.has_fraction


def _range(known: KnownValues | None) -> str:
    if known is None or known.low is None or known.high is None:
        return ""
    return f", from {_plain(known.low)} to {_plain(known.high)}"


def _words(name: str) -> frozenset[str]:
    return frozenset(each.lower() for each in _WORDS.findall(name))


def _plain(number: float) -> str:
    return f"{number:.6g}"
