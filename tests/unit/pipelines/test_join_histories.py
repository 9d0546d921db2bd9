"""Random histories of all that a join's re-tag follows: rules, annotations, lists, columns, engines and kills."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import rules_index as ri
from pipelines.compile import compile_scopes
from pipelines.compiling import changes as compiled_changes
from pipelines.errors import TableError
from pipelines.join import join_streams, join_together
from pipelines.maintain import maintain
from pipelines.maintaining import folding
from pipelines.retag import retag
from pipelines.settings.configuration import parse_configuration
from pipelines.workspace import Workspace
from rules_index.compiling import update
from tests import lakes
from tests.cases import cases, quick_first
from tests.unit.pipelines.random_local_joins import EPOCH, START, Killed, Scenario
from tests.unit.pipelines.test_local_join_arrivals import let_die
from tests.unit.pipelines.test_retag_histories import COLUMNS, later_columns

pytestmark = pytest.mark.usefixtures("without_spark")
LISTS = ("words", "numbers")
ANNOTATIONS = ("first_rule_id", "labels", "severity")


@dataclass
class History:
    """A lake with joins over a scenario's streams, and its random edits."""

    make: Any
    scenario: Scenario
    settings: dict[str, Any]
    rules: dict[Any, dict[str, Any]] = field(default_factory=dict)
    columns: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.draw = self.scenario.draw
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

    def text(self) -> str:
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
        return draw.choice(special) if draw.random() < 0.5 else self.scenario.rule().text

    def edit_rules(self) -> None:
        draw = self.draw
        for _ in range(draw.randint(1, 3)):
            number = draw.randint(0, 14)
            key = number if self.bigint else f"r'{number}"
            known = self.rules.get(key)
            if known is not None and draw.random() < 0.5:
                del self.rules[key]
                continue
            if known is not None and draw.random() < 0.5:
                known |= draw.choice(
                    [
                        {"enabled": draw.choice([True, False])},
                        {"priority": draw.randint(0, 3)},
                        {"labels": {"a": str(draw.randint(0, 2))}},
                        {"severity": draw.choice([None, "low", "high"])},
                        {"expression": known["expression"] + " "},
                    ]
                )
                continue
            bounds = {}
            for name, share in (("valid_from", 0.2), ("valid_to", 0.2)):
                steps = timedelta(microseconds=self.scenario.unit * draw.randint(0, 12))
                bounds[name] = (START + steps).replace(tzinfo=UTC) if draw.random() < share else None
            join = draw.choice(self.joins)
            self.rules[key] = {"rule_id": key, "scope": join, "expression": self.text(), **bounds}
        lakes.write_rules(self.workspace, list(self.rules.values()), "overwrite")

    def remove_rules(self) -> None:
        """The only edit after which stored rows suffice."""
        for key in self.draw.sample(list(self.rules), min(len(self.rules), 2)):
            self.rules[key]["enabled"] = False
        lakes.write_rules(self.workspace, list(self.rules.values()), "overwrite")
        self.compile()

    def edit_list(self) -> None:
        draw, name = self.draw, self.draw.choice(LISTS)
        values = draw.sample(["x", "xyz", "z", ""], draw.randint(0, 3)) if name == "words" else draw.sample(range(6), 3)
        kind = pa.string() if name == "words" else pa.int32()
        place = str(self.workspace.lake.uri(name))
        write_deltalake(place, pa.table({"v": pa.array(values, kind)}), mode=draw.choice(["append", "overwrite"]))

    def add_column(self) -> None:
        name = self.draw.choice(self.names)
        if len(self.columns[name]) < len(COLUMNS):
            self.columns[name].append(COLUMNS[len(self.columns[name])])
            self.append(name)

    def configure(self) -> None:
        draw = self.draw
        engine = draw.choice(["auto", "hybrid", "be_tree", "asc", "r_tree", "scan"])
        joins = self.document["joins"]
        for join in joins.values():
            join["method"] = draw.choice(["batch", "pdfa"])
        rules = {"time_zone": self.zone, "engine": engine}
        self.workspace = Workspace(parse_configuration(self.document | {"rules": rules}, self.path), None)

    @property
    def path(self) -> Any:
        return self.workspace.configuration.path

    def compile(self) -> None:
        errors = [result.error for result in compile_scopes(self.workspace) if result.error]
        assert not errors, errors

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

    def fold(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(folding, "KEPT_BATCHES", self.draw.randint(1, 3))
            folding.fold(self.workspace.lake, datetime.now(UTC))
        if self.draw.random() < 0.5:
            assert [each.error for each in maintain(self.workspace) if each.error] == []

    def step(self) -> None:
        choices = (
            [self.edit_rules] * 4 + [self.edit_list] * 2 + [self.arrive] * 2 + [self.compile] * 3 + [self.join] * 3
        )
        choices += [self.retag] * 3 + [self.remove_rules] * 2 + [self.add_column, self.configure, self.fold]
        self.draw.choice(choices)()

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
        lists = []
        for name in LISTS:
            place = self.workspace.lake.uri(name)
            if DeltaTable.is_deltatable(place):
                lists.append(ri.value_list(name, DeltaTable(place).to_pyarrow_table().column("v")))
        given = [each for each in self.rules.values() if each.get("enabled") is not False and each["scope"] == join]
        kind = pa.int64() if self.bigint else pa.string()
        names = [("rule_id", kind), ("expression", pa.string()), ("valid_from", moment), ("valid_to", moment)]
        schema = pa.schema(names)
        wanted = pa.Table.from_pylist([{name: each[name] for name in schema.names} for each in given], schema=schema)
        compiled = ri.compile_rules(
            wanted, rows.schema, engine="scan", event_time="_event_time", time_zone=self.zone, lists=lists
        )
        ids = compiled.match(rows).to_pylist()
        keys = zip(*(places[name] for name in self.names), strict=True)
        return {key: sorted(those) for key, those in zip(keys, ids, strict=True) if those}

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
        monkeypatch.setattr(update, "FEW_RULES", 0)
        monkeypatch.setattr(update, "FOLDED_SHARE", 1.0)
        monkeypatch.setattr(compiled_changes, "LEAST_RULES", 1)
        monkeypatch.setattr(compiled_changes, "MOST_CHANGED", 1.0)
    history = History(new_workspace, scenario, {"annotations": draw.choice([[], list(ANNOTATIONS)])})
    history.arrive()
    history.compile()
    for _ in range(15):
        history.step()
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
