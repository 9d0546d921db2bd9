"""The texts that an index was compiled from, compressed. Matching does not read them; explaining a rule reads only its
block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

BLOCK = 1 << 11
"""The number of rules that are compressed together."""
_COLUMNS = pa.schema([("expression", pa.large_string()), ("valid_from", pa.int64()), ("valid_to", pa.int64())])


@dataclass(frozen=True)
class RuleText:
    """What a rule's author wrote. Bounds are in microseconds since the epoch, None for unbounded."""

    expression: str
    valid_from: int | None
    valid_to: int | None


class KeptTexts(Protocol):
    """The texts of the rules of an index."""

    def rule(self, ordinal: int) -> RuleText:
        """The text of a rule. Raises `pa.ArrowException`, `LookupError` or `ValueError` for malformed bytes."""

    def table(self, rules: int) -> pa.Table:
        """Expression, valid_from and valid_to of all rules, by ordinal. Raises `pa.ArrowException`, `OSError` or
        `ValueError` for malformed bytes, or if there are not so many rules."""

    def columns(self) -> pa.Schema:
        """The schema of the columns that the rules were written over. Raises `pa.ArrowException` or `OSError` for
        malformed bytes."""


@dataclass(frozen=True)
class RuleTexts:
    """The texts and bounds of an index's rules, by ordinal, and the schema of the columns that they were written over.

    schema: serialised by Arrow. blocks: Arrow IPC streams, compressed by zstd, of `BLOCK` rules each.
    """

    schema: bytes | memoryview
    blocks: Sequence[bytes | memoryview]

    @classmethod
    def pack(
        cls,
        expressions: pa.LargeStringArray,
        valid_from: pa.Int64Array | None,
        valid_to: pa.Int64Array | None,
        schema: pa.Schema,
    ) -> RuleTexts:
        """Compresses the rules' columns [rules], by ordinal. valid_from, valid_to: None if no rule has such a bound."""
        nothing = pa.nulls(len(expressions), pa.int64()) if valid_from is None or valid_to is None else None
        columns = [
            expressions,
            nothing if valid_from is None else valid_from,
            nothing if valid_to is None else valid_to,
        ]
        table = pa.table(columns, schema=_COLUMNS)
        blocks = [_packed(table.slice(first, BLOCK)) for first in range(0, len(expressions), BLOCK)]
        return cls(schema.remove_metadata().serialize().to_pybytes(), blocks)

    def rule(self, ordinal: int) -> RuleText:
        """The text of a rule. Raises `pa.ArrowException`, `LookupError` or `ValueError` for malformed bytes."""
        with pa.ipc.open_stream(pa.py_buffer(self.blocks[ordinal // BLOCK])) as reader:
            if reader.schema != _COLUMNS:
                raise ValueError("texts")
            table = reader.read_all()
        table.validate(full=True)
        row = table.slice(ordinal % BLOCK, 1).to_pylist()[0]
        return RuleText(str(row["expression"]), row["valid_from"], row["valid_to"])

    def table(self, rules: int) -> pa.Table:
        """Expression, valid_from and valid_to of all rules, by ordinal. Raises `pa.ArrowException`, `OSError` or
        `ValueError` for malformed bytes, or if there are not so many rules."""
        tables = [pa.ipc.open_stream(pa.py_buffer(block)).read_all() for block in self.blocks]
        if any(table.schema != _COLUMNS for table in tables):
            raise ValueError("texts")
        table = pa.concat_tables([_COLUMNS.empty_table(), *tables])
        table.validate(full=True)
        if table.num_rows != rules or table.column("expression").null_count:
            raise ValueError("texts")
        return table

    def columns(self) -> pa.Schema:
        """The schema of the columns that the rules were written over. Raises `pa.ArrowException` or `OSError` for
        malformed bytes."""
        return pa.ipc.read_schema(pa.py_buffer(self.schema))


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _COLUMNS, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table.combine_chunks())
    data: bytes = sink.getvalue().to_pybytes()
    return data
