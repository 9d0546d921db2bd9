"""The indexes of edited rules share a file with the last full compile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import rules_index as ri
from pipelines.compile import compile_scopes
from pipelines.compiling import changes, incremental, storing
from pipelines.errors import IndexDamagedError
from pipelines.lake.index_store import fetch_index, newest_index
from pipelines.maintain import maintain
from pipelines.workspace import Workspace
from rules_index.compiling import update
from rules_index.index import shared_files


@pytest.fixture
def edited(new_workspace: Any, add_rules: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A lake with 300 compiled rules, whose edits are compiled alone and share the index."""
    for module, name, value in (
        (update, "FEW_RULES", 0),
        (changes, "LEAST_RULES", 1),
        (shared_files, "SHARED_BYTES", 0),
    ):
        monkeypatch.setattr(module, name, value)
    found = new_workspace({"s": {"source": "lake/source"}}, spark=False)
    pl.DataFrame({"x": [1, 2, None]}).write_delta(found.configuration.streams["s"].source)
    add_rules(found, *((f"r{number}", "s", f"x = {number}") for number in range(300)))
    compile_scopes(found)
    return found


@pytest.mark.slow
def test_edits_share_the_rules_of_the_last_full_compile(edited: Any, add_rules: Any) -> None:
    """Upkeep keeps the index that holds them, it is checked, and a compile by force needs none of it."""
    first = newest_index(edited.lake, "s")
    for number in range(3):
        add_rules(edited, (f"new{number}", "s", f"x > {number}"))
        compile_scopes(edited, ["s"])
    stored = newest_index(edited.lake, "s")
    assert first is not None and stored is not None
    assert stored.shared_files == [f"{first.sha256}.index"] and stored.bytes < first.bytes
    object.__setattr__(edited.lake.settings.maintenance, "versions", 0)
    maintain(edited)
    left = edited.lake.arrow("rule_index", ["sha256"], [("scope", "s")])
    assert set(left["sha256"].to_pylist()) == {first.sha256, stored.sha256}
    shared = fetch_index(edited.lake, stored).with_name(stored.shared_files[0])
    shared.write_bytes(b"damaged")
    assert len(ri.load(fetch_index(edited.lake, stored))) == 303
    edited.lake.delta("rule_index").delete(f"sha256 = '{first.sha256}'")
    shared.unlink()
    with pytest.raises(IndexDamagedError, match="compile s --force"):
        fetch_index(edited.lake, stored)
    assert compile_scopes(edited, ["s"], force=True)[0].state == "compiled"
    again = newest_index(edited.lake, "s")
    assert again is not None and (again.shared_files, again.fingerprint) == ([], stored.fingerprint)


@pytest.mark.slow
def test_no_index_refers_to_one_that_a_compile_by_force_drops_meanwhile(edited: Any, add_rules: Any) -> None:
    add_rules(edited, ("new", "s", "x > 1"))
    save = storing.save_to_temporary_file

    def meanwhile(compiled: ri.CompiledRules) -> Path:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(storing, "save_to_temporary_file", save)
            patch.setattr(incremental, "save_to_temporary_file", save)
            edited.lake.delta("rules").delete("rule_id = 'r7'")
            assert compile_scopes(Workspace(edited.configuration, None), ["s"], force=True)[0].state == "compiled"
        return save(compiled)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(incremental, "save_to_temporary_file", meanwhile)
        (result,) = compile_scopes(edited, ["s"])
    assert result.state == "failed" and "by force; compile them again" in str(result.error)
    assert compile_scopes(edited, ["s"])[0].rules == 300
    stored = newest_index(edited.lake, "s")
    assert stored is not None and len(ri.load(fetch_index(edited.lake, stored))) == 300
