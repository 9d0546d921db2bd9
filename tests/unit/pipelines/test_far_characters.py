"""Characters beyond the first 65,536 in partitions and statistics, as delta-rs reads them from the log."""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from pipelines.compile import compile_scopes
from pipelines.retag import retag
from pipelines.tag import tag_stream

TEXT = "\U00020bb7"
STREAM = {"source": "lake/source", "partition_by": ["p"]}


def held(workspace) -> list[dict[str, str]]:
    """What delta-rs says of the files of the tagged table."""
    rows = pa.table(DeltaTable(workspace.lake.uri("s_tagged")).get_add_actions(flatten=True)).to_pylist()
    return [{name: row[name] for name in ("partition.p", "min.x", "max.x")} for row in rows]


def test_other_clients_read_them_as_they_are(new_workspace, add_rules) -> None:
    workspace = new_workspace({"s": STREAM}, runner="local", spark=False)
    rows = pa.table({"p": [TEXT], "x": [TEXT]})
    write_deltalake(workspace.configuration.streams["s"].source, rows)
    add_rules(workspace, ("all", "s", "TRUE"))
    compile_scopes(workspace)
    tag_stream(workspace, "s")
    as_written = [{"partition.p": TEXT, "min.x": TEXT, "max.x": TEXT}]
    assert held(workspace) == as_written
    add_rules(workspace, ("same", "s", f"p = '{TEXT}'"))
    compile_scopes(workspace)
    assert retag(workspace, "s").rows_changed == 1
    assert held(workspace) == as_written
