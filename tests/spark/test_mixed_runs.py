"""Random histories of one lake: rows arrive, rules are edited, and runs by either runner are killed between any two
writes. Each row ends in one table, once, with the ids that the rules of its version give it by brute force."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.lake import runs
from pipelines.lake.folder_log import FolderLog
from pipelines.maintaining import scope_tables
from pipelines.run import OpenGates, RunReport, run_due
from pipelines.settings.model import LOCAL, SPARK
from pipelines.spark.delta_internals import TableLog
from pipelines.workspace import Workspace
from tests.tables import rows_of

HISTORIES = range(*map(int, os.environ.get("DELTATAG_MIXED_HISTORIES", "1:2").split(":")))
Row = dict[str, Any]
TEXTS: dict[str, Callable[[Row], bool]] = {
    "v < 3": lambda row: row["v"] is not None and row["v"] < 3,
    "v >= 5 OR w = 'x'": lambda row: (row["v"] is not None and row["v"] >= 5) or row["w"] == "x",
    "v IS NULL": lambda row: row["v"] is None,
    "w LIKE 'x%' AND NOT v = 4": lambda row: (row["w"] or "").startswith("x") and row["v"] not in (None, 4),
    "w NOT IN ('y', 'z')": lambda row: row["w"] not in (None, "y", "z"),
    "TRUE": lambda row: True,
    "v + 9223372036854775800 > 0": lambda row: row["v"] is not None and row["v"] <= 7,
    "no_such_column = 1": lambda row: False,
    "soundex(w) = 'X000'": lambda row: (row["w"] or "") in ("x", "xx"),
}
"""Rules, and what they mean; the last one is evaluated by Spark alone, the one before it is rejected."""


class DiedError(BaseException):
    """Stands for the end of the process: no `except Exception` may catch it."""


class History:
    """One lake, the rows of its source, and what is done to both."""

    def __init__(self, seed: int, new_workspace: Callable[..., Workspace]) -> None:
        self.draw = draw = random.Random(seed)
        self.rows: list[Row] = []
        base = {"source": "lake/source", "key": ["id"], "max_bytes_per_batch": draw.choice((1, "1g", "1g", "1g"))}
        streams = {
            "s": {**base, "checks": {"few": "v < 9"}, "retag": draw.choice(("never", "always"))},
            "t": {**base, "output": "matched", "matches": draw.random() < 0.5},
        }
        self.workspace = new_workspace(streams)
        self.partition = draw.choice((None, "w"))
        write_deltalake(self.source, self._table([]), partition_by=self.partition)

    @property
    def source(self) -> str:
        return self.workspace.configuration.streams["s"].source

    def append(self) -> None:
        """Rows, some of them for quarantine."""
        new = [
            {
                "id": None if self.draw.random() < 0.1 else self.draw.randrange(50),
                "n": len(self.rows) + place,
                "v": self.draw.choice((None, 0, 2, 4, 5, 7, 8, 9)),
                "w": self.draw.choice((None, "x", "xx", "y", "Z")),
            }
            for place in range(self.draw.choice((0, 1, 5, 20)))
        ]
        self.rows += new
        write_deltalake(self.source, self._table(new), mode="append")

    def edit(self, add_rules: Callable[..., None]) -> None:
        """A rule is added, changed, removed or switched off, or all rules of a scope are removed."""
        rules = DeltaTable(self.workspace.lake.uri("rules"))  # nothing may be written through what others read
        held = rules.to_pyarrow_table().to_pylist()
        kind = self.draw.choice(("add", "add", "add", "change", "remove", "switch", "clear"))
        if kind == "add" or not held:
            name, scope = f"r{self.draw.randrange(10**9)}", self.draw.choice("st")
            add_rules(self.workspace, (name, scope, self._text()))
            return
        chosen = self.draw.choice(held)
        where = f"rule_id = '{chosen['rule_id']}'"
        if kind == "change":
            text = self._text().replace("'", "''")
            rules.update({"expression": f"'{text}'"}, predicate=where)
        elif kind == "switch":
            rules.update(new_values={"enabled": chosen["enabled"] is False}, predicate=where)
        else:
            rules.delete(where if kind == "remove" else f"scope = '{chosen['scope']}'")

    def compact(self) -> None:
        """The source's rows move to other files."""
        DeltaTable(self.source).optimize.compact()

    def run(self, runner: str, dies_at: int | None) -> RunReport | None:
        """A run by a runner; None where it dies at its so-manieth write, just before it or just after."""
        settings = self.workspace.configuration
        configuration = replace(settings, lake=replace(settings.lake, runner=runner))
        workspace = Workspace(configuration, self.workspace.spark if runner == SPARK else None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scope_tables, "LEAST_IN_RUN", 4)
            if dies_at is not None:
                die_at(patch, dies_at, before=self.draw.random() < 0.5)
            try:
                return run_due(workspace, OpenGates())
            except DiedError:
                return None

    def check(self) -> None:
        """Compare all tables with what is to be in them."""
        versions = [self._rules(version) for version in range(self.workspace.lake.version("rules") + 1)]
        for name in "st":
            good = {row["n"]: row for row in self.rows if row["id"] is not None and (name == "t" or is_few(row))}
            tagged = rows_of(self.workspace, f"{name}_tagged")
            for row in tagged:
                source = good[row["n"]]
                assert {key: row[key] for key in source} == source
                assert row["rule_ids"] == ids_of(versions[row["rules_version"]], name, source), row
            seen = Counter(row["n"] for row in tagged)
            assert not seen or max(seen.values()) == 1
            missing = set(good) - set(seen)
            assert not missing if name == "s" else all(row["rule_ids"] for row in tagged)
            refused = Counter(row["n"] for row in rows_of(self.workspace, f"quarantine_{name}"))
            assert refused == Counter({row["n"]: 1 for row in self.rows if row["n"] not in good})
            if self.workspace.configuration.streams[name].keeps_matches:
                pairs = Counter((row["rule_id"], row["id"]) for row in rows_of(self.workspace, f"{name}_matches"))
                assert pairs == Counter((rule, row["id"]) for row in tagged for rule in row["rule_ids"])
        if self.workspace.configuration.streams["s"].retag == "always":
            newest = versions[-1]
            assert all(row["rule_ids"] == ids_of(newest, "s", row) for row in rows_of(self.workspace, "s_tagged"))

    def check_the_unmatched(self) -> None:
        """Rows that are in no table of the stream of matched rows were tagged by rules that none of them satisfies."""
        counted = [batch for batch in runs.batches(self.workspace.lake, "t") if batch.state == runs.DONE]
        assert sum(batch.rows or 0 for batch in counted) == len(self.rows)
        held = rows_of(self.workspace, "t_tagged")
        assert sum(batch.matches or 0 for batch in counted) == sum(len(row["rule_ids"]) for row in held)

    def _rules(self, version: int) -> list[Row]:
        found = self.workspace.lake.delta("rules", version).to_pyarrow_table().to_pylist()
        return [row for row in found if row["enabled"] is not False]

    @property
    def needs_spark(self) -> bool:
        """True if only Spark evaluates one of the rules."""
        return any("soundex" in row["expression"] for row in self._rules(self.workspace.lake.version("rules")))

    def _text(self) -> str:
        return self.draw.choice([*[text for text in TEXTS if "soundex" not in text] * 3, "soundex(w) = 'X000'"])

    def _table(self, rows: list[Row]) -> pa.Table:
        kinds = [("id", pa.int64()), ("n", pa.int64()), ("v", pa.int64()), ("w", pa.string())]
        return pa.Table.from_pylist(rows, pa.schema(kinds))


