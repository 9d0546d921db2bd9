"""Joins whose runs are taken by this process and by Spark in turn, some killed: the table is Spark's own join."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Any

import pytest
from deltalake import write_deltalake

from pipelines.compile import compile_scopes
from pipelines.due import join_is_due
from pipelines.errors import SparkRuledOutError
from pipelines.join import join_together
from pipelines.joining import joiner, local_rows, partitioning
from pipelines.lake.folder_log import FolderLog
from pipelines.recovery import micro_batch
from pipelines.settings.model import LOCAL, SPARK
from pipelines.workspace import Workspace
from quality import joined
from tests.java import AS_IN_PRODUCTION
from tests.lakes import make_tables
from tests.spark.random_scenarios import Scenario, counted

SCENARIOS = range(*map(int, os.environ.get("DELTATAG_JOIN_SCENARIOS", "10:11").split(":")))


@pytest.fixture
def spark_settings() -> dict[str, str]:
    """Code is compiled, as it is in production."""
    return AS_IN_PRODUCTION


class DiedError(BaseException):
    """Stands for the end of the process: no `except Exception` may catch it."""


def through(workspace: Workspace, runner: str) -> Workspace:
    """The same lake with a runner."""
    configuration = workspace.configuration
    lake = replace(configuration.lake, runner=runner)
    return Workspace(replace(configuration, lake=lake), workspace.spark)


@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("seed", SCENARIOS)
def test_runs_of_both_runners_make_one_table(new_workspace, monkeypatch, seed: int) -> None:
    scenario = Scenario(seed)
    # what only Spark evaluates is left to it anyway
    rules = [
        {name: re.sub(r"soundex\(", "upper(", text) for name, text in each.items() if "concat" not in text}
        for each in scenario.rules
    ]
    scenario.rules[:] = [each or {"r": "TRUE"} for each in rules]
    joins = scenario.joins(("batch", "pdfa"))
    workspace = scenario.lake(new_workspace, joins)
    if seed % 2:
        monkeypatch.setattr(partitioning, "MIN_PARTITION_ROWS", 4)
        monkeypatch.setattr(local_rows, "ROWS", 4)
    taken: list[str] = []
    for batch in scenario.arrivals():
        scenario.append(workspace, batch)
        runner = scenario.draw.choice((LOCAL, LOCAL, SPARK))
        step = scenario.draw.choice(("", "", "planned", "written"))
        taken += [runner] if _join(through(workspace, runner), list(joins), monkeypatch, step) else []
    _join(through(workspace, SPARK), list(joins), monkeypatch, "")
    lake = workspace.lake.uri("x").removesuffix("/x")
    for number, name in enumerate(joins):
        assert not join_is_due(workspace, name)
        expected = counted(workspace.spark.sql(scenario.sql(lake, number, f"{name} ")))
        table = workspace.spark.read.format("delta").load(workspace.lake.uri(f"{name}_tagged"))
        assert counted(table.select(*scenario.names, "rule_ids")) == expected
        both = [_measures(through(workspace, runner), name) for runner in (LOCAL, SPARK)]
        assert both[0] == both[1]
    assert LOCAL in taken or len(taken) < 2


def _join(workspace: Workspace, names: list[str], monkeypatch: Any, step: str) -> bool:
    """A run that may end once it has planned, or once it has written; False where the local runner could not serve."""
    with monkeypatch.context() as patch:

        def die(*_args: Any, **_named: Any) -> None:
            raise DiedError

        if step == "planned":
            patch.setattr(joiner.Joiner, "execute", die)
        elif step:
            patch.setattr(micro_batch, "record_done", die)
        try:
            _, failures = join_together(workspace, names)
        except DiedError:
            return True
    assert all(isinstance(error, SparkRuledOutError) for error in failures.values()), failures
    return not failures


def _measures(workspace: Workspace, name: str) -> dict[str, Any]:
    """What the gate finds of the newest rows, but for the sample that it draws."""
    measures = joined.suites(workspace, workspace.configuration.joins[name], 100).measures
    return {key: value for key, value in measures.items() if not key.startswith("sampled")}


def test_tables_of_the_local_runner_are_those_of_spark(new_workspace, add_rules) -> None:
    scenario = Scenario(3)
    lakes = {}
    joins = {name: {**join, "lateness": "1 hour"} for name, join in scenario.joins().items()}
    tables = [(name, scenario.table(name, 20)) for name in scenario.names]
    for runner in (LOCAL, SPARK):
        workspace = new_workspace({}, joins={})
        root = f"{runner}_lake"
        document = {name: {**each, "source": f"{root}/{name}"} for name, each in scenario.streams().items()}
        workspace = new_workspace(document, joins=joins)
        configuration = workspace.configuration
        lake = replace(configuration.lake, root=str(configuration.path.parent / root), runner=runner)
        lakes[runner] = Workspace(replace(configuration, lake=lake), workspace.spark)
        make_tables(lakes[runner])
        for name, table in tables:
            write_deltalake(configuration.streams[name].source, table)
        for name in joins:
            add_rules(lakes[runner], (f"{name} all", name, "TRUE"))
        compile_scopes(lakes[runner], list(joins))
        results, failures = join_together(lakes[runner], list(joins))
        assert failures == {}
        assert sum(result.joined for result in results) > 0
    for name in (f"{kind}" for join in joins for kind in (f"{join}_tagged", f"quarantine_{join}")):
        ours, theirs = (FolderLog(lakes[runner].lake.uri(name)).latest() for runner in (LOCAL, SPARK))
        assert ours.fields == theirs.fields
        assert ours.properties == theirs.properties
        assert ours.partition_columns == theirs.partition_columns
