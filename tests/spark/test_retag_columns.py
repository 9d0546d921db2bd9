"""Re-tags after columns of the source have changed: rules that do not name them go on, others are told what to do."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pipelines.errors import SourceChangedError
from pipelines.retag import retag
from pipelines.tag import tag_stream
from tests.tables import columns_of
from tests.unit.pipelines.retagged_rows import structs, write_rules

STREAM = {"source": "lake/source", "key": ["id"]}


def tagged(new_workspace: Any, count: int, rules: dict[str, str], **options: str) -> tuple[Any, str]:
    """A workspace whose stream `s` has tagged rows with a STRUCT of one field, and the stream's source."""
    workspace = new_workspace({"s": {**STREAM, **options}}, runner="local")
    source: str = workspace.configuration.streams["s"].source
    write_deltalake(source, structs(range(count), "x"))
    write_rules(workspace, rules)
    tag_stream(workspace, "s")
    return workspace, source


# tests/unit/pipelines/test_local_retag.py has a table of all rows
def test_a_field_that_a_struct_gets_stops_no_retag_of_matched_rows(new_workspace) -> None:
    workspace, source = tagged(new_workspace, 9, {"same": "n > 2"}, output="matched")
    write_deltalake(source, structs(range(0), "x", "z"), mode="append", schema_mode="merge")
    write_rules(workspace, {"same": "n > 2", "new": "n < 2"})
    assert retag(workspace, "s").rows_changed == 2
    ids = dict(columns_of(workspace, "s_tagged", "id", "rule_ids"))
    assert ids == {**{n: ["new"] for n in range(2)}, **{n: ["same"] for n in range(3, 9)}}
    write_rules(workspace, {"same": "n > 2", "new": "n < 2", "named": "u.x = 2"})
    assert retag(workspace, "s").rows_changed == 1


def test_a_field_that_the_tagged_table_does_not_have_yet(new_workspace) -> None:
    workspace, source = tagged(new_workspace, 3, {"r": "u.x > 0"})
    write_deltalake(source, structs(range(0), "x", "z"), mode="append", schema_mode="merge")
    write_rules(workspace, {"r": "u.x > 0", "z": "u.z IS NULL"})
    with pytest.raises(SourceChangedError, match=r"read u\.z, which s_tagged does not have yet\. .*deltatag tag s"):
        retag(workspace, "s")
    write_deltalake(source, structs(range(3, 5), "x", "z"), mode="append")
    tag_stream(new_workspace({"s": STREAM}), "s")  # Spark gives the table the field
    assert retag(workspace, "s").rows_changed == 3
    assert dict(columns_of(workspace, "s_tagged", "id", "rule_ids")) == {
        0: ["z"], 1: ["r", "z"], 2: ["r", "z"], 3: ["r"], 4: ["r"]
    }  # fmt: skip


def test_a_column_of_another_type_is_told(new_workspace) -> None:
    workspace, source = tagged(new_workspace, 3, {"r": "n > 0", "x": "u.x > 1"})
    rows = structs(range(3), "x")
    wide = rows.set_column(1, "n", rows["n"].cast(pa.int64()))
    write_deltalake(source, wide, mode="overwrite", schema_mode="overwrite")
    write_rules(workspace, {"r": "n > 0", "x": "u.x > 1"})
    with pytest.raises(
        SourceChangedError, match=r"read n, which is BIGINT .* INT in s_tagged.*deltatag tag s --restart"
    ):
        retag(workspace, "s")
    tag_stream(workspace, "s", restart=True)
    assert retag(workspace, "s").rows_changed == 0
    assert sum(map(len, dict(columns_of(workspace, "s_tagged", "id", "rule_ids")).values())) == 3
