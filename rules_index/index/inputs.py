"""Finds the columns that an index reads in a user's batch, in the types that the index expects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.domains.region_codes import plain
from rules_index.errors import SchemaError
from rules_index.index.nested_columns import field_of, in_one_chunk, is_nested_as, number_of, plain_nested
from rules_index.language.coercion import normalise
from rules_index.language.evaluation.evaluated import Evaluated
from rules_index.language.typed import Expression, Leaf, leaves_of
from rules_index.names import column_key, path_parts

if TYPE_CHECKING:
    import polars as pl


def as_table(batch: Any, inputs: Iterable[Leaf]) -> pa.Table:
    """Converts a Table, RecordBatch or Polars frame to a pyarrow Table; of a Polars frame only the columns that
    `inputs` need.

    Raises `SchemaError` for anything else.
    """
    if isinstance(batch, pa.RecordBatch):
        return pa.Table.from_batches([batch])
    if isinstance(batch, pa.Table):
        return batch
    import polars as pl

    if isinstance(batch, (pl.LazyFrame, pl.DataFrame)):
        return _of_polars(batch, inputs)
    raise SchemaError(f"A batch is a pyarrow Table or RecordBatch or a Polars frame, not {type(batch).__name__}.")


def _of_polars(frame: pl.LazyFrame | pl.DataFrame, inputs: Iterable[Leaf]) -> pa.Table:
    """Converts only the columns that are read: Arrow has no type for some others, and converting texts copies them."""
    import polars as pl
    from polars.selectors import by_name

    read = {column_key(name) for leaf in inputs for name in (leaf.name, path_parts(leaf.name)[0])}
    names = [name for name in frame.collect_schema().names() if column_key(name) in read]
    # by their exact names: `select` takes "*" and "^...$" for patterns
    selected = frame.select(by_name(names) if names else pl.len())
    chosen = selected.collect() if isinstance(selected, pl.LazyFrame) else selected
    if not names:  # rows without columns
        return pa.table([pa.nulls(chosen.item())], [""])
    for name, kind in chosen.schema.items():
        if kind == pl.Object:  # Polars converts it to the addresses of the objects, as binary values
            raise SchemaError(f"The batch's column {name} has Python objects (Object); cast it to a type with values.")
    try:
        return chosen.to_arrow()
    except pa.ArrowException as error:
        kinds = ", ".join(f"{name} {kind}" for name, kind in chosen.schema.items())
        raise SchemaError(f"Arrow has no type for a column of the batch ({kinds}): {error}") from None


def find_column(table: pa.Table, leaf: Leaf) -> pa.Array:
    """The leaf's column: by the leaf's exact name, or a column in any spelling, or a field of a struct column. Raises
    `SchemaError` if there is none."""
    exact = table.schema.get_all_field_indices(leaf.name)
    if len(exact) == 1:
        return in_one_chunk(table.column(exact[0]))
    parts = path_parts(leaf.name)
    column = number_of(table.schema, parts[0], column_key)
    if column is None:
        what = f"the derived column {leaf.name} ({leaf.text})" if leaf.text else f"the column {leaf.name}"
        if sum(column_key(name) == column_key(parts[0]) for name in table.column_names) > 1:
            raise SchemaError(
                f"The batch has several columns {parts[0]}, and the rules read {what}; rename the others."
            )
        raise SchemaError(f"The batch lacks {what}, {leaf.type}, which the rules read.")
    values = in_one_chunk(table.column(column))
    for part in parts[1:]:
        try:
            values = field_of(values, part)
        except KeyError:
            name = table.schema.field(column).name
            raise SchemaError(f"The batch's column {name} has no field {part}; the rules read {leaf.name}.") from None
    return values


def read_leaf(table: pa.Table, leaf: Leaf) -> Evaluated | np.ndarray:
    """A leaf's values in exactly its type, and the rows on which evaluating them raised.

    A derived column may be passed in two forms that say so: a Boolean one as int8 truth codes (0 FALSE, 1 TRUE, 2 NULL,
    3 raised), which are returned as an array; and any as a struct of one field that is NULL where evaluation raised.
    Raises `SchemaError` for a column that is missing or of another type.
    """
    column = find_column(table, leaf)
    if leaf.text is not None:
        if pa.types.is_boolean(leaf.type) and pa.types.is_int8(column.type):
            if column.null_count or (len(column) and (pc.min(column).as_py() < 0 or pc.max(column).as_py() > 3)):
                raise SchemaError(
                    f"The derived column {leaf.name} of the condition {leaf.text} holds codes other than 0 to 3."
                )
            return column.to_numpy(zero_copy_only=False)
        if pa.types.is_struct(column.type) and column.type.num_fields == 1:
            raised = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
            return Evaluated(_typed(pc.struct_field(column, [0]), leaf), raised)
    return Evaluated(_typed(column, leaf), None)


def truth_values(codes: np.ndarray) -> Evaluated:
    """Boolean values of int8 truth codes, and the rows on which evaluating them raised."""
    values = pa.array(codes == 1, mask=codes >= 2)
    raised = codes == 3
    return Evaluated(values, raised if raised.any() else None)


def _typed(column: pa.Array, leaf: Leaf) -> pa.Array:
    if not _same_type(column.type, leaf.type):
        raise SchemaError(f"The batch's column {leaf.name} is {column.type}; the rules were compiled for {leaf.type}.")
    try:
        return plain_nested(column, leaf.type) if pa.types.is_nested(leaf.type) else plain(column, leaf.type)
    except pa.ArrowException as error:
        raise SchemaError(
            f"The batch's column {leaf.name} is {column.type} and has values that {leaf.type}, which it is for the "
            f"rules, cannot hold: {error}"
        ) from None


def _same_type(actual: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether two types are the same to Spark."""
    t = pa.types
    if t.is_dictionary(actual):
        return _same_type(actual.value_type, wanted)
    if t.is_nested(wanted):
        return is_nested_as(actual, wanted)
    return bool(actual == wanted or normalise(actual) == wanted)


def inputs_of(attributes: Iterable[Expression]) -> tuple[Leaf, ...]:
    """The distinct leaves that attributes read, by name."""
    leaves = {leaf.name: leaf for attribute in attributes for leaf in leaves_of(attribute)}
    return tuple(leaves[name] for name in sorted(leaves))
