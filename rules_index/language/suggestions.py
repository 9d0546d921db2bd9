"""Suggestions for common mistakes: what to write in place of a text that is refused.

A suggestion is a sentence appended to the error's own message. It is found from the tokens around the error's position,
and from the parsed text if there is one. It never changes the error's code or position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pyarrow as pa

from rules_index.errors import RuleError
from rules_index.language.function_signatures import FUNCTIONS, NOT_REPEATABLE
from rules_index.language.scope import Scope
from rules_index.language.tokens import END, NUMBER, QUOTED_NAME, STRING, Tokens, tokenise, words
from rules_index.language.type_suggestions import type_suggestion
from rules_index.names import back_quoted, field_key

_LONGEST = 10_000
"""Texts with more characters get no suggestion."""
_CURLY = frozenset("\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u00ab\u00bb\u2039\u203a\u2032\u2033\u00b4")
_SIGNS = {"\u2265": ">=", "\u2264": "<=", "\u2260": "<>", "\u2212": "-", "\u00d7": "*", "\u00f7": "/"}
_CURRENCIES = frozenset("\u20ac$\u00a3\u00a5")
_OPENINGS = words("WHERE SELECT IF WHEN FILTER HAVING")
_COMPARED = frozenset(("=", "<>", "<", "<=", ">", ">=", "<=>", "LIKE", "ILIKE", "RLIKE"))
_NO_CLOCK = (
    "Write the moment itself, as in TIMESTAMP'2026-10-01 00:00:00', or compare two columns of the row; for a rule "
    "that holds for a time give valid_from and valid_to."
)
_CLOCKS = words("now current_date current_timestamp current_time curdate localtimestamp unix_timestamp")
_OTHER_CLOCKS = frozenset(("today", "getdate", "sysdate", "sysdatetime"))
"""What the clock is called in other languages."""
_AFFIXES = words("CONTAINS STARTSWITH ENDSWITH")
_TESTS = _COMPARED | words("IN BETWEEN")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def with_suggestion(error: RuleError, text: str, scope: Scope) -> RuleError:
    """The same error, with a sentence on what to write instead if there is a suggestion."""
    try:
        suggestion = _suggestion(error, text, scope)
    except (RuleError, RecursionError):
        suggestion = None
    if suggestion is None or error.position is None:
        return error
    message = error.message.replace("; cast one of them.", ".")  # better advice follows
    return RuleError(error.error, f"{message} {suggestion}", error.position)


def _suggestion(error: RuleError, text: str, scope: Scope) -> str | None:
    position = error.position
    if position is None or len(text) > _LONGEST:
        return None
    if error.error == "NOT_REPEATABLE":
        return _of_clock(text[position:])
    if error.error == "SYNTAX" and (suggestion := _of_character(error, text, position)):
        return suggestion
    tokens = tokenise(text)
    at = tokens.starts.index(position) if position in tokens.starts else None
    if at is None:
        return None
    if error.error in ("SYNTAX", "UNKNOWN_COLUMN", "UNKNOWN_FUNCTION") and (name := _odd_name(tokens, at, scope)):
        return f"The name of that column must be in back-quotes: {back_quoted(name)}."
    if error.error == "SYNTAX":
        return next((suggestion for look in _LOOKS if (suggestion := look(tokens, at))), None)
    if error.error == "UNKNOWN_COLUMN":
        return (
            _of_qualified(tokens, at, scope)
            or _of_field(tokens, at, scope)
            or _of_name(tokens, at, "did you mean" in error.message)
        )
    if error.error == "NOT_ALLOWED":
        return _of_method(tokens, at)
    if error.error == "UNKNOWN_FUNCTION" and tokens.name(at).lower() in _OTHER_CLOCKS:
        return _NO_CLOCK
    if error.error == "UNKNOWN_FUNCTION" and tokens.kinds[at] == "IN":
        return "Name the column before each IN."
    return type_suggestion(error, text, scope)


def _of_clock(rest: str) -> str | None:
    name = _PLAIN_NAME.match(rest)
    if name is None or name.group().lower() not in _CLOCKS & NOT_REPEATABLE | {"unix_timestamp"}:
        return None
    return _NO_CLOCK


def _of_character(error: RuleError, text: str, position: int) -> str | None:
    """The suggestion for a character that begins no token."""
    character = text[position : position + 1]
    if character in _CURLY and character:
        return "Write straight quotes around a text: 'text'."
    if character in _SIGNS:
        return f"Write {_SIGNS[character]}."
    if character in _CURRENCIES and character:
        return "Write the number alone, without a currency."
    if character == "{" and text[:position].rstrip().upper().endswith(" IN"):
        return "Write round brackets: IN ('a', 'b')."
    if character == "#":
        return "A comment begins with -- ."
    if character == "'" and "not closed" in error.message:
        return "A quote within a text is written twice, as in 'O''Neil'."
    return None


def _odd_name(tokens: Tokens, at: int, scope: Scope) -> str | None:
    """The name of the column or field at a token, if the name needs back-quotes and was written without; else None."""
    place, text = tokens.starts[at], tokens.text
    if tokens.kinds[at] in (STRING, QUOTED_NAME):
        return None
    starts = [start for start in tokens.starts[: at + 1] if place - start <= 200]
    folded = text.casefold() if len(text.casefold()) == len(text) else text
    for name in sorted(_odd_names(scope.schema), key=len, reverse=True):
        for start in starts:
            ends = start + len(name)
            if start <= place < ends and folded[start:ends] == name.casefold() and ends in (*tokens.ends, len(text)):
                return name
    return None


def _odd_names(fields: pa.Schema | pa.StructType) -> Iterator[str]:
    for each in fields:
        if not _PLAIN_NAME.fullmatch(each.name):
            yield each.name
        if pa.types.is_struct(each.type):
            yield from _odd_names(each.type)


def _of_qualified(tokens: Tokens, at: int, scope: Scope) -> str | None:
    """The suggestion for a column that is written with the name of its stream or table before it."""
    if tokens.kinds[at + 1] != "." or not tokens.is_name(at + 2):
        return None
    named = field_key(tokens.name(at + 2))
    found = next((each.name for each in scope.schema if field_key(each.name) == named), None)
    return f"If the column is meant, write {_written(found)} alone." if found is not None else None


def _of_field(tokens: Tokens, at: int, scope: Scope) -> str | None:
    """The suggestion for a field written without its column, or for a joined row's column written without its
    stream."""
    if tokens.kinds[at + 1] in (".", "("):
        return None
    named = field_key(tokens.name(at))
    structs = [each for each in scope.schema if pa.types.is_struct(each.type)]
    paths = [f"{_written(s.name)}.{_written(f.name)}" for s in structs for f in s.type if field_key(f.name) == named]
    return f"Write {' or '.join(paths[:3])}." if paths else None


def _written(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else back_quoted(name)


def _of_name(tokens: Tokens, at: int, hinted: bool) -> str | None:
    """The suggestion for a name that is not a column."""
    spelling, before = tokens.spelling(at), tokens.kinds[at - 1] if at else ""
    if tokens.kinds[at + 1] in (".", "(", "["):
        return None
    name = tokens.name(at)
    if tokens.kinds[at] == QUOTED_NAME:
        return f"Back-quotes are for names; if a text is meant, write {_text(name)}."
    if re.fullmatch(r"[0-9]+(_[0-9]+)+", spelling):
        return f"A number is written without separators: {spelling.replace('_', '')}."
    if spelling[0].isdigit():
        return "A number is written with digits alone, as in 10000, and a name that begins with a digit in back-quotes."
    is_value = before in (*_COMPARED, ",") or (before == "(" and "IN" in tokens.kinds[max(0, at - 40) : at])
    if is_value or (before == "AND" and at > 2 and tokens.kinds[at - 3] == "BETWEEN"):
        return f"If a text is meant, write {_text(name)}."
    return None if hinted else "A text is written in single quotes, a name without quotes or in back-quotes."


def _of_method(tokens: Tokens, at: int) -> str | None:
    """The suggestion for `column.lower()`."""
    kinds = tokens.kinds
    while tokens.is_name(at) and kinds[at + 1] == "." and kinds[at + 3] != "(":
        at += 2
    if kinds[at + 1] != "." or tokens.name(at + 2).lower() not in FUNCTIONS:
        return None
    return f"Write {tokens.name(at + 2).lower()}({tokens.spelling(at)}{', ...' if kinds[at + 4] != ')' else ''})."


def _of_opening(tokens: Tokens, at: int) -> str | None:
    first = tokens.kinds[0]
    if first == "SELECT" and "FROM" in tokens.kinds:
        return "Write the condition alone, as it would follow WHERE."
    if first in _OPENINGS and at >= 1 and tokens.is_name(1):
        return f"Write the condition alone, without {tokens.spelling(0)}."
    return None


def _of_operator(tokens: Tokens, at: int) -> str | None:
    kind, before = tokens.kinds[at], tokens.kinds[at - 1] if at else ""
    touches = at > 0 and tokens.ends[at - 1] == tokens.starts[at]
    pairs = {
        ("&", "&"): "Write AND.", ("=", "<"): "Write <= .", ("=", ">"): "Write >= .", ("=", "!"): "Write <> .",
        ("/", "/"): "A comment begins with -- .",
    }  # fmt: skip
    if touches and (before, kind) in pairs:
        return pairs[before, kind]
    if kind == "=>":
        return "Write >= for at least."
    if kind == "~":
        return "Write RLIKE to match a regular expression."
    if kind == END and before == "%" and tokens.kinds[at - 2] == NUMBER:
        return f"% is the remainder of a division; write {tokens.spelling(at - 2)} percent as a plain number."
    if kind == "[" and before == "IN":
        return "Write round brackets: IN ('a', 'b')."
    return None


def _of_number(tokens: Tokens, at: int) -> str | None:
    """The suggestion for a number with separators, or with a unit behind it."""
    kinds, text = tokens.kinds, tokens.text
    before = tokens.spelling(at - 1) if at else ""
    if kinds[at] == "," and at and kinds[at - 1] == kinds[at + 1] == NUMBER and text[tokens.ends[at]].isdigit():
        behind = at + 1
        groups = [before]
        while kinds[behind] == NUMBER and len(tokens.spelling(behind).partition(".")[0]) == 3:
            groups.append(tokens.spelling(behind))
            if kinds[behind + 1] != ",":
                break
            behind += 2
        if len(groups) > 1 and "." not in before:
            return f"A number is written without separators: {''.join(groups)}."
        return f"Decimals come after a point: {before.replace('.', '')}.{tokens.spelling(at + 1)}."
    if tokens.is_name(at) and at and kinds[at - 1] == NUMBER:
        word = tokens.spelling(at).upper()
        if word == "TO" and at > 1 and kinds[at - 2] == "BETWEEN":
            return f"Write AND between the bounds: BETWEEN {before} AND {tokens.spelling(at + 1)}."
        if word == "XOR":
            return "For one of two conditions, but not both, write (...) <> (...)."
        return f"Write the number alone, {before}, without a unit after it."
    return None


def _of_word(tokens: Tokens, at: int) -> str | None:
    kinds = tokens.kinds
    before = kinds[at - 1] if at else ""
    if before == "IS" and at > 1 and kinds[at - 2] in ("AND", "OR", "NOT"):
        return "Name the column before each IS."
    if before in ("AND", "OR", "NOT") and kinds[at] in _TESTS:
        return f"Name the column before each {kinds[at]}."
    if before == "IN" and tokens.is_name(at) and at > 1 and kinds[at - 2] in (STRING, NUMBER):
        return f"To ask what an ARRAY holds, write array_contains({tokens.spelling(at)}, {tokens.spelling(at - 2)})."
    if kinds[at] == "NOT" and kinds[at + 1] == "NULL":
        return "Write IS NOT NULL."
    if kinds[at] == "NOT" and kinds[at + 1] == "=":
        return "Write <> ."
    if tokens.spelling(at).upper() in ("REGEX", "MATCHES") and kinds[at + 1] == STRING:
        return "Write RLIKE to match a regular expression."
    if kinds[at] == "NULL" and before not in ("=", "<>"):
        return "Write IS NULL."
    if kinds[at] in _AFFIXES and at and kinds[at + 1] == STRING:
        return f"Write {kinds[at].lower()}({tokens.spelling(at - 1)}, {tokens.spelling(at + 1)})."
    if kinds[at] in (STRING, NUMBER) and (before == "IS" or (before == "NOT" and kinds[at - 2] == "IS")):
        return f"Write {'=' if before == 'IS' else '<>'} {tokens.spelling(at)}."
    if before == "IN" and kinds[at] in (STRING, NUMBER):
        return f"Write IN ({tokens.spelling(at)})."
    if kinds[at] == "THEN":
        return "Write the condition alone: what matches gets the rule's id."
    return None


_LOOKS: tuple[Callable[[Tokens, int], str | None], ...] = (_of_opening, _of_operator, _of_number, _of_word)


def _text(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"
