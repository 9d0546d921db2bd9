"""Re-tags by Spark of joined rows, and of rows that are older than a column."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pipelines.compile import compile_scopes
from pipelines.errors import ConfigurationError
from pipelines.join import join_streams
from pipelines.lake.runs import batches
from pipelines.retag import retag
from pipelines.tag import tag_stream
from tests.spark.retagged import tags
from tests.tables import rows_of
from tests.unit.pipelines.retagged_rows import write_rules


def test_a_column_that_came_after_the_rows(new_workspace) -> None:
    workspace = new_workspace({"s": {"source": "lake/source"}}, id_type="bigint")
    source, numbers = workspace.configuration.streams["s"].source, range(20)
    write_deltalake(source, pa.table({"seq": numbers, "n": [n % 5 for n in numbers]}))
    write_rules(workspace, {1: "n > 2", 2: "n < 2"})
    tag_stream(workspace, "s")
    numbers = range(20, 30)
    later = pa.table({"seq": numbers, "n": [n % 5 for n in numbers], "extra": numbers})
    write_deltalake(source, later, mode="append", schema_mode="merge")
    write_rules(workspace, {1: "n > 2", 3: "extra IS NULL AND seq < 10"})
    retag(workspace, "s")
    assert tags(workspace) == {seq: [1] * (seq % 5 > 2) + [3] * (seq < 10) for seq in range(20)}


def test_joined_rows(new_workspace, add_rules) -> None:
    streams = {name: {"source": f"lake/{name}", "event_time": "t"} for name in ("a", "b")}
    workspace = new_workspace(streams, joins={"j": {"streams": ["a", "b"], "on": ["k"], "window": "1 hour"}})
    for name in streams:
        times = pa.array([1_709_942_400_000_000 + n * 60_000_000 for n in range(40)], pa.timestamp("us", "UTC"))
        table = pa.table({"k": [n % 5 for n in range(40)], "t": times, "v": range(40)})
        write_deltalake(workspace.configuration.streams[name].source, table)
    add_rules(workspace, ("low", "j", "a.v < 10 AND b.v < 10"), ("high", "j", "a.v > 35 AND b.v > 30"))
    compile_scopes(workspace)
    join_streams(workspace, "j")

    def joined() -> Counter:
        return Counter(repr((row["a"]["v"], row["b"]["v"], row["rule_ids"])) for row in rows_of(workspace, "j_tagged"))

    workspace.lake.delta("rules").delete("rule_id = 'low'")
    compile_scopes(workspace)
    assert retag(workspace, "j").rows_changed > 0
    assert {batch.batch for batch in batches(workspace.lake, "j")} == {0}
    removed = joined()
    edited = {"expression": "a.v > 30 AND b.v > 35"}
    workspace.lake.delta("rules").update(new_values=edited, predicate="rule_id = 'high'")
    compile_scopes(workspace)
    assert retag(workspace, "j").notices
    changed = joined()
    join_streams(workspace, "j", restart=True)
    assert joined() == changed != removed
    assert retag(workspace, "j").rows_changed == 0
    with pytest.raises(ConfigurationError):
        retag(workspace, "j", "2024-01-01")
