"""The indexes of edited rules share a file with the last full compile."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import rules_index as ri
from pipelines.compile import compile_scopes
from pipelines.compiling import changes
from pipelines.errors import IndexDamagedError
from pipelines.lake.index_store import fetch_index, newest_index
from pipelines.maintain import maintain
from rules_index.compiling import update
from rules_index.index import shared_files


@pytest.mark.slow
def test_edits_share_the_rules_of_the_last_full_compile(
    new_workspace: Any, add_rules: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upkeep keeps the index that holds them, it is checked, and a compile by force needs none of it."""
    for module, name, value in (
        (update, "FEW_RULES", 0),
        (changes, "LEAST_RULES", 1),
        (shared_files, "SHARED_BYTES", 0),
    ):
        monkeypatch.setattr(module, name, value)
    workspace = new_workspace({"s": {"source": "lake/source"}}, spark=False)
    pl.DataFrame({"x": [1, 2, None]}).write_delta(workspace.configuration.streams["s"].source)
    add_rules(workspace, *((f"r{number}", "s", f"x = {number}") for number in range(300)))
    compile_scopes(workspace)
    first = newest_index(workspace.lake, "s")
    for number in range(3):
        add_rules(workspace, (f"new{number}", "s", f"x > {number}"))
        compile_scopes(workspace, ["s"])
    stored = newest_index(workspace.lake, "s")
    assert first is not None and stored is not None
    assert stored.shared_files == [f"{first.sha256}.index"] and stored.bytes < first.bytes
    object.__setattr__(workspace.lake.settings.maintenance, "versions", 0)
    maintain(workspace)
    left = workspace.lake.arrow("rule_index", ["sha256"], [("scope", "s")])
    assert set(left["sha256"].to_pylist()) == {first.sha256, stored.sha256}
    shared = fetch_index(workspace.lake, stored).with_name(stored.shared_files[0])
    shared.write_bytes(b"damaged")
    assert len(ri.load(fetch_index(workspace.lake, stored))) == 303
    workspace.lake.delta("rule_index").delete(f"sha256 = '{first.sha256}'")
    shared.unlink()
    with pytest.raises(IndexDamagedError, match="compile s --force"):
        fetch_index(workspace.lake, stored)
    assert compile_scopes(workspace, ["s"], force=True)[0].state == "compiled"
    again = newest_index(workspace.lake, "s")
    assert again is not None and (again.shared_files, again.fingerprint) == ([], stored.fingerprint)
