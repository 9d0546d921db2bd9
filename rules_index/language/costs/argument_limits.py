"""Limits of the arguments that determine the cost of a call: they must be constant, short, or among allowed values."""

from __future__ import annotations

import re
from collections.abc import Callable

from rules_index.language.costs.forms import Size
from rules_index.language.costs.options import (
    CSV_OPTIONS,
    JSON_OPTIONS,
    MAX_OPTION_LENGTH,
    MAX_SCHEMA_DEPTH,
    MAX_SCHEMA_LENGTH,
    schema_shape,
)
from rules_index.language.nodes import Node

LARGEST_COUNT = 10_000
"""The greatest magnitude of an argument that determines how large a result is."""
LARGEST_PLACES = 400
"""The most decimal places of `format_number`."""
LONGEST_FORMAT = 400
"""The most bytes of a format of dates or numbers, and of a path."""

COUNTS: dict[str, tuple[int, ...]] = {
    "repeat": (1,),
    "space": (0,),
    "lpad": (1,),
    "rpad": (1,),
    "array_repeat": (1,),
    "sequence": (0, 1, 2),
    "array_insert": (1,),
    "round": (1,),
    "bround": (1,),
    "ceil": (1,),
    "ceiling": (1,),
    "floor": (1,),
}
"""Arguments (by index) that must be constant whole numbers of at most `LARGEST_COUNT`."""
FORMATS: dict[str, int] = {
    **dict.fromkeys(("date_format", "from_unixtime", "to_date", "try_to_date", "to_timestamp"), 1),
    **dict.fromkeys(("to_timestamp_ltz", "try_to_timestamp", "to_timestamp_ntz", "unix_timestamp"), 1),
    **dict.fromkeys(("to_unix_timestamp", "to_char", "to_varchar", "to_number", "try_to_number", "to_time"), 1),
    **dict.fromkeys(("try_to_time", "get_json_object", "variant_get", "try_variant_get"), 1),
}
"""The argument (by index) that must have at most `LONGEST_FORMAT` bytes, whatever a row contains."""
SCHEMAS = {"from_json": 1, "from_csv": 1, "variant_get": 2, "try_variant_get": 2}
"""The argument (by index) that is a schema."""
OPTIONS: dict[str, tuple[int, dict[str, Callable[[str], bool]]]] = {
    "from_json": (2, JSON_OPTIONS),
    "to_json": (1, JSON_OPTIONS),
    "schema_of_json": (1, JSON_OPTIONS),
    "from_csv": (2, CSV_OPTIONS),
    "to_csv": (1, CSV_OPTIONS),
    "schema_of_csv": (1, CSV_OPTIONS),
}
"""The argument (by index) that is a MAP of options, and the allowed options with a check of their values."""
TEMPLATES = frozenset(("format_string", "printf"))
"""Functions whose first argument is a format with field widths."""
KEYED = frozenset(("parse_url", "try_parse_url"))
"""Functions whose third argument Spark puts into a regular expression."""

_WIDTH = re.compile(r"%[^%A-Za-z]*[0-9]{4}")
_KEY = re.compile(r"[A-Za-z0-9_-]*")


def problem(node: Node, sizes: list[Size], nulls: list[bool]) -> tuple[Node, str] | None:
    """The first argument of a call that violates a limit, and what is wrong with it; None if no argument does.

    `nulls` says which arguments are the constant NULL.
    """
    name: str = node.value
    for index in COUNTS.get(name, ()):
        if index < len(sizes) and not nulls[index] and not _is_count(sizes[index].constant, LARGEST_COUNT):
            return node.children[index], (
                f"{name} needs a constant whole number of at most {LARGEST_COUNT:,} here: the size of its result "
                "depends on it."
            )
    found = _of_formats(node, sizes, nulls)
    if found is None and name in SCHEMAS:
        found = _of_schema(node, SCHEMAS[name], sizes)
    if found is None and name in OPTIONS and len(node.children) > OPTIONS[name][0]:
        found = _of_options(node.children[OPTIONS[name][0]], name, *OPTIONS[name], sizes)
    return found


def _is_count(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= most


def _of_formats(node: Node, sizes: list[Size], nulls: list[bool]) -> tuple[Node, str] | None:
    name: str = node.value
    if name in FORMATS and len(sizes) > FORMATS[name]:
        index = FORMATS[name]
        if not nulls[index] and sizes[index].bytes.most > LONGEST_FORMAT + 64:
            return node.children[index], (
                f"{name} needs a format or path of at most {LONGEST_FORMAT} bytes here; cut it, as in left(value, 50)."
            )
    if name in TEMPLATES and not nulls[0]:
        template = sizes[0].constant
        if not isinstance(template, str) or _WIDTH.search(template):
            return node.children[0], f"{name} needs a constant format with widths below 1,000."
    if name == "format_number" and not nulls[1]:
        places = sizes[1].constant
        fits = len(places.encode()) <= LONGEST_FORMAT if isinstance(places, str) else _is_count(places, LARGEST_PLACES)
        if not fits:
            return node.children[1], f"format_number needs a constant format or at most {LARGEST_PLACES} places."
    if name in KEYED and len(sizes) > 2 and not nulls[2]:
        key = sizes[2].constant
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            return node.children[2], f"{name} needs a constant key of letters, digits, _ and - here."
    return None


def _of_schema(node: Node, index: int, sizes: list[Size]) -> tuple[Node, str] | None:
    child, schema = node.children[index], sizes[index].constant
    if not isinstance(schema, str):
        return child, f"{node.value} needs a constant schema here."
    if len(schema) > MAX_SCHEMA_LENGTH or schema_shape(schema).depth > MAX_SCHEMA_DEPTH:
        return child, (
            f"A schema has at most {MAX_SCHEMA_LENGTH:,} characters and {MAX_SCHEMA_DEPTH} levels of nesting here."
        )
    return None


def _of_options(
    child: Node, name: str, index: int, allowed: dict[str, Callable[[str], bool]], sizes: list[Size]
) -> tuple[Node, str] | None:
    pairs = sizes[index].constant
    if not isinstance(pairs, tuple):
        return child, f"The options of {name} must be a MAP of constants here, like map('mode', 'FAILFAST')."
    for place, (key, value) in enumerate(zip(pairs[::2], pairs[1::2], strict=True)):
        check = allowed.get(key.lower())
        if check is None:
            return child.children[2 * place], f"{name} may not be called with the option {key[:100]!r}."
        if not check(value):
            return child.children[2 * place + 1], (
                f"The option {key} of {name} has a value that is not allowed, or of more than {MAX_OPTION_LENGTH} "
                "characters."
            )
    return None
