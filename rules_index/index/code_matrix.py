"""Encodes a batch of rows: from columns to the code matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from rules_index.domains.region_codes import Regions
from rules_index.errors import SchemaError
from rules_index.index.inputs import as_table, read_leaf, truth_values
from rules_index.index.pattern_groups import groups_of, is_pattern
from rules_index.kernels.bitmaps import COARSE_CODES
from rules_index.language.evaluation.evaluated import Evaluated
from rules_index.language.typed import Expression, Leaf, leaves_of
from rules_index.names import path_parts

if TYPE_CHECKING:
    import polars as pl

    from rules_index.index.computed_codes import Computed

CHUNK_ROWS = 1 << 16
"""The most rows that are encoded at a time, so that the memory for codes does not grow with the batch."""
LEAST_CHUNK_ROWS = 1 << 10
"""The rows that are encoded at a time even if their codes take more than `CODE_BYTES`: fewer would take much longer."""
CODE_BYTES = 1 << 28
"""The most memory for codes: rules may read tens of thousands of attributes, and one rule may have as many patterns."""
Values = Mapping[str, Evaluated | np.ndarray]
"""Columns by leaf name. The column of a Boolean leaf that only Spark evaluates may be an array of truth codes
(`inputs.read_leaf`)."""
Sample: TypeAlias = "Callable[[list[str]], pa.Table | pl.DataFrame | None]"
"""A function that takes names of columns and returns some rows with at least these columns (`index.build.SAMPLE_ROWS`
suffice), or None if there are no rows."""


def rows_at_once(regions: Sequence[Regions]) -> int:
    """How many rows of attributes with these regions are encoded at a time."""
    a_row = len(regions) * _code_type(regions).itemsize
    return max(LEAST_CHUNK_ROWS, min(CHUNK_ROWS, CODE_BYTES // max(1, a_row)))


def _code_type(regions: Sequence[Regions]) -> np.dtype[Any]:
    return np.dtype(np.uint8 if all(each.size <= COARSE_CODES for each in regions) else np.int32)


def code_matrix(
    attributes: Sequence[Expression], regions: Sequence[Regions], inputs: Sequence[Leaf], table: pa.Table
) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """Returns the code matrix [attributes, rows]; and for each attribute that raised, by number, on which rows, [rows]
    bool. Codes are uint8 if no attribute has more than `COARSE_CODES`, else int32.

    regions: one for each attribute. inputs: all leaves that the attributes read. Raises `SchemaError` if the table
    lacks one.
    """
    return codes_of_values(attributes, regions, {leaf.name: read_leaf(table, leaf) for leaf in inputs}, table.num_rows)


def code_matrices(
    attributes: Sequence[Expression], regions: Sequence[Regions], inputs: Sequence[Leaf], table: pa.Table
) -> Iterator[tuple[np.ndarray, dict[int, np.ndarray]]]:
    """Yields what `code_matrix` returns, for all rows of the table; or for halves of them, and halves of these, if the
    texts of a column take more than the 2 GiB that an array holds."""
    rows = table.num_rows
    try:
        found = code_matrix(attributes, regions, inputs, table)
    except (pa.ArrowException, SchemaError):
        if rows < 2:
            raise
        found = None
    if found is not None:
        yield found
        return
    # not within `except`, so that an error of the halves does not show those of the whole before it
    for start, stop in ((0, rows // 2), (rows // 2, rows)):
        yield from code_matrices(attributes, regions, inputs, table.slice(start, stop - start))


def codes_of_values(
    attributes: Sequence[Expression], regions: Sequence[Regions], read: Values, rows: int
) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """Like `code_matrix`, given the values of each leaf by its name."""
    code_type = _code_type(regions)
    as_bytes = code_type == np.uint8
    codes = np.empty((len(attributes), rows), code_type)
    # encoded to a scratch column first: the encoding kernels are compiled for int32 only
    scratch = np.empty(rows if as_bytes else 0, np.int32)
    raised: dict[int, np.ndarray] = {}
    computed: Computed | None = None
    done = _write_patterns(attributes, regions, read, codes)
    for number, attribute in enumerate(attributes):
        if number in done:
            continue
        column = scratch if as_bytes else codes[number]
        given = read[attribute.name] if isinstance(attribute, Leaf) else None
        if isinstance(given, np.ndarray):
            regions[number].encode_truth(given, column)
            failed = given == 3
        elif given is not None:
            regions[number].encode(given.values, given.raised, column)
            failed = given.raised
        else:
            computed = computed or _computed(rows)
            failed = _encode_computed(attribute, regions[number], read, computed, column)
        if as_bytes:
            codes[number] = column
        if failed is not None and failed.any():
            raised[number] = failed
    return codes, raised


def _write_patterns(
    attributes: Sequence[Expression], regions: Sequence[Regions], read: Values, codes: np.ndarray
) -> frozenset[int]:
    """Writes the codes of attributes in pattern groups (many patterns over one column). Returns the numbers of these
    attributes."""
    done: set[int] = set()
    patterns = [(number, each) for number, each in enumerate(attributes) if is_pattern(each)]
    truth_codes = np.empty(3, np.int32)
    for group in groups_of(tuple(each for _, each in patterns)):
        given = read[group.leaf.name]
        if isinstance(given, np.ndarray) or given.raised is not None or pa.types.is_dictionary(given.values.type):
            continue
        rows, truths = group.truths(given.values)
        nulls = np.flatnonzero(rows < 0)
        numbers = [patterns[place][0] for place in group.numbers]
        for place, number in zip(group.numbers, numbers, strict=True):
            regions[number].encode_truth(np.arange(3, dtype=np.int8), truth_codes)
            truth = truths.get(place)
            if truth is None:
                codes[number] = truth_codes[0]
                codes[number, nulls] = truth_codes[2]
            else:
                codes[number] = truth_codes.astype(codes.dtype)[truth][rows]
        done.update(numbers)
    return frozenset(done)


def _computed(rows: int) -> Computed:
    # imported here: most indexes have no computed attribute
    from rules_index.index.computed_codes import Computed

    return Computed(rows)


def _encode_computed(
    expression: Expression, regions: Regions, read: Values, computed: Computed, out: np.ndarray
) -> np.ndarray | None:
    """Writes the codes of a computed attribute into `out` [rows] int32. Returns on which rows it raised, [rows] bool,
    or None for none."""
    for leaf in leaves_of(expression):
        if leaf.name not in computed.values:
            given = read[leaf.name]
            computed.values[leaf.name] = truth_values(given) if isinstance(given, np.ndarray) else given
    return computed.encode(expression, regions, out)


def sample_codes(
    attributes: Sequence[Expression], regions: Sequence[Regions], inputs: Sequence[Leaf], sample: Sample
) -> np.ndarray | None:
    """The code matrix of a sample of rows; None if there is no sample.

    A sample lacks values that only Spark can evaluate; attributes that need one get uniformly random codes.
    """
    rows = sample(sorted({path_parts(leaf.name)[0] for leaf in inputs if leaf.text is None}))
    table = as_table(rows, inputs) if rows is not None else None
    if table is None or not table.num_rows:
        return None
    for leaf in inputs:
        if leaf.text is not None:
            table = table.append_column(leaf.name, pa.nulls(table.num_rows, leaf.type))
    codes, _ = code_matrix(attributes, regions, inputs, table)
    draw = np.random.default_rng(0)
    for number, attribute in enumerate(attributes):
        if any(leaf.text is not None for leaf in leaves_of(attribute)):
            codes[number] = draw.integers(0, regions[number].size, table.num_rows)
    return codes
