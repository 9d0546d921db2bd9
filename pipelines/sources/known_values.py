"""Reads the values of columns that rules name, from all rows of a small source, or from a sample of a large one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from pipelines.lake.lake import open_delta, rows_in
from pipelines.settings.configuration import is_catalog_name
from pipelines.sources.first_rows import FirstRows, files_of, reading_errors
from rules_index.arrays import is_text
from rules_index.implication.mistakes.known_values import KnownValues, known_values_in
from rules_index.language.scope import path_of

if TYPE_CHECKING:
    from pipelines.settings.model import Stream

MOST_ROWS = 1_000_000
"""Maximum number of rows that are read; a source with more is sampled, and its values marked as incomplete."""
MOST_FILES, MOST_SAMPLED = 1_000, 32
"""Maximum number of files of a source that is read as a whole, and of files whose first rows make a sample."""
MOST_COLUMNS = 200


def source_values(stream: Stream, schema: pa.Schema, expressions: Iterable[str]) -> dict[str, KnownValues]:
    """The known values of columns, and of fields of STRUCTs, that an expression names, by path.

    Empty for a source in a catalog, or one that only Spark reads: lint then judges by the rules alone.
    """
    if is_catalog_name(stream.source):
        return {}
    paths = _named(schema, expressions)
    if not paths:
        return {}
    try:
        table = open_delta(stream.source, None, "a source", "")
        total, files = rows_in(table), files_of(stream, table)
        complete = total is not None and total <= MOST_ROWS and len(files) <= MOST_FILES
        found = {}
        for path in paths:
            known = known_values_in(_type_of(schema, path), _parts(files, path, complete), complete)
            if known is not None:
                found[path_of(path)] = known
        return found
    except reading_errors():
        return {}


def _parts(files: list[FirstRows], path: tuple[str, ...], complete: bool) -> Iterator[pa.Array]:
    """A column's values in batches: all of them if `complete`, else those of the first rows of some files."""
    chosen = files if complete else [files[place * len(files) // MOST_SAMPLED] for place in range(MOST_SAMPLED)]
    chosen = list({id(each): each for each in chosen}.values()) if files else []
    for first_rows in chosen:
        for rows in first_rows({"value": path}, MOST_ROWS if complete else MOST_ROWS // len(chosen)):
            yield from rows.column("value").chunks


def _type_of(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType:
    kind = schema.field(path[0]).type
    for name in path[1:]:
        kind = kind.field(name).type
    return kind


def joined_values(sides: Mapping[str, Mapping[str, KnownValues]]) -> dict[str, KnownValues]:
    """The known values of a join's columns, one STRUCT per stream, from those of each stream."""
    return {f"{stream}.{name}": each for stream, known in sides.items() for name, each in known.items()}


def _named(schema: pa.Schema, expressions: Iterable[str]) -> list[tuple[str, ...]]:
    """The paths of columns that the expressions name and that lint can use; at most MOST_COLUMNS."""
    text = "\n".join(expressions).lower()
    words = set(re.findall(r"\w+", text))
    found: list[tuple[str, ...]] = []
    waiting: list[tuple[tuple[str, ...], pa.Field]] = [((), each) for each in schema]
    while waiting:
        parents, each = waiting.pop(0)
        path = (*parents, each.name)
        name = each.name.lower()
        # a name that is one word occurs by itself, any other name in back-quotes
        if name not in words and (re.fullmatch(r"\w+", name) or name.replace("`", "``") not in text):
            continue
        if pa.types.is_struct(each.type):
            waiting += [(path, inner) for inner in each.type]
        elif _is_of_use(each.type):
            found.append(path)
    return found[:MOST_COLUMNS]


def _is_of_use(kind: pa.DataType) -> bool:
    """True for numbers, texts and timestamps, lists of numbers and texts, and maps with such keys."""
    t = pa.types
    if t.is_timestamp(kind):
        return True
    if t.is_list(kind) or t.is_large_list(kind):
        kind = kind.value_type
    elif t.is_map(kind):
        kind = kind.key_type
    numbers = t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind)
    return numbers or is_text(kind)
