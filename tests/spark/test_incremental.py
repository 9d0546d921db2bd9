"""Changes that Spark writes to `rules`, and rules that only Spark can evaluate, compiled alone and all together."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import rules_index as ri
from pipelines import compile as compile_module
from pipelines.compile import compile_scopes
from pipelines.compiling import changes as changes_module
from pipelines.lake.index_store import newest_index, read_index
from pipelines.settings.configuration import parse_configuration
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from rules_index.compiling import update as update_module
from rules_index.index.compiled import Layers
from tests.cases import SOAK

STREAMS = {"s": {"source": "lake/source"}}
EDITS = (
    """MERGE INTO {rules} t USING (SELECT * FROM VALUES
         ('r01', 'bround(x, 20) % 3 = 0'), ('r02', 'x > 5'), ('n1', 'crc32(CAST(s AS BINARY)) > 9 AND x < 7'),
         ('n2', 'bround(x, 20) % 5 = 1')
         AS g(id, text)) g ON t.rule_id = g.id
       WHEN MATCHED THEN UPDATE SET expression = g.text
       WHEN NOT MATCHED THEN INSERT (rule_id, scope, expression) VALUES (g.id, 's', g.text)""",
    "DELETE FROM {rules} WHERE rule_id IN ('r03', 'n2')",
    "UPDATE {rules} SET expression = 'hypot(x, y) > 3' WHERE rule_id = 'r04'",
    "UPDATE {rules} SET expression = 'date_add(x, 1) > DATE\\'2024-01-01\\'' WHERE rule_id = 'r05'",
    "UPDATE {rules} SET expression = 'bround(x, 20) % 3 = 0 AND x = 2', enabled = NULL WHERE rule_id = 'r05'",
    "OPTIMIZE {rules}",
    "INSERT INTO {rules} (rule_id, scope, expression) VALUES ('n3', 's', 'length(s) + find_in_set(s, s) > 0')",
    "RESTORE {rules} TO VERSION AS OF 1",
)


def rejects(workspace: Workspace) -> list[tuple[Any, ...]]:
    frame = pl.DataFrame(pl.from_arrow(workspace.lake.arrow("rule_rejects")))
    return frame.sort("scope", "rule_id", "error").rows()


def index_of(workspace: Workspace) -> ri.CompiledRules:
    stored = newest_index(workspace.lake, "s")
    assert stored is not None
    return ri.loads(read_index(workspace.lake, stored))


def test_what_spark_edits_comes_to_a_full_compile(
    new_workspace: Callable[..., Workspace], add_rules: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(update_module, "FEW_RULES", 0)
    monkeypatch.setattr(update_module, "FOLDED_SHARE", 1.0)
    monkeypatch.setattr(changes_module, "LEAST_RULES", 1)
    monkeypatch.setattr(changes_module, "MOST_CHANGED", 1.0)
    alone, found = [], compile_module.compile_changes
    monkeypatch.setattr(compile_module, "compile_changes", lambda *given: alone.append(1) or found(*given))
    workspace = new_workspace(STREAMS)
    source = workspace.configuration.streams["s"].source
    schema = {"x": pl.Int32, "s": pl.String}
    pl.DataFrame({"x": [*range(40), None], "s": [*"abcd" * 10, None]}, schema).write_delta(source)
    texts = ("x = {}", "bround(x, 20) % 3 = 0", "bround(x, 20) > {}", "x > {} AND s = 'a'")
    add_rules(workspace, *((f"r{i:02}", "s", texts[i % 4].format(i)) for i in range(40)))
    compile_scopes(workspace)
    layered = 0
    for step, edit in enumerate(EDITS):
        workspace.spark.sql(edit.format(rules=f"delta.`{workspace.lake.uri('rules')}`"))
        if not SOAK and step % 2 == 0 and step != 4 and edit is not EDITS[-1]:
            compile_scopes(workspace)  # what it comes to is compared behind the next edit
            continue
        folder = tmp_path / str(step)
        shutil.copytree(str(workspace.configuration.lake.root), folder / "lake")
        document = {"lake": {"root": "lake"}, "streams": STREAMS}
        other = Workspace(parse_configuration(document, folder / "deltatag.toml"), workspace.spark)
        (mine,) = compile_scopes(workspace)
        (full,) = compile_scopes(other, force=True)
        assert (mine.rules, mine.rejects, mine.fingerprint) == (full.rules, full.rejects, full.fingerprint), edit
        assert rejects(workspace) == rejects(other)
        one, whole = index_of(workspace), index_of(other)
        assert (one.inputs, one.derived) == (whole.inputs, whole.derived)
        layered += isinstance(one.definition, Layers)
        if step == 4 or (SOAK and step == 1):
            tagged = [_tags(each) for each in (workspace, other)]
            assert tagged[0] == tagged[1] and any(tagged[0].values())
    assert len(alone) >= len(EDITS) - 1
    assert layered >= 4


def _tags(workspace: Workspace) -> dict[int | None, list[str]]:
    """Tags the source anew; the rules of each row."""
    tag_stream(workspace, "s", restart=True)
    rows = pl.DataFrame(pl.from_arrow(workspace.lake.arrow("s_tagged", ["x", "rule_ids"])))
    return dict(rows.rows())
