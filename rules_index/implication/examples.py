"""Makes a row of real values in each of many boxes."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.arrays import gather_indices
from rules_index.implication.cover import corners, rows_within
from rules_index.implication.example_rows import ExampleRows
from rules_index.implication.region_boxes import BoxArrays, RegionBoxes

_ROUNDS, _MOST_TRIES = 8, 1 << 14
"""The rounds of the search for examples if expressions must be hit by chance, and the most rows that a round makes,
unless more findings have no example yet."""
_MOST_VALUES = 1 << 27
"""The most values that these rounds evaluate, apart from the first: each takes seconds if there are thousands of
patterns."""
_MOST_CODES, _MANY_DIMENSIONS, _TERMS = 1 << 24, 1 << 12, 1 << 9
"""The most codes in memory at once; or if there are more dimensions than that, about how many terms the boxes have for
which rows are made at once."""
_FIRST_DAY, _LAST_DAY = (
    day.toordinal() - datetime.date(1970, 1, 1).toordinal() for day in (datetime.date.min, datetime.date.max)
)
_DAY = 86_400_000_000
"""Microseconds of a day."""


def examples(boxes: np.ndarray, rows: ExampleRows, all_boxes: RegionBoxes) -> pa.Array:
    """Returns a row in each box [n] int64 as a struct of the columns that the rules read. It is NULL for a box of -1,
    and if no row was found that is certainly in the box and that Python can represent. all_boxes: those of all
    rules."""
    parted = _parts(boxes, all_boxes.arrays)
    parts = [_examples_of(part, rows, all_boxes, _MOST_VALUES // len(parted)) for part in parted]
    fields = pa.struct([(leaf.name, leaf.type) for leaf in rows.columns])
    return pa.concat_arrays([pa.array([], fields), *parts])


def _parts(boxes: np.ndarray, a: BoxArrays) -> list[np.ndarray]:
    """The boxes in parts, for each of which rows are made at once: with many dimensions a part names few of them, so
    that few attributes are evaluated."""
    if len(a.sizes) > _MANY_DIMENSIONS:
        number = np.cumsum(np.diff(a.start)[np.maximum(boxes, 0)]) // _TERMS
    else:
        number = np.arange(len(boxes)) * len(a.sizes) // _MOST_CODES
    return [part for part in np.split(boxes, np.flatnonzero(np.diff(number)) + 1) if len(part)]


def _examples_of(boxes: np.ndarray, rows: ExampleRows, all_boxes: RegionBoxes, most: int) -> pa.Array:
    """`examples` for some of the boxes. most: how many values the rounds after the first may evaluate."""
    a = all_boxes.arrays
    aimed = np.where(boxes >= 0, boxes, all_boxes.everything)
    named = np.unique(a.dimensions[gather_indices(a.start, aimed)[0]]).astype(np.int64)
    wanted = np.ascontiguousarray(corners(aimed, rows.column_attributes, a)[::2].T)
    table = rows.table(wanted)
    held = (boxes >= 0) & rows_within(aimed, rows.read(table, named), named, a)
    most_rows = most // max(len(named), 1)
    rounds = min(_ROUNDS, max(1, most_rows // _MOST_TRIES))
    each_round = min(_MOST_TRIES, most_rows // rounds)
    for _ in range(0 if rows.is_plain else rounds):
        left = np.flatnonzero((boxes >= 0) & ~held)
        tried = np.repeat(left, max(1, min(_MOST_TRIES // _ROUNDS, each_round // max(len(left), 1))))
        again = rows.table(wanted[:, tried], np.arange(len(tried)) % 2 == 0)
        hits = np.flatnonzero(rows_within(boxes[tried], rows.read(again, named), named, a))
        place = np.arange(len(boxes))
        place[tried[hits]] = len(boxes) + hits
        table = pa.concat_tables([table, again]).take(pa.array(place))
        held[tried[hits]] = True
    if not table.num_columns:
        return pa.array([{} if each else None for each in held.tolist()], pa.struct([]))
    columns = [column.combine_chunks() for column in table.columns]
    held &= np.logical_and.reduce([_has_python_values(column) for column in columns])
    return pa.StructArray.from_arrays(columns, table.column_names, mask=pa.array(~held))


def _has_python_values(column: pa.Array) -> np.ndarray:
    """Which values [rows] bool Python can represent: Spark's dates and times go far beyond the year 9999."""
    t = pa.types
    if not (t.is_date32(column.type) or t.is_timestamp(column.type)):
        return np.ones(len(column), bool)
    day = 1 if t.is_date32(column.type) else _DAY
    numbers = pc.fill_null(column.view(f"int{column.type.bit_width}"), 0).to_numpy() // day
    return np.asarray((numbers >= _FIRST_DAY) & (numbers <= _LAST_DAY))


def joined_examples(parts: Sequence[pa.StructArray]) -> pa.StructArray:
    """Rows of different columns as rows of all these columns, by name; NULL in columns that a part lacks."""
    types = dict(sorted({field.name: field.type for part in parts for field in part.type}.items()))
    found = []
    for part in parts:
        present = {field.name: column for field, column in zip(part.type, part.flatten(), strict=True)}
        columns = [present.get(name, pa.nulls(len(part), data_type)) for name, data_type in types.items()]
        if columns:
            found.append(pa.StructArray.from_arrays(columns, list(types), mask=part.is_null()))
        else:
            found.append(part)
    return pa.concat_arrays(found)
