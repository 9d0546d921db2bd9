"""What an index keeps of the rules that it was compiled from, so that the next version can be made of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rules_index.index.conjunction_arrays import require

DIGEST_BYTES = 16
"""Of a rule's digest: two rules of one digest are 2**64 attempts away."""
_BLOCK = 1 << 16
"""Texts that are compressed together."""
TEXTS = pa.schema([("expression", pa.large_string()), ("valid_from", pa.int64()), ("valid_to", pa.int64())])
"""Of each rule its text, and its bounds in microseconds since the epoch."""


@dataclass(frozen=True)
class RuleSource:
    """The rules of a full compile.

    schema   of the rows that they are about
    digests  [rules, `DIGEST_BYTES`] uint8, of each rule's id, text and bounds
    packed   the rules' `TEXTS` as a stream of Arrow's, compressed
    """

    schema: pa.Schema
    digests: np.ndarray
    packed: pa.Buffer

    def texts(self) -> pa.Table:
        """The rules' `TEXTS`; `InvalidArraysError` where they are not of as many rules as there are digests."""
        table = pa.ipc.open_stream(self.packed).read_all()
        table.validate(full=True)
        require(table.schema == TEXTS and table.num_rows == len(self.digests), "texts")
        require(table.column("expression").null_count == 0, "texts")
        return table


def packed(expressions: pa.LargeStringArray, valid_from: pa.Array | None, valid_to: pa.Array | None) -> pa.Buffer:
    """Rules' `TEXTS` as `RuleSource` keeps them; bounds are None where no rule has any."""
    count = len(expressions)
    bounds = [pa.nulls(count, pa.int64()) if each is None else each for each in (valid_from, valid_to)]
    options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, TEXTS, options=options) as writer:
        writer.write_table(pa.table([expressions, *bounds], schema=TEXTS), max_chunksize=_BLOCK)
    return sink.getvalue()
