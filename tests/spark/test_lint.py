"""What only sources and past runs give away of rules is told after real runs, and nothing else."""

from __future__ import annotations

from deltalake import write_deltalake

from benchmarks import lint_lake
from pipelines.compile import compile_scopes
from pipelines.lint import lint_scopes
from pipelines.tag import tag_stream


def test_rules_that_sources_and_runs_give_away_are_told_and_no_others(new_workspace, add_rules) -> None:
    workspace = new_workspace({"accounts": {"source": "lake/accounts"}}, id_type="bigint")
    rows = lint_lake.source_rows(600)
    write_deltalake(workspace.configuration.streams["accounts"].source, rows)
    texts, kinds = lint_lake.planted(1_000, 30, rows)
    add_rules(workspace, *((number, "accounts", text) for number, text in enumerate(texts)))
    (compiled,) = compile_scopes(workspace)
    assert (compiled.error, compiled.rejects) == (None, 0)
    assert tag_stream(workspace, "accounts").rows == 600
    (result,) = lint_scopes(workspace, ["accounts"])
    assert len(kinds) == 120 and lint_lake.wrong(result, kinds) == ([], [])
