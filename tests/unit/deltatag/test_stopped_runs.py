"""What is told, and judged, of a stream that tags some rows and then stops."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable

from deltatag.__main__ import main
from tests.unit.deltatag.small_lake import rules


@pytest.fixture
def stopping(folder: Path, capsys) -> Path:
    """A source that has rows for a micro-batch, and then a commit that deleted some."""
    rules(("a", "s", "x > 1"))
    assert main(["run"]) == 0
    pl.DataFrame({"id": [3, 4], "x": [3, 4]}).write_delta("source", mode="append")
    DeltaTable("source").delete("id = 1")
    capsys.readouterr()
    return folder


@pytest.mark.slow
def test_a_run_tells_and_judges_what_it_tagged_before_it_stopped(stopping: Path, capsys) -> None:
    assert main(["run"]) == 1
    told, failures = capsys.readouterr()
    assert told.splitlines()[0].startswith("s: 2 rows, 2 matches, ")
    assert "quality of s_tagged: " in told
    assert failures.startswith("deltatag: s: Version 2 of the source of the stream s ")


@pytest.mark.slow
def test_tag_tells_what_it_did_and_why_it_stopped_in_one_object(stopping: Path, capsys) -> None:
    assert main(["tag", "--json"]) == 1
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["stream"], told["batches"], told["rows"], told["matches"]) == ("s", 1, 2, 2)
    assert told["error"].startswith("Version 2 of the source of the stream s ")
    assert main(["tag", "--json"]) == 1
    assert [set(each) for each in json.loads(capsys.readouterr().out)] == [{"stream", "error"}]
