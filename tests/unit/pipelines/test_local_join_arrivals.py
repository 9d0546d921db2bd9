"""Random streams joined without a JVM: against loops over all rows, through kills, edits and other runs."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

import pipelines.retag as verb
from pipelines.compile import compile_scopes
from pipelines.due import join_is_due
from pipelines.errors import TableError
from pipelines.join import join_together
from pipelines.joining import local_rows, partitioning, parts, sides
from pipelines.lake.folder_log import FolderLog
from pipelines.lake.runs import batches
from pipelines.retag import retag
from pipelines.sources import pieces
from pipelines.workspace import Workspace
from tests.cases import cases
from tests.unit.pipelines.random_local_joins import Killed, Rule, Scenario, counted, identified, let_die

SEEDS = range(cases(12, "DELTATAG_JOIN_SEEDS"))


class Run:
    """A lake over a scenario, its rules as they stand, and what each version of them was."""

    def __init__(self, scenario: Scenario, workspace: Workspace, add_rules: Any) -> None:
        self.scenario, self.workspace, self._add = scenario, workspace, add_rules
        self.names = list(scenario.joins)
        self.rules: dict[str, dict[str, Rule]] = {name: {} for name in self.names}
        self.versions: dict[int, dict[str, dict[str, Rule]]] = {}

    def edit(self, *rules: Rule) -> None:
        """One more rule, or these, for each join; compiled."""
        for join in self.names:
            for rule in rules or (self.scenario.rule(),):
                number = f"{join} {len(self.rules[join])}"
                self.rules[join][number] = rule
                self._add(self.workspace, (number, join, rule.text))
        results = compile_scopes(self.workspace, self.names)
        assert [(each.error, each.rejects) for each in results] == [(None, 0)] * len(self.names)
        now = {join: dict(rules) for join, rules in self.rules.items()}
        # a compile whose fingerprint is known keeps the version that it was first compiled with
        self.versions[self.workspace.lake.version("rules")] = now

    def arrive(self, most: int = 12) -> None:
        """Rows for some of the streams."""
        for name in self.scenario.names:
            if self.scenario.draw.random() < 0.7:
                table = self.scenario.arriving(name, most)
                write_deltalake(self.workspace.configuration.streams[name].source, table, mode="append")

    def join(self, workspace: Workspace | None = None) -> None:
        """Join what is new."""
        _, failures = join_together(workspace or self.workspace, self.names)
        assert failures == {}

    def assert_exact(self, late: frozenset[tuple[str, int]] = frozenset()) -> None:
        """Each joined row that satisfied a rule is there once, with the rules of its version; `runs` counts them."""
        self.assert_joined(late)
        for join in self.names:
            found = self.workspace.lake.arrow(f"{join}_tagged").to_pylist()
            recorded = [batch for batch in batches(self.workspace.lake, join) if not batch.plan.get("reset")]
            assert sum(batch.plan["joined"] for batch in recorded) == len(found)
            assert sum(batch.matches or 0 for batch in recorded) == sum(len(row["rule_ids"]) for row in found)
            assert sum(batch.rows or 0 for batch in recorded) == sum(map(len, self.scenario.rows.values()))

    def assert_joined(self, late: frozenset[tuple[str, int]] = frozenset()) -> None:
        """Each joined row that satisfied a rule is there once, with the rules of its version."""
        for join in self.names:
            assert not join_is_due(self.workspace, join)
            found = self.workspace.lake.arrow(f"{join}_tagged").to_pylist()
            version_of = {tuple(row[n]["id"] for n in self.scenario.names): row["rules_version"] for row in found}
            expected = []
            for rows in self.scenario.joined(join, late):
                key = tuple(rows[name]["id"] for name in self.scenario.names)
                rules = self.versions[version_of.get(key, max(self.versions))][join]
                ids = sorted(rule for rule, each in rules.items() if each.holds(rows))
                expected += [identified(rows, ids)] if ids else []
            assert counted(found, self.scenario.names) == dict.fromkeys(expected, 1)


ALL = Rule("TRUE", lambda rows: True)


@pytest.fixture
def begin(new_workspace, add_rules, monkeypatch):
    """A run over a random scenario with compiled rules; small parts, slices and files as if rows were many."""

    def made(seed: int, join: dict[str, Any] | None = None, always: bool = True, **stream: Any) -> Run:
        scenario = Scenario(seed)
        streams, joins = scenario.streams(**stream), scenario.settings(**(join or {}))
        workspace = new_workspace(streams, {"time_zone": scenario.zone}, spark=False, joins=joins)
        for name in scenario.names:
            write_deltalake(workspace.configuration.streams[name].source, scenario.arriving(name, 0))
        run = Run(scenario, workspace, add_rules)
        run.edit(*([ALL] if always else []), *(scenario.rule() for _ in range(scenario.draw.choice((1, 3, 8)))))
        if seed % 2:
            monkeypatch.setattr(partitioning, "MIN_PARTITION_ROWS", 4)
            monkeypatch.setattr(local_rows, "ROWS", 4)
            monkeypatch.setattr(sides, "MANY_EARLIER", 1)
            monkeypatch.setattr(parts, "KEPT_BYTES", scenario.draw.choice((1, 1000, 1 << 20)))
            monkeypatch.setattr(pieces.os, "cpu_count", lambda: 3)
        return run

    return made


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.slow
def test_whatever_arrives_when_the_table_is_the_join(begin, seed: int) -> None:
    run = begin(seed, always=bool(seed % 3), max_bytes_per_batch=("1g", "1")[seed % 5 == 0])
    for _ in range(run.scenario.draw.choice((1, 3))):
        run.arrive()
        if run.scenario.draw.random() < 0.2:
            DeltaTable(run.workspace.configuration.streams[run.scenario.names[0]].source).optimize.compact()
        run.join()
    run.join()
    run.assert_exact()
    assert "pyspark" not in sys.modules or not run.workspace.is_given


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_runs_that_are_killed_and_rules_that_are_edited_lose_and_double_nothing(begin, monkeypatch, seed: int) -> None:
    run = begin(seed + 1000, always=True)
    draw = run.scenario.draw
    deadly = [draw.randint(1, 14)]

    for _ in range(4):
        run.arrive(6)
        with monkeypatch.context() as patch:
            let_die(patch, deadly)
            try:
                run.join()
            except Killed:
                deadly[0] = draw.randint(1, 14)
        if draw.random() < 0.5:
            run.edit()
    run.join()
    run.assert_exact()


@pytest.mark.slow
def test_a_retag_that_is_killed_and_started_again_joins_everything_anew(begin, monkeypatch) -> None:
    run = begin(0)
    run.arrive()
    run.join()
    for write in range(2, 10, 2):
        run.edit()
        with monkeypatch.context() as patch, suppress(Killed):
            let_die(patch, [write])
            retag(run.workspace, run.names[0])
        assert [retag(run.workspace, name).scope for name in run.names] == run.names
        run.assert_joined()


@pytest.mark.slow
def test_rules_that_are_compiled_after_a_retag_began_pass_over_no_pair(begin, monkeypatch) -> None:
    run = begin(0)
    run.arrive()
    run.join()
    needs_joining = verb._needs_joining

    def and_edit(workspace: Workspace, name: str) -> bool:
        found = needs_joining(workspace, name)
        run.edit()
        return found

    with monkeypatch.context() as patch, pytest.raises(TableError, match="Start it again: deltatag retag"):
        patch.setattr(verb, "_needs_joining", and_edit)
        retag(run.workspace, run.names[0])
    for name in run.names:
        retag(run.workspace, name)
    run.assert_joined()


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS[::2])
def test_rows_that_come_too_late_are_in_quarantine(begin, seed: int) -> None:
    scenario = Scenario(seed + 2000)
    lateness = scenario.draw.choice((0, 2, 5)) * scenario.unit
    run = begin(seed + 2000, {"lateness": f"{lateness} us"})
    scenario, latest, late = run.scenario, None, set()
    seen = dict.fromkeys(scenario.names, 0)
    for _ in range(3):
        run.arrive()
        new = [(name, row) for name in scenario.names for row in scenario.rows[name][seen[name] :]]
        seen = {name: len(scenario.rows[name]) for name in scenario.names}
        can = [(name, row) for name, row in new if row["t"] is not None and None not in row["keys"]]
        times = [scenario.instant(row) for _, row in can]
        if latest is not None:
            late |= {(n, r["id"]) for (n, r), t in zip(can, times, strict=True) if t < latest - lateness}
        latest = max([*times, *([] if latest is None else [latest])], default=None)
        run.join()
    run.assert_exact(frozenset(late))
    for join in run.names:
        found = []
        for row in run.workspace.lake.arrow(f"quarantine_{join}").to_pylist():
            (name,) = [name for name in scenario.names if row[name] is not None]
            found.append((name, row[name]["id"]))
            assert "later than the lateness" in row["reason"]
        assert sorted(found) == sorted(late)
        assert sum(batch.quarantined or 0 for batch in batches(run.workspace.lake, join)) == len(late)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS[::4])
def test_two_runs_at_once_write_each_joined_row_once(begin, monkeypatch, seed: int) -> None:
    run = begin(seed + 3000)
    run.arrive()
    append, others = FolderLog.append, []

    def other_first(self: FolderLog, *arguments: Any) -> bool:
        if not others:
            others.append(1)
            run.join(Workspace(run.workspace.configuration))
        return append(self, *arguments)

    monkeypatch.setattr(FolderLog, "append", other_first)
    run.join()
    run.arrive()
    run.join()
    run.assert_exact()
