"""A process opens `runs` once, and a run reads what `rule_index` says about an index once, however often it asks."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable

from pipelines.lake.lake import Lake
from pipelines.lake.runs import batches
from pipelines.run import OpenGates, run_due
from pipelines.workspace import Workspace


def prepared(new_workspace: Any, add_rules: Any) -> Workspace:
    workspace: Workspace = new_workspace({"s": {"source": "lake/source"}}, spark=False)
    add_rules(workspace, ("a", "s", "x > 1"))
    append(workspace, 1)
    run_due(workspace, OpenGates())
    append(workspace, 2)
    return Workspace(workspace.configuration)


def append(workspace: Workspace, number: int) -> None:
    pl.DataFrame({"x": [number]}).write_delta(workspace.configuration.streams["s"].source, mode="append")


def test_the_table_runs_is_opened_once(new_workspace, add_rules, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = prepared(new_workspace, add_rules)
    uri, before = workspace.lake.uri("runs"), workspace.lake.version("runs")
    opened: list[str] = []
    really = DeltaTable.__init__

    def noted(table: DeltaTable, place: Any, *given: Any, **named: Any) -> None:
        opened.append(str(place))
        really(table, place, *given, **named)

    monkeypatch.setattr(DeltaTable, "__init__", noted)
    assert [report.rows for report in run_due(workspace, OpenGates()).tagged] == [1]
    assert opened and uri not in opened  # it was opened when the stream was prepared
    assert workspace.lake.version("runs") >= before + 2
    # what another process records is seen
    DeltaTable(uri).delete("batch = 0")
    assert [batch.batch for batch in batches(workspace.lake, "s")] == [1]


@pytest.mark.slow
def test_an_index_is_looked_up_once_until_there_is_another(
    new_workspace, add_rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, read, arrow = prepared(new_workspace, add_rules), [], Lake.arrow

    def noted(lake: Lake, name: str, columns: Any = None, filters: Any = None, *given: Any, **named: Any) -> Any:
        if name == "rule_index" and "data" not in (columns or ()):
            read.append(tuple(filters))
        return arrow(lake, name, columns, filters, *given, **named)

    monkeypatch.setattr(Lake, "arrow", noted)
    run_due(workspace, OpenGates())
    assert len(read) == len(set(read)) > 0
    add_rules(workspace, ("b", "s", "x > 2"))
    append(workspace, 3)
    assert run_due(workspace, OpenGates()).tagged[0].matches == 2
