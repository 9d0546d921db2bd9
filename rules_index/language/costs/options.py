"""The options and schemas that are allowed for functions that read and write JSON, CSV and VARIANT."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

MAX_SCHEMA_LENGTH = 10_000
"""The longest schema, in characters."""
MAX_SCHEMA_DEPTH = 20
"""The deepest nesting of a schema."""
MAX_OPTION_LENGTH = 100
"""The longest value of an option, in characters."""

_REPEATING = re.compile(r"\b(?:array|map)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Shape:
    """Upper bounds of a schema's parts: the number of its fields, and of those in arrays and maps; its nesting; and the
    letters of its field names. `repeats` says whether it may have arrays or maps."""

    fields: int
    repeated_fields: int
    repeats: bool
    depth: int
    names: float


def schema_shape(schema: object) -> Shape:
    """The shape of a schema that is given as DDL, as JSON, or as a sample from which Spark infers it."""
    text = schema if isinstance(schema, str) else ""
    depth = deepest = 0
    for letter in text:
        if letter in "<[{(":
            depth += 1
            deepest = max(deepest, depth)
        elif letter in ">]})":
            depth -= 1
    fields = 1 + text.count(",") + text.count("[") + text.count("<")
    repeats = bool(_REPEATING.search(text)) or "[" in text
    return Shape(fields, fields, repeats, deepest, float(len(text)))


def _is_one_of(*words: str) -> Callable[[str], bool]:
    return lambda value: value.lower() in words


def _is_short(value: str) -> bool:
    return len(value) <= MAX_OPTION_LENGTH


def _is_letter(value: str) -> bool:
    return len(value) <= 1


def _is_separator(value: str) -> bool:
    return 1 <= len(value) <= 8


def _is_number(most: int) -> Callable[[str], bool]:
    return lambda value: re.fullmatch(r"[0-9]{1,9}", value) is not None and 1 <= int(value) <= most


_TRUTH = _is_one_of("true", "false")
_COMMON: dict[str, Callable[[str], bool]] = {
    "mode": _is_one_of("permissive", "failfast"),
    "dateformat": _is_short,
    "timestampformat": _is_short,
    "timestampntzformat": _is_short,
    "timezone": _is_short,
    "locale": _is_short,
    "columnnameofcorruptrecord": _is_short,
    "enabledatetimeparsingfallback": _TRUTH,
    "preferdate": _TRUTH,
}
JSON_OPTIONS: dict[str, Callable[[str], bool]] = {
    **_COMMON,
    "allowbackslashescapinganycharacter": _TRUTH,
    "allowcomments": _TRUTH,
    "allownonnumericnumbers": _TRUTH,
    "allownumericleadingzeros": _TRUTH,
    "allowsinglequotes": _TRUTH,
    "allowunquotedcontrolchars": _TRUTH,
    "allowunquotedfieldnames": _TRUTH,
    "dropfieldifallnull": _TRUTH,
    "ignorenullfields": _TRUTH,
    "infertimestamp": _TRUTH,
    "multiline": _TRUTH,
    "prefersdecimal": _TRUTH,
    "primitivesasstring": _TRUTH,
}
"""Options of `from_json`, `to_json` and `schema_of_json`, by lower-case name, and which values they may have."""
CSV_OPTIONS: dict[str, Callable[[str], bool]] = {
    **_COMMON,
    "chartoescapequoteescaping": _is_letter,
    "comment": _is_letter,
    "delimiter": _is_separator,
    "emptyvalue": _is_letter,
    "enforceschema": _TRUTH,
    "escape": _is_letter,
    "escapequotes": _TRUTH,
    "header": _TRUTH,
    "ignoreleadingwhitespace": _TRUTH,
    "ignoretrailingwhitespace": _TRUTH,
    "inferschema": _TRUTH,
    "maxcharspercolumn": _is_number(10_000_000),
    "maxcolumns": _is_number(20_480),
    "nanvalue": _is_separator,
    "negativeinf": _is_separator,
    "nullvalue": _is_separator,
    "positiveinf": _is_separator,
    "quote": _is_letter,
    "quoteall": _TRUTH,
    "sep": _is_separator,
}
"""Options of `from_csv`, `to_csv` and `schema_of_csv`, by lower-case name, and which values they may have."""
