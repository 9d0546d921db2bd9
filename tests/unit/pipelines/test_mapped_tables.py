"""Tagged tables whose files have other names for their columns (column mapping) are counted as all others."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pipelines.authoring.versions import history
from pipelines.lint import lint_scopes
from pipelines.report import report_scopes
from pipelines.reporting.contents import contents
from pipelines.run import OpenGates, run_due
from pipelines.settings.configuration import parse_configuration
from pipelines.workspace import Workspace
from tests.lakes import make_tables, write_rules
from tests.tables import map_columns


@pytest.mark.slow
def test_report_lint_and_history_count_their_rows(tmp_path: Path) -> None:
    document = {"lake": {"root": "lake", "runner": "local"}, "streams": {"s": {"source": "source"}}}
    workspace = Workspace(parse_configuration(document, tmp_path / "deltatag.toml"))
    make_tables(workspace)
    write_rules(workspace, [("low", "s", "id < 30"), ("all", "s", "id >= 0")])
    write_deltalake(tmp_path / "source", pa.table({"id": list(range(100))}))
    assert not run_due(workspace, OpenGates()).failures
    before = [contents(workspace, "s")[name] for name in ("rows", "matched", "together")]
    findings = [(each.rule_id, each.kind) for each in lint_scopes(workspace, ["s"])[0].findings]
    map_columns(workspace.lake.uri("s_tagged"))
    mapped = Workspace(workspace.configuration)
    assert [contents(mapped, "s")[name] for name in ("rows", "matched", "together")] == before
    assert before[:2] == [100, 100]
    assert [(each.rule_id, each.kind) for each in lint_scopes(mapped, ["s"])[0].findings] == findings
    (written,) = report_scopes(mapped, ["s"], tmp_path / "pages")
    assert written.error is None and written.rows == 100
    (entry,) = history(mapped, "low")
    assert entry["matches"] == 30
