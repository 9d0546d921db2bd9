"""Suggestions for texts that parse but have wrong types: dates without quotes, arrays compared with a string, ..."""

from __future__ import annotations

import re

import pyarrow as pa

from rules_index.errors import RuleError
from rules_index.language.analyser import Analyser
from rules_index.language.coercion import BOOLEAN, DATE, Type, is_integer, is_nested
from rules_index.language.nodes import Node, inside, words_of
from rules_index.language.parser import parse
from rules_index.language.scope import Scope
from rules_index.language.tokens import Tokens
from rules_index.language.type_names import TIMESTAMP, TIMESTAMP_NTZ
from rules_index.names import back_quoted

_DATE = re.compile(r"(\d{4})\s*[-/.]\s*(\d{1,2})\s*[-/.]\s*(\d{1,2})|(\d{4})(\d\d)(\d\d)")
_TIMES = {DATE: "DATE", TIMESTAMP: "TIMESTAMP", TIMESTAMP_NTZ: "TIMESTAMP_NTZ"}


def type_suggestion(error: RuleError, text: str, scope: Scope) -> str | None:
    """A sentence on what to write instead, for a type error in a text that parses; None if there is no suggestion."""
    node, tokens = parse(text, scope.time_zone)
    analyser = Analyser(tokens, scope)
    if error.error == "NOT_BOOLEAN":
        return _of_alternative(node, tokens, error.position)
    if error.error != "TYPE_MISMATCH":
        return None
    for each in inside(node):
        if each.kind in ("compare", "in", "between", "distinct") and tokens.starts[each.first] == error.position:
            suggestion = _of_comparison(each, analyser)
            if suggestion is not None:
                return suggestion
    return None


def _type(analyser: Analyser, node: Node) -> Type:
    try:
        return analyser.value(node).type
    except RuleError:
        return None


def _of_comparison(node: Node, analyser: Analyser) -> str | None:
    tokens = analyser.tokens
    types = [_type(analyser, child) for child in node.children]
    texts = [words_of(tokens, child) for child in node.children]
    suggestion = _of_times(node, types, texts) or _of_boolean(node, tokens, types, texts)
    if suggestion is not None:
        return suggestion
    nested = next((place for place, each in enumerate(types) if is_nested(each)), None)
    if nested is None:
        return None
    others = [each for place, each in enumerate(texts) if place != nested]
    return _of_nested(node, types[nested], texts[nested], others)


def _of_times(node: Node, types: list[Type], texts: list[str]) -> str | None:
    """The suggestion for a date that is written as numbers, and not as a literal."""
    kind = next((_TIMES[each] for each in types if each in _TIMES), None)
    if kind is None:
        return None
    for child, data_type, text in zip(node.children, types, texts, strict=True):
        found = _DATE.fullmatch(text)
        if found and (child.kind in ("arithmetic", "literal")) and data_type not in _TIMES:
            year, month, day = found.group(1, 2, 3) if found[1] else found.group(4, 5, 6)
            return f"A date is written {kind}'{year}-{int(month):02}-{int(day):02}'."
    if any(is_integer(each) for each in types):
        return f"A moment is written {kind}'2026-10-01{'' if kind == 'DATE' else ' 00:00:00'}'."
    return None


def _of_boolean(node: Node, tokens: Tokens, types: list[Type], texts: list[str]) -> str | None:
    if node.kind != "compare" or BOOLEAN not in types:
        return None
    if any(each.kind == "arithmetic" and "||" in each.value for each in inside(node)):
        return "|| joins two texts; write OR between two conditions."
    for bitwise, wanted in (("|", "OR"), ("&", "AND")):
        if any(each.kind == "arithmetic" and bitwise in each.value for each in inside(node)):
            return f"{bitwise} combines the bits of two numbers; write {wanted} between two conditions."
    left = node.children[0]
    if left.kind == "compare":
        return f"Write two comparisons: {texts[0]} AND {words_of(tokens, left.children[1])} {node.value} {texts[1]}."
    place = types.index(BOOLEAN)
    other = texts[1 - place]
    if other in ("0", "1") and node.value in ("=", "<>"):
        wanted = (other == "1") == (node.value == "=")
        return f"A BOOLEAN is TRUE or FALSE: write {'' if wanted else 'NOT '}{texts[place]}."
    truth = {"TRUE": 1, "FALSE": 0}.get(texts[place].upper())
    if truth is not None and is_integer(types[1 - place]) and node.value in ("=", "<>"):
        return f"It is a number: write {other} {node.value} {truth}."
    return None


def _of_nested(node: Node, data_type: Type, text: str, others: list[str]) -> str | None:
    assert data_type is not None
    if pa.types.is_map(data_type):
        return f"A MAP has a value for each key: write {text}['key'] in place of {text}."
    if pa.types.is_struct(data_type):
        first = data_type.field(0).name if data_type.num_fields else "field"
        first = first if re.fullmatch(r"[A-Za-z_]\w*", first) else back_quoted(first)
        return f"A STRUCT has fields: name one of them, as in {text}.{first}."
    negated = "NOT " if node.value == "<>" or node.value is True else ""
    if node.kind == "compare" and node.value in ("=", "<>", "<=>"):
        return f"To ask what an ARRAY holds, write {negated}array_contains({text}, {others[0]})."
    if node.kind == "in":
        return f"To ask what an ARRAY holds, write {negated}arrays_overlap({text}, array({', '.join(others)}))."
    return f"To ask what an ARRAY holds, write exists({text}, x -> ...)."


def _of_alternative(node: Node, tokens: Tokens, position: int | None) -> str | None:
    """The suggestion for `mcc = 1 OR 2`."""
    for each in inside(node):
        if each.kind not in ("or", "and"):
            continue
        for before, child in zip(each.children, each.children[1:], strict=False):
            if tokens.starts[child.first] != position or child.kind != "literal" or before.kind != "compare":
                continue
            left, right = (words_of(tokens, part) for part in before.children)
            if each.kind == "or" and before.value == "=":
                return f"Write {left} IN ({right}, {words_of(tokens, child)})."
            return f"Each side of {each.kind.upper()} is a condition: write {left} {before.value} ... on both."
    return None
