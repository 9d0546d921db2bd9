"""Finds the owner of each attribute of a join's rules: the one stream whose columns it is computed from, or else
`ACROSS` or `UNKNOWN`.

A join's rules are compiled over one STRUCT column per stream, so that the first part of a column's path names its
stream. They may also name the joined row's event time, the latest one among its rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rules_index.errors import RulesIndexError, SchemaError
from rules_index.index.compiled import CompiledRules
from rules_index.index.inputs import find_column
from rules_index.join import MOST_STREAMS
from rules_index.language.nodes import Node
from rules_index.language.parser import parse
from rules_index.language.scope import quote
from rules_index.language.typed import Expression, Leaf, leaves_of
from rules_index.names import back_quoted, column_key, path_parts

ACROSS = -1
"""The owner of an attribute that is computed from several streams, or from the joined row's event time."""
UNKNOWN = -2
"""The owner of an attribute that only Spark can evaluate, from several streams."""


@dataclass(frozen=True)
class Owners:
    """The stream that each attribute of a rule set belongs to.

    streams    the streams' names, two to six
    stream_of  [attributes] int32, the stream's number, `ACROSS` or `UNKNOWN`
    leaves     for each stream, the inputs that only it has
    unknown    the derived inputs that name several streams
    """

    streams: tuple[str, ...]
    stream_of: np.ndarray
    leaves: tuple[tuple[Leaf, ...], ...]
    unknown: tuple[Leaf, ...]


def find_owners(compiled: CompiledRules, streams: Sequence[str]) -> Owners:
    """Finds the owners of a rule set's attributes. Raises `RulesIndexError` for a column that belongs to no stream."""
    if not 2 <= len(streams) <= MOST_STREAMS or len({column_key(name) for name in streams}) < len(streams):
        raise RulesIndexError(f"A join has two to {MOST_STREAMS} streams of different names, not {list(streams)}.")
    owner = {leaf: _owner_of_leaf(leaf, compiled, streams) for leaf in compiled.inputs}
    return Owners(
        tuple(streams),
        np.array([_owner(attribute, owner) for attribute in compiled.attributes], np.int32),
        tuple(tuple(leaf for leaf in compiled.inputs if owner[leaf] == stream) for stream in range(len(streams))),
        tuple(leaf for leaf in compiled.inputs if owner[leaf] == UNKNOWN),
    )


def side_columns(rows: pa.Table, leaves: Sequence[Leaf]) -> pa.Table:
    """Returns a stream's rows with a column for each leaf, named as the leaf. A leaf's column is found without the
    stream's name or, failing that, by its whole path. Raises `SchemaError` if neither exists."""
    return pa.table({leaf.name: _side_column(rows, leaf) for leaf in leaves})


def _owner(attribute: Expression, owner: dict[Leaf, int]) -> int:
    owners = {owner[leaf] for leaf in leaves_of(attribute)}
    if UNKNOWN in owners:
        return UNKNOWN
    if len(owners) > 1:
        return ACROSS
    # an attribute that names no column is the same on all rows, so any stream will do
    return owners.pop() if owners else 0


def _owner_of_leaf(leaf: Leaf, compiled: CompiledRules, streams: Sequence[str]) -> int:
    places = {column_key(name): place for place, name in enumerate(streams)}
    if leaf.text is None:
        place = places.get(column_key(path_parts(leaf.name)[0]))
        if place is not None:
            return place
        if column_key(leaf.name) != column_key(compiled.event_time or ""):
            raise RulesIndexError(f"The rules name the column {leaf.name}, which is of none of {list(streams)}.")
        if not pa.types.is_timestamp(leaf.type) or leaf.type.unit != "us":
            raise RulesIndexError(f"A joined row's event time {leaf.name} is a timestamp in us, not {leaf.type}.")
        return ACROSS
    node, _ = parse(leaf.text, compiled.time_zone)
    named = {column_key(name) for name in _columns(node)}
    if compiled.event_time is not None and column_key(compiled.event_time) in named:
        return UNKNOWN
    # other names are variables of a lambda
    owners = {places[name] for name in named if name in places}
    return UNKNOWN if len(owners) > 1 else owners.pop() if owners else 0


def _columns(node: Node) -> Iterator[str]:
    """The first parts of all names in a text."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if each.kind == "column":
            yield each.value[0]
        waiting += each.children


def _side_column(rows: pa.Table, leaf: Leaf) -> pa.Array:
    if leaf.text is not None:
        return find_column(rows, leaf)
    inner = path_parts(leaf.name)[1:]
    if not inner and (rows.column_names != [leaf.name] or rows.schema.field(0).type != leaf.type):
        # the rule tests the stream's whole row, which is never NULL
        fields = [find_column(rows, Leaf(quote(field.name), field.type)) for field in leaf.type]
        return pa.StructArray.from_arrays(fields, fields=list(leaf.type))
    if inner:
        # a column can have the stream's name, or a name with a dot, such as that of another column's field
        for quoted in (back_quoted, quote):
            with contextlib.suppress(SchemaError):
                return find_column(rows, Leaf(".".join(map(quoted, inner)), leaf.type))
    return find_column(rows, leaf)
