"""Texts of rules with bytes that are no text in UTF-8, as another writer may leave them in a file."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from pipelines.authoring.versions import rules_of
from pipelines.compile import compile_scopes
from pipelines.compiling.due import compile_is_due
from tests.tables import rewrite_files


def test_rules_with_bytes_that_are_no_text_are_rejected_alone(new_workspace, add_rules) -> None:
    workspace = new_workspace({"s": {"source": "lake/source"}}, spark=False)
    pl.DataFrame({"x": [1, 2], "s": ["a", None]}).write_delta(workspace.configuration.streams["s"].source)
    add_rules(
        workspace,
        ("good", "s", "x > 1"),
        ("text", "s", "s = '~'"),
        ("~", "s", "x > 1"),
        ("scope", "~", "x > 1"),
        {"rule_id": "noted", "scope": "s", "expression": "x = 1", "owner": "~", "labels": {"~": "~"}},
    )
    rewrite_files(workspace.lake.uri("rules"), lambda rows: pa.table(list(map(broken, rows.columns)), rows.schema))
    (result,) = compile_scopes(workspace)
    assert (result.state, result.rules, result.rejects) == ("compiled", 4, 2)
    assert not compile_is_due(workspace, "s")
    found = pl.DataFrame(pl.from_arrow(workspace.lake.arrow("rule_rejects"))).sort("rule_id", nulls_last=True)
    assert found.select("rule_id", "scope").rows() == [("scope", None), ("text", "s"), (None, "s")]
    assert all("not UTF-8" in message for message in found["message"])
    rules = rules_of(workspace.lake, workspace.lake.delta("rules"))
    assert rules.filter(pl.col("rule_id") == "noted").select("owner", "expression").rows() == [(None, "x = 1")]


def broken(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with the byte FF, which no text in UTF-8 has, in place of each `~`."""
    buffers = [None if each is None else each.to_pybytes() for each in column.combine_chunks().buffers()]
    if pa.types.is_string(column.type):
        buffers[2] = (buffers[2] or b"").replace(b"~", b"\xff")
        return pa.chunked_array([pa.Array.from_buffers(column.type, len(column), list(map(in_arrow, buffers)))])
    if pa.types.is_map(column.type):
        maps = column.combine_chunks()
        sides = [broken(pa.chunked_array([each])).combine_chunks() for each in (maps.keys, maps.items)]
        items = pa.StructArray.from_arrays(sides, fields=[column.type.key_field, column.type.item_field])
        return pa.chunked_array(
            [pa.Array.from_buffers(column.type, len(maps), maps.buffers()[:2], maps.null_count, 0, [items])]
        )
    return column


def in_arrow(data: bytes | None) -> pa.Buffer | None:
    return None if data is None else pa.py_buffer(data)
