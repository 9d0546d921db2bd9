"""A lake without streams: each verb says what to configure first."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltatag.__main__ import main


@pytest.mark.parametrize("verb", ["run", "compile", "tag", "retag", "lint", "report", "status"])
def test_each_verb_says_what_to_configure(tmp_path: Path, verb: str, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    capsys.readouterr()
    assert main([verb]) == 0
    assert capsys.readouterr().out == "No stream is configured yet: name one under [streams] in the configuration.\n"