def is_few(row: Row) -> bool:
    """What the check of `s` asks: a row on which it is unknown does not pass."""
    return row["v"] is not None and row["v"] < 9


def ids_of(rules: list[Row], scope: str, row: Row) -> list[str]:
    return sorted(rule["rule_id"] for rule in rules if rule["scope"] == scope and TEXTS[rule["expression"]](row))


def die_at(patch: pytest.MonkeyPatch, number: int, before: bool) -> None:
    """Have the process end at the so-manieth write of a log, by either runner."""
    left = [number]

    def dying(write: Callable[..., Any]) -> Callable[..., Any]:
        def write_or_die(*arguments: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0 and before:
                raise DiedError
            found = write(*arguments, **named)
            if left[0] == 0:
                raise DiedError
            return found

        return write_or_die

    for owner, name in (
        (FolderLog, "_put"),
        (TableLog, "_commit"),
        (TableLog, "rewrite"),
        (TableLog, "fence"),
    ):
        patch.setattr(owner, name, dying(getattr(owner, name)))


@contextmanager
def told(seed: int, steps: list[str]) -> Iterator[None]:
    """Names what was done where something fails."""
    try:
        yield
    except Exception:
        print(f"history {seed}: {'; '.join(steps)}")
        raise


@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("seed", HISTORIES)
def test_a_history_of_runs_kills_and_edits(new_workspace, add_rules, seed: int) -> None:
    history = History(seed, new_workspace)
    draw, steps = history.draw, []
    taken = Counter[str]()
    with told(seed, steps):
        for _ in range(draw.choice((3, 4, 6))):
            for step in draw.sample((history.append, lambda: history.edit(add_rules), history.compact), 2):
                step()
            # the local runner refuses rules that only Spark evaluates
            runner = SPARK if history.needs_spark else draw.choice((LOCAL, LOCAL, SPARK))
            dies_at = draw.choice((None, None, 1, 2, 3, 4, 5, 6, 8, 12))
            report = history.run(runner, dies_at)
            steps.append(f"{runner} dies at {dies_at}: {'died' if report is None else dict(report.failures)}")
            taken[runner] += 1
            if report is not None:
                assert runner == LOCAL or not report.failures, report.failures
                assert all("Spark" in text for text in report.failures.values()), report.failures
        report = history.run(SPARK, None)
        assert report is not None and not report.failures, report
        history.check()
        history.check_the_unmatched()
        assert run_due(history.workspace, OpenGates()).tagged == []
