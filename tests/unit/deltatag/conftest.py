"""What tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from deltatag.__main__ import main
from tests.unit.deltatag.small_lake import STREAM


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Path:
    """A working directory with a lake and a source."""
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    with Path("deltatag.toml").open("a") as file:
        file.write(STREAM)
    pl.DataFrame({"id": [1, 2], "x": [1, 2]}).write_delta("source")
    capsys.readouterr()
    return tmp_path
