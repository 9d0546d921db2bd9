"""Translates the searches of a Sigma rule (fields with modifiers and values) into conditions over columns.

Texts are compared case-insensitively, as Sigma defines it, unless the modifier `cased` is given. `*` and `?` in a value
are wildcards; a backslash escapes them.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pipelines.authoring.conditions import (
    Condition,
    Not,
    Test,
    all_of,
    any_of,
    comparison,
    like_text,
    readable_literal,
)
from pipelines.authoring.foreign import Column, FieldMapping, RefusedError
from rules_index.arrays import is_text
from rules_index.errors import RuleError
from rules_index.language.coercion import name_of
from rules_index.language.patterns.java_syntax import parse

_WHERE = frozenset(("contains", "startswith", "endswith"))
_COMPARED = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_FLAGS = frozenset("ims")
_DASHES = "-/\u2013\u2014\u2015"
_AT_A_WORD = re.compile(r"\B[-/]\b")
_REFUSED = {
    "base64": "looks for texts in base64",
    "base64offset": "looks for texts in base64",
    "wide": "looks for bytes",
    "utf16": "looks for bytes",
    "utf16le": "looks for bytes",
    "utf16be": "looks for bytes",
    "expand": "takes its values from a list outside of the rule",
}
_KNOWN = frozenset(("all", "re", "cidr", "windash", "cased", "exists", "fieldref", "neq", "i", "m", "s"))
_TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_ALONE = frozenset(("exists", "fieldref", "cidr", "re", *_COMPARED))
_OF_TEXTS = _WHERE | {"windash"}
_BESIDE = {"fieldref": _WHERE, "re": frozenset(("contains",))}
"""Modifiers of texts that have a meaning beside one of `_ALONE`."""
_MOST_NETWORKS = 256
_MOST_SPELLINGS = 1_000
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"


def search(called: str, found: Any, fields: FieldMapping) -> Condition:
    """The condition of one search: a mapping of fields to values, or a list of such. RefusedError for keywords.

    called: the search's name, for messages.
    """
    if found is None or found in ({}, [], ""):
        raise RefusedError("VALUE", f"The search {called} is empty, or a part of it is.")
    if isinstance(found, dict):
        return all_of([_field(str(name), value, fields) for name, value in found.items()])
    if isinstance(found, list) and any(isinstance(each, list) for each in found):
        raise RefusedError("VALUE", f"The search {called} has a list within a list; write one list.")
    if isinstance(found, list) and all(isinstance(each, dict) for each in found):
        return any_of([search(called, each, fields) for each in found])
    raise RefusedError("KEYWORDS", "The rule looks for keywords in whole events; a rule here compares columns.")


def _field(key: str, value: Any, fields: FieldMapping) -> Condition:
    name, *modifiers = key.split("|")
    if not name:
        raise RefusedError("KEYWORDS", "The rule looks for keywords in whole events; a rule here compares columns.")
    for each in modifiers:
        if each in _REFUSED:
            raise RefusedError("MODIFIER", f"The modifier {each} of {name} {_REFUSED[each]}; that is not supported.")
        if each not in _KNOWN | _WHERE | _COMPARED.keys():
            raise RefusedError("MODIFIER", f"The modifier {each} of {name} is not supported.")
    chosen = frozenset(modifiers)
    _check_together(name, chosen)
    column = fields.column(name)
    values = value if isinstance(value, list) else [value]
    if any(isinstance(each, list) for each in values):
        raise RefusedError("VALUE", f"The values of {name} have a list within a list; write one list.")
    if not all(each is None or isinstance(each, (str, int, float)) for each in values):
        raise RefusedError("VALUE", f"The values of {name} are not texts or numbers.")
    if not values:
        raise RefusedError("VALUE", f"{name} has an empty list of values.")
    found = _values(name, column, values, chosen, fields)
    return Not(found) if "neq" in chosen else found


def _check_together(name: str, modifiers: frozenset[str]) -> None:
    """Raise RefusedError for modifiers that have no meaning together."""
    alone = sorted(modifiers & _ALONE)
    excluded = alone[1:] or sorted((modifiers & _OF_TEXTS) - _BESIDE.get(alone[0], frozenset())) if alone else []
    if excluded:
        raise RefusedError("MODIFIER", f"The modifiers {alone[0]} and {excluded[0]} of {name} exclude each other.")
    if modifiers & _FLAGS and "re" not in modifiers:
        flag = min(modifiers & _FLAGS)
        raise RefusedError("MODIFIER", f"The modifier {flag} of {name} is supported behind re alone.")


def _values(
    name: str, column: Column, values: Sequence[Any], modifiers: frozenset[str], fields: FieldMapping
) -> Condition:
    combine = all_of if "all" in modifiers else any_of
    sql = column.sql
    if "exists" in modifiers:
        is_there = Test(f"{sql} IS NOT NULL", f"{sql} IS NULL")
        return is_there if _truth(name, values) else Not(is_there)
    if None in values and (alone := sorted(modifiers & _ALONE)):
        raise RefusedError("VALUE", f"{name} has no value for its modifier {alone[0]}; leave null without a modifier.")
    if "fieldref" in modifiers:
        return combine([_reference(column, fields.column(str(each)), modifiers) for each in values])
    if "cidr" in modifiers:
        return combine([_network(name, column, str(each)) for each in values])
    if "re" in modifiers:
        flags = "".join(sorted(modifiers & _FLAGS))
        return combine([_regular(name, column, str(each), flags) for each in values])
    operator = next((_COMPARED[each] for each in modifiers if each in _COMPARED), None)
    if operator is not None:
        return combine([_number(name, column, operator, each) for each in values])
    nulls = [Test(f"{sql} IS NULL", f"{sql} IS NOT NULL") for each in values if each is None]
    texts = [str(each) for each in values if each is not None]
    if not texts:
        return combine(nulls)
    if not is_text(column.type):
        if modifiers & _WHERE or any(_pattern_of(each, frozenset())[1] for each in texts):
            raise RefusedError("VALUE", f"{name} is not a text here, and {texts[0]!r:.80} is a pattern of texts.")
        return combine([*nulls, *(_number(name, column, "=", each) for each in texts)])
    if "windash" not in modifiers:
        return combine([*nulls, _patterns(column, list(dict.fromkeys(texts)), modifiers, combine)])
    spelled = _spellings(name, texts)
    if "all" in modifiers:
        return all_of([*nulls, *(_patterns(column, each, modifiers, any_of) for each in spelled)])
    whole = list(dict.fromkeys(itertools.chain.from_iterable(spelled)))
    return combine([*nulls, _patterns(column, whole, modifiers, combine)])


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _truth(name: str, values: Sequence[Any]) -> bool:
    """The only value as a truth value, by the words of YAML; RefusedError for another value, or several."""
    found = [_TRUTHS.get(str(each).lower()) for each in values]
    if len(found) != 1 or found[0] is None:
        text = ", ".join(map(str, values))
        raise RefusedError("VALUE", f"The modifier exists of {name} has the value {text!r:.80}; give true or false.")
    return found[0]


def _spellings(name: str, texts: Sequence[str]) -> list[list[str]]:
    """The variants of each value with every kind of dash at each place where an option may begin.

    RefusedError if all values together have more than `_MOST_SPELLINGS` variants.
    """
    places = [len(_AT_A_WORD.findall(text)) for text in texts]
    if sum(len(_DASHES) ** min(each, _MOST_SPELLINGS) for each in places) > _MOST_SPELLINGS:
        raise RefusedError(
            "MODIFIER",
            f"The modifier windash of {name} makes more than {_MOST_SPELLINGS:,} alternatives of its values; write "
            "fewer dashes, or a regular expression.",
        )
    return [_with_dashes(text) for text in texts]


def _with_dashes(text: str) -> list[str]:
    """The value, and its variants with other dashes."""
    parts = _AT_A_WORD.split(text)
    choices = itertools.product(_DASHES, repeat=len(parts) - 1)
    variants = (parts[0] + "".join(map("".join, zip(each, parts[1:], strict=True))) for each in choices)
    return list(dict.fromkeys([text, *variants]))


def _patterns(column: Column, texts: Sequence[str], modifiers: frozenset[str], combine: Any) -> Condition:
    """A comparison of a column with patterns, of which any or all (`combine`) must match."""
    word = "LIKE" if "cased" in modifiers else "ILIKE"
    patterns = [readable_literal(_pattern_of(each, modifiers)[0]) for each in texts]
    sql = column.sql
    if len(patterns) == 1:
        return comparison(sql, f"{sql} {word} {patterns[0]}", f"{sql} NOT {word} {patterns[0]}")
    listed = f"({', '.join(patterns)})"
    one, other = ("ALL", "ANY") if combine is all_of else ("ANY", "ALL")
    return comparison(sql, f"{sql} {word} {one} {listed}", f"{sql} NOT {word} {other} {listed}")


def _pattern_of(text: str, modifiers: frozenset[str]) -> tuple[str, bool]:
    """A value as a pattern of LIKE, and whether the value itself has wildcards."""
    parts: list[str] = []
    escaped = has_wildcard = False
    for character in text:
        if escaped:
            parts.append(like_text(character if character in "*?\\" else "\\" + character))
            escaped = False
        elif character == "\\":
            escaped = True
        elif character in "*?":
            parts.append("%" if character == "*" else "_")
            has_wildcard = True
        else:
            parts.append(like_text(character))
    if escaped:
        parts.append(like_text("\\"))
    before = "%" if modifiers & {"contains", "endswith"} else ""
    behind = "%" if modifiers & {"contains", "startswith"} else ""
    return before + "".join(parts) + behind, has_wildcard


def _number(name: str, column: Column, operator: str, value: Any) -> Condition:
    """A comparison with a number, or a truth value."""
    text, sql = str(value).strip(), column.sql
    if pa.types.is_boolean(column.type) and text.lower() in ("true", "false") and operator == "=":
        return comparison(sql, f"{sql} = {text.upper()}", f"{sql} <> {text.upper()}")
    kind = column.type
    if not (_is_number(kind) or is_text(kind)):
        raise RefusedError("VALUE", f"{name} is {name_of(kind)} here, and is compared with {text!r:.80}.")
    if not re.fullmatch(r"[+-]?\d{1,30}(\.\d{1,30})?", text):
        raise RefusedError("VALUE", f"{name} is compared with {text!r:.80}, which is not a number.")
    number = text.lstrip("+")
    negated = {"=": "<>", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}[operator]
    if is_text(kind):
        cast = f"try_cast({sql} AS DOUBLE)"
        return Test(f"{cast} {operator} {number}", f"({cast} IS NULL OR {cast} {negated} {number})")
    return comparison(sql, f"{sql} {operator} {number}", f"{sql} {negated} {number}")


def _regular(name: str, column: Column, pattern: str, flags: str) -> Condition:
    if not is_text(column.type):
        raise RefusedError("VALUE", f"{name} is not a text here, and is matched with a regular expression.")
    before = f"(?{flags})" if flags else ""
    try:
        parse(before + pattern)
    except RuleError as error:
        if error.error == "PATTERN" and error.position is not None:
            place = max(error.position - len(before), 0)
            message = f"{error.message} This is about position {place} of the pattern {pattern!r:.80}."
            raise RefusedError(error.error, message, place) from None
    literal = readable_literal(before + pattern)
    return comparison(column.sql, f"{column.sql} RLIKE {literal}", f"{column.sql} NOT RLIKE {literal}")


def _reference(column: Column, other: Column, modifiers: frozenset[str]) -> Condition:
    """A comparison with another field of the event. A text that is no number differs from every number."""
    where = next((each for each in modifiers if each in _WHERE), None)
    if where is None and is_text(column.type) != is_text(other.type):
        left, right = _beside(column, other), _beside(other, column)
        return Test(f"{left} = {right}", f"({left} IS NULL OR {right} IS NULL OR {left} <> {right})")
    form = "{}" if "cased" in modifiers or not is_text(column.type) else "lower({})"
    left, right = form.format(column.sql), form.format(other.sql)
    missing = f"{column.sql} IS NULL OR {other.sql} IS NULL"
    if where is None:
        return Test(f"{left} = {right}", f"({missing} OR {left} <> {right})")
    test = f"{where}({left}, {right})"
    return Test(test, f"({missing} OR NOT {test})")


def _beside(column: Column, other: Column) -> str:
    """A column as it is compared with another one, one of the two being a text: both as numbers if the other one is a
    number, or else both as texts."""
    kinds = [column.type, other.type]
    if not any(map(_is_number, kinds)):
        return f"lower({column.sql})" if is_text(column.type) else f"lower(CAST({column.sql} AS STRING))"
    target = "BIGINT" if any(map(pa.types.is_integer, kinds)) else "DOUBLE"
    return f"try_cast({column.sql} AS {target})" if is_text(column.type) else column.sql


def _network(name: str, column: Column, text: str) -> Condition:
    """A comparison of an address as text with a network, as a regular expression over its octets."""
    try:
        given = ipaddress.ip_interface(text.strip())
    except ValueError:
        raise RefusedError("VALUE", f"{name} is compared with {text!r:.80}, which is not a network.") from None
    network = given.network
    if not is_text(column.type) or isinstance(network, ipaddress.IPv6Network):
        raise RefusedError("MODIFIER", f"The modifier cidr of {name} is supported for IPv4 addresses in a text alone.")
    if given.ip != network.network_address:
        message = f"{name} is compared with {text.strip()!r:.80}, an address within the network {network}; write that."
        raise RefusedError("VALUE", message)
    if network.prefixlen == network.max_prefixlen:
        literal = readable_literal(str(given.ip))
        return comparison(column.sql, f"{column.sql} = {literal}", f"{column.sql} <> {literal}")
    whole = -(-network.prefixlen // 8)
    parts = list(itertools.islice(network.subnets(new_prefix=whole * 8), _MOST_NETWORKS))
    heads = [r"\.".join(str(each.network_address).split(".")[:whole]) for each in parts]
    head = [f"(?:{'|'.join(heads)})"] if whole else []
    literal = readable_literal("^" + r"\.".join([*head, *[_OCTET] * (4 - whole)]) + r"\z")
    return comparison(column.sql, f"{column.sql} RLIKE {literal}", f"{column.sql} NOT RLIKE {literal}")
