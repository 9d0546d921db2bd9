"""Random histories of all that a join's re-tag follows: rules, annotations, lists, columns, engines and kills."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.errors import TableError
from pipelines.join import join_streams, join_together
from pipelines.retag import retag
from pipelines.settings.configuration import parse_configuration
from pipelines.workspace import Workspace
from tests.cases import cases, quick_first
from tests.unit.pipelines.random_histories import (
    ANNOTATIONS,
    COLUMNS,
    ENGINES,
    LISTS,
    History,
    compile_in_changes,
    later_columns,
)
from tests.unit.pipelines.random_local_joins import EPOCH, START, Killed, Scenario, let_die

pytestmark = pytest.mark.usefixtures("without_spark")


@dataclass
class JoinHistory(History):
    """A lake with joins over a scenario's streams, and its random edits."""

    make: Any = None
    scenario: Scenario = field(default_factory=lambda: Scenario(0))
    columns: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names, self.joins = self.scenario.names, list(self.scenario.joins)
        self.bigint = self.draw.random() < 0.5
        self.zone = self.scenario.zone
        lists = {name: {"source": f"lake/{name}"} for name in LISTS}
        streams, joins = self.scenario.streams(), self.scenario.settings(**self.settings)
        kind = "bigint" if self.bigint else "string"
        self.workspace = self.make(streams, {"time_zone": self.zone}, kind, False, joins, "local", lists)
        lake = {"root": str(self.workspace.configuration.lake.root), "runner": "local"}
        self.document = {"lake": lake, "streams": streams, "joins": joins, "lists": lists}
        self.columns = {name: [] for name in self.names}
        for name in self.names:
            write_deltalake(self.source(name), self.scenario.arriving(name, 0))
        for _ in range(3):
            self.edit_rules()

    def source(self, name: str) -> str:
        return self.workspace.configuration.streams[name].source

    def arrive(self) -> None:
        for name in self.names:
            if self.draw.random() < 0.7:
                self.append(name)

    def append(self, name: str) -> None:
        batch = self.scenario.arriving(name, 8)
        ids = range(batch["id"][0].as_py(), batch["id"][-1].as_py() + 1) if len(batch) else range(0)
        for column, values in later_columns(self.columns[name], ids).items():
            batch = batch.append_column(column, values)
        write_deltalake(self.source(name), batch, mode="append", schema_mode="merge")

    def rule(self) -> dict[str, Any]:
        draw = self.draw
        one, other = draw.sample(self.names, 2)
        special = [
            f"{one}.w IN LIST('words')",
            f"{one}.v NOT IN LIST('numbers') AND {other}.w = 'x'",
            f"{one}.v IN LIST('numbers') OR {other}.id = {draw.randint(0, 20)}",
            f"{one}.c > {draw.randint(0, 5)}",
            f"{one}.c = {other}.c",
            f"{one}.e = '{draw.randint(0, 5)}' AND {other}.v > 0",
            f"{one}.u.a > {draw.randint(0, 8)}",
            f"{one}.u.b = {other}.u.a",
            f"hour({one}.t) = 23",
            f"date_trunc('DAY', {one}.t) = date_trunc('DAY', {other}.t)",
            f"{one}.v >",
            f"{one}.v / ({other}.v - {draw.randint(0, 5)}) > 1",
        ]
        text = draw.choice(special) if draw.random() < 0.5 else self.scenario.rule().text
        bounds = {}
        for name in ("valid_from", "valid_to"):
            steps = timedelta(microseconds=self.scenario.unit * draw.randint(0, 12))
            bounds[name] = (START + steps).replace(tzinfo=UTC) if draw.random() < 0.2 else None
        return {"scope": draw.choice(self.joins), "expression": text, **bounds}

    def remove_rules(self) -> None:
        """The only edit after which stored rows suffice."""
        for key in self.draw.sample(list(self.rules), min(len(self.rules), 2)):
            self.rules[key]["enabled"] = False
        self.write_rules()
        self.compile()

    def add_column(self) -> None:
        name = self.draw.choice(self.names)
        if len(self.columns[name]) < len(COLUMNS):
            self.columns[name].append(COLUMNS[len(self.columns[name])])
            self.append(name)

    def configure(self) -> None:
        draw = self.draw
        engine = draw.choice(ENGINES)
        joins = self.document["joins"]
        for join in joins.values():
            join["method"] = draw.choice(["batch", "pdfa"])
        rules = {"time_zone": self.zone, "engine": engine}
        self.workspace = Workspace(parse_configuration(self.document | {"rules": rules}, self.path), None)

    @property
    def path(self) -> Any:
        return self.workspace.configuration.path

    def join(self) -> None:
        with pytest.MonkeyPatch.context() as patch, suppress(Killed):
            if self.draw.random() < 0.3:
                let_die(patch, [self.draw.randint(1, 10)])
            self.join_all()

    def join_all(self) -> None:
        _, failures = join_together(self.workspace, self.joins)
        assert failures == {}

    def retag(self, name: str | None = None) -> None:
        join = name or self.draw.choice(self.joins)
        if self.draw.random() < 0.3:
            with pytest.MonkeyPatch.context() as patch, suppress(Killed, TableError):
                let_die(patch, [self.draw.randint(1, 10)])
                retag(self.workspace, join)
        retag(self.workspace, join)

    def steps(self) -> list[Callable[[], Any]]:
        more = [self.edit_rules] * 4 + [self.edit_list] * 2 + [self.arrive] * 2 + [self.compile] * 3 + [self.join] * 3
        return [*more, *[self.retag] * 3, *[self.remove_rules] * 2, self.add_column, self.configure, self.fold]

    def expected(self, join: str) -> dict[tuple[int, ...], list[Any]]:
        """The ids of each joined row that has any, by `scan` over rules and lists as they are now."""
        sources = {name: DeltaTable(self.source(name)).to_pyarrow_table().sort_by("id") for name in self.names}
        joined = list(self.scenario.joined(join))
        places = {name: [row[name]["id"] for row in joined] for name in self.names}
        columns = {name: sources[name].take(pa.array(places[name], pa.int64())).combine_chunks() for name in self.names}
        times = [max(self.scenario.instant(each) or 0 for each in row.values()) for row in joined]
        moment = pa.timestamp("us", "UTC")
        rows = pa.table(
            {name: pa.chunked_array([table.to_struct_array().combine_chunks()]) for name, table in columns.items()}
            | {"_event_time": pa.array([EPOCH + timedelta(microseconds=time) for time in times], moment)}
        )
        ids = self.matched(join, rows, "_event_time")
        keys = zip(*(places[name] for name in self.names), strict=True)
        return {key: those for key, those in zip(keys, ids, strict=True) if those}

    def found(self, join: str) -> dict[tuple[int, ...], list[Any]]:
        """The ids of each row of the joined table, and its annotations."""
        listed = [
            (tuple(row[name]["id"] for name in self.names), [row["rule_ids"], *(row.get(each) for each in ANNOTATIONS)])
            for row in self.workspace.lake.arrow(f"{join}_tagged").to_pylist()
        ]
        assert len(dict(listed)) == len(listed)
        return dict(listed)


@pytest.mark.parametrize("seed", quick_first(0, range(cases(8, "DELTATAG_JOIN_HISTORIES"))))
def test_random_histories(new_workspace: Any, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    scenario = Scenario(seed)
    draw = random.Random(seed)
    if draw.random() < 0.7:
        compile_in_changes(monkeypatch)
    annotations = draw.choice([[], list(ANNOTATIONS)])
    history = JoinHistory(scenario.draw, {"annotations": annotations}, make=new_workspace, scenario=scenario)
    history.arrive()
    history.compile()
    history.take(history.steps())
    history.compile()
    history.join_all()
    for join in history.joins:
        history.retag(join)
        again = retag(history.workspace, join)
        assert (again.files_read, again.files_written, again.rows_changed) == (0, 0, 0)
        found = history.found(join)
        assert {key: each[0] for key, each in found.items()} == history.expected(join)
        join_streams(history.workspace, join, restart=True)
        assert history.found(join) == found
