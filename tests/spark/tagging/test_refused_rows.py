"""Tagging through Spark with checks, and what stops it before the first write."""

from __future__ import annotations

import pytest

from pipelines.errors import (
    CheckError,
    NoIndexError,
    QuarantineShareError,
    SourceError,
)
from pipelines.lake.runs import batches
from pipelines.tag import tag_stream
from tests.cases import soak_rest
from tests.spark.tagging.rows import (
    STREAM,
    append,
    columns,
    source_of,
)


def test_checks_send_rows_to_quarantine_with_the_reason(prepared) -> None:
    checks = {"small": "x < 95", "named": "name <> 'n2'", "sound": "100 / (x - 50) < 1000"}
    workspace = prepared(checks=checks)
    result = tag_stream(workspace, "s")
    source = source_of(workspace)
    good = "id IS NOT NULL AND x < 95 AND name <> 'n2' AND x <> 50"
    found = {id for (id,) in columns(workspace, "s_tagged", "id")}
    assert found == {row["id"] for row in source.filter(good).select("id").collect()}
    assert len(found) == 200 - result.quarantined
    reasons = dict(columns(workspace, "quarantine_s", "id", "reason"))
    assert reasons[50] == "the check sound raised an error"
    assert reasons[97] == "the check small is FALSE; the check named is FALSE"
    assert reasons[11] == "the check named is NULL"


@pytest.mark.parametrize(
    ("condition", "message"),
    soak_rest(2, [("nope > 1", "nope"), ("x > rand()", "rand"), ("x", "check bad"), ("x > > 1", "check bad")]),
)
def test_a_check_that_cannot_be_used(prepared, condition: str, message: str) -> None:
    workspace = prepared(checks={"bad": condition})
    with pytest.raises(CheckError, match=message):
        tag_stream(workspace, "s")
    assert batches(workspace.lake, "s") == []


def test_too_large_a_share_in_quarantine_stops_before_the_first_write(prepared, new_workspace) -> None:
    workspace = prepared(max_quarantine_share=0.01)
    with pytest.raises(QuarantineShareError, match="10 of the next 200 rows"):
        tag_stream(workspace, "s")
    assert batches(workspace.lake, "s") == []
    assert tag_stream(new_workspace({"s": STREAM}), "s").rows == 200


def test_without_an_index(new_workspace, spark) -> None:
    workspace = new_workspace({"s": STREAM})
    with pytest.raises(SourceError, match="has no source"):
        tag_stream(workspace, "s")
    append(spark, workspace, 0, 10)
    with pytest.raises(NoIndexError, match="deltatag compile s"):
        tag_stream(workspace, "s")
