"""A run that a version of deltatag left unfinished, whose indexes the next version cannot read."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pipelines.compile import compile_scopes
from pipelines.errors import IndexOutdatedError
from pipelines.lake.folder_log import FolderLog
from pipelines.tag import tag_stream
from rules_index.index import artifact
from tests.cases import quick_first


class Killed(BaseException):
    """The process ends here."""


def of_version(patch: pytest.MonkeyPatch, name: str, version: int) -> None:
    """A deltatag whose indexes have another version of their format or language."""
    importlib.import_module("rules_index.compiling.update")  # imported only when used, and then with this version
    for module in [each for path, each in sys.modules.items() if path.startswith(("rules_index", "pipelines"))]:
        if hasattr(module, name):
            patch.setattr(module, name, version)


@pytest.mark.parametrize("writes", quick_first(2, (2, 0, 1, 3, 4)))
def test_an_unfinished_micro_batch_goes_on_or_tells_the_way_out(new_workspace, add_rules, writes: int) -> None:
    workspace = new_workspace({"s": {"source": "lake/source", "key": ["id"]}}, spark=False)
    write_deltalake(workspace.configuration.streams["s"].source, pa.table({"id": pa.array(range(9), pa.int64())}))
    add_rules(workspace, ("low", "s", "id < 3"))
    put, done = FolderLog._put, 0

    def dying(self: FolderLog, version: int, lines: Any) -> bool:
        nonlocal done
        if done > writes:  # the first one is the plan
            raise Killed
        done += 1
        return put(self, version, lines)

    with pytest.MonkeyPatch.context() as patch:
        of_version(patch, "FORMAT_VERSION", artifact.FORMAT_VERSION - 1)
        compile_scopes(workspace)
        patch.setattr(FolderLog, "_put", dying)
        with pytest.raises(Killed):
            tag_stream(workspace, "s")
    with pytest.raises(IndexOutdatedError, match=r"format.*deltatag compile s"):
        tag_stream(workspace, "s")
    assert [each.state for each in compile_scopes(workspace)] == ["compiled"]
    lake = workspace.lake
    begun = any(lake.exists(name) and lake.arrow(name, ["id"]).num_rows for name in ("s_matches", "s_tagged"))
    assert begun == (writes == 4)
    if begun:
        with pytest.raises(IndexOutdatedError, match="--restart"):
            tag_stream(workspace, "s")
    tag_stream(workspace, "s", restart=begun)
    tagged = workspace.lake.arrow("s_tagged", ["id", "rule_ids"]).to_pylist()
    assert sorted((row["id"], row["rule_ids"]) for row in tagged) == [(n, ["low"] if n < 3 else []) for n in range(9)]
    assert workspace.lake.arrow("s_matches", ["id"])["id"].to_pylist() == [0, 1, 2]


def test_rules_are_compiled_again_after_a_correction_of_their_meaning(new_workspace, add_rules) -> None:
    workspace = new_workspace({"s": {"source": "lake/source", "key": ["id"]}}, spark=False)
    write_deltalake(workspace.configuration.streams["s"].source, pa.table({"id": pa.array(range(9), pa.int64())}))
    add_rules(workspace, ("low", "s", "id < 3"))
    with pytest.MonkeyPatch.context() as patch:
        of_version(patch, "LANGUAGE_VERSION", artifact.LANGUAGE_VERSION - 1)
        compile_scopes(workspace)
        tag_stream(workspace, "s")
    (compiled,) = compile_scopes(workspace)
    assert compiled.state == "compiled" and not compiled.notices
    tag_stream(workspace, "s")
    assert [each.state for each in compile_scopes(workspace)] == ["unchanged"]
