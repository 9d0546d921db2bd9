"""Partitions by dates of any year, and by what only Spark reads, where rows go to quarantine."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pipelines.compile import compile_scopes
from pipelines.errors import SparkRuledOutError
from pipelines.lake.table_log import table_log
from pipelines.retag import retag
from pipelines.tag import tag_stream
from rules_index.workers.delta_file_writer import partition_text
from rules_index.workers.source_file_reader import partition_value

DAYS = (-720_000, -719_529, -719_163, 0, 2_932_896, 2_932_897, 400_000_000)
"""Days since 1970. Python's dates end on the sixth one."""
TEXTS = ("-0002-09-16", "-0001-12-31", "0000-12-31", "1970-01-01", "9999-12-31", "+10000-01-01", "+1097132-10-21")
STREAM = {"source": "lake/source", "key": ["k"]}


@pytest.mark.parametrize(("days", "text"), list(zip(DAYS, TEXTS, strict=True)))
def test_dates_of_any_year_are_written_and_read(days: int, text: str) -> None:
    value = pa.scalar(days, pa.int32()).cast(pa.date32())
    assert partition_text(value) == text
    assert partition_value(text, pa.date32()) == value


def test_rows_are_partitioned_by_dates_of_any_year(new_workspace, add_rules) -> None:
    workspace = new_workspace({"s": {**STREAM, "partition_by": ["day"]}}, runner="local", spark=False)
    rows = {"k": [None, *"abcdef"], "day": pa.array([0, *DAYS[:-1]], pa.int32()).cast(pa.date32())}
    write_deltalake(workspace.configuration.streams["s"].source, pa.table(rows))
    add_rules(workspace, ("early", "s", "day < DATE'0001-01-01'"))
    compile_scopes(workspace)
    assert tag_stream(workspace, "s").matches == 3
    log = table_log(workspace.lake.uri("s_tagged"))
    added = [action["add"] for version in log.commits() for action in log.commit(version) or () if "add" in action]
    texts = {add["partitionValues"]["day"] for add in added}
    assert texts == set(TEXTS[:-1])


def test_a_source_that_is_partitioned_by_such_dates_needs_no_spark(new_workspace, add_rules) -> None:
    workspace = new_workspace({"s": STREAM}, runner="local", spark=False)
    days = [0, *DAYS[2:-1]]
    rows = pa.table({"k": [None, *"abcd"], "day": pa.array(days, pa.int32()).cast(pa.date32())})
    write_deltalake(workspace.configuration.streams["s"].source, rows, partition_by=["day"])
    add_rules(workspace, ("far", "s", "day > DATE'9999-12-31'"))
    compile_scopes(workspace)
    found = tag_stream(workspace, "s")
    assert (found.rows, found.matches, found.quarantined) == (5, 1, 1)
    add_rules(workspace, ("early", "s", "day < DATE'0001-01-01'"))
    compile_scopes(workspace)
    assert retag(workspace, "s").rows_changed == 1


def test_spark_writes_the_refused_rows_of_a_file_that_it_alone_reads(new_workspace, add_rules) -> None:
    workspace = new_workspace({"s": {**STREAM, "partition_by": []}}, runner="local", spark=False)
    rows = pa.table({"k": [None, "a"], "part": [1.5, 2.5]})
    write_deltalake(workspace.configuration.streams["s"].source, rows, partition_by=["part"])
    add_rules(workspace, ("all", "s", "TRUE"))
    compile_scopes(workspace)
    with pytest.raises(SparkRuledOutError, match="a partition by double is read by Spark alone"):
        tag_stream(workspace, "s")
