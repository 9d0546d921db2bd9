"""Random histories of everything that a re-tag follows: rules, annotations, lists, columns, time zones, engines."""

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
from pipelines.lake.folder_log import FolderLog
from pipelines.maintain import maintain
from pipelines.maintaining import folding
from pipelines.retag import retag
from pipelines.settings.configuration import parse_configuration
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from rules_index.compiling import update
from tests import lakes
from tests.cases import cases, quick_first
from tests.unit.pipelines.local_retags import RETAGS, append, assert_like_anew, exploded, matched, read
from tests.unit.pipelines.retagged_rows import (
    START,
    STEPS,
    STREAM,
    DiedError,
    bounded,
    die_after,
    random_rule,
    rows,
    write_rules,
)

pytestmark = pytest.mark.usefixtures("without_spark")
LISTS = ("words", "numbers")
COLUMNS = ("c", "u", "e", "u.b")
"""Columns that the source is given later, the last one a field of a struct."""
ZONES = ("UTC", "America/New_York", "Asia/Kolkata")


@dataclass
class History:
    """A lake with one stream, and its random edits."""

    make: Any
    draw: random.Random
    settings: dict[str, Any]
    rules: dict[Any, dict[str, Any]] = field(default_factory=dict)
    columns: list[str] = field(default_factory=list)
    end: int = 0

    def __post_init__(self) -> None:
        draw = self.draw
        self.bigint = draw.random() < 0.5
        self.zone = "UTC"
        stream = {"source": "lake/source", "key": ["id"], "event_time": "t", **self.settings}
        lists = {name: {"source": f"lake/{name}"} for name in LISTS}
        self.workspace = self.make(
            {"s": stream}, None, "bigint" if self.bigint else "string", False, None, "local", lists
        )
        self.document = {
            "lake": {"root": str(self.workspace.configuration.lake.root), "runner": "local"},
            "streams": {"s": stream},
            "lists": lists,
        }
        for _ in range(3):
            self.edit_rules()

    def source(self) -> str:
        return self.workspace.configuration.streams["s"].source

    def append(self) -> None:
        first, self.end = self.end, self.end + self.draw.randint(1, 90)
        batch = rows(first, self.end)
        for name, column in later_columns(self.columns, range(first, self.end)).items():
            batch = batch.append_column(name, column)
        write_deltalake(self.source(), batch, mode="append", schema_mode="merge")

    def text(self) -> tuple[Any, ...]:
        draw = self.draw
        special = [
            "w IN LIST('words')",
            "n NOT IN LIST('numbers') AND w = 'x'",
            f"n IN LIST('numbers') OR seq = {draw.randint(0, 200)}",
            f"c > {draw.randint(0, 8)}",
            f"e = '{draw.randint(0, 8)}'",
            f"u.a BETWEEN 2 AND {draw.randint(2, 8)}",
            f"u.b = {draw.randint(0, 8)} OR u.a IS NULL AND n > 9",
            f"hour(t) = {draw.randint(0, 23)}",
            "date_trunc('DAY', t) > TIMESTAMP'2024-03-10'",
            f"n > {draw.randint(0, 20)} ",
            "n >",
            f"n / (n - {draw.randint(0, 20)}) > 1",
        ]
        return bounded(draw, draw.choice(special)) if draw.random() < 0.6 else random_rule(draw)

    def edit_rules(self) -> None:
        draw = self.draw
        for _ in range(draw.randint(1, 3)):
            number = draw.randint(0, 14)
            key = number if self.bigint else f"r'{number}"
            known = self.rules.get(key)
            if known is not None and draw.random() < 0.35:
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
            text, since, until = self.text()
            self.rules[key] = {
                "rule_id": key, "scope": "s", "expression": text, "valid_from": since, "valid_to": until,
            }  # fmt: skip
        lakes.write_rules(self.workspace, list(self.rules.values()), "overwrite")

    def edit_list(self) -> None:
        draw, name = self.draw, self.draw.choice(LISTS)
        values = draw.sample(["x", "xy", "z", ""], draw.randint(0, 3)) if name == "words" else draw.sample(range(20), 5)
        kind = pa.string() if name == "words" else pa.int32()
        place = str(self.workspace.lake.uri(name))
        write_deltalake(place, pa.table({"v": pa.array(values, kind)}), mode=draw.choice(["append", "overwrite"]))

    def add_column(self) -> None:
        if len(self.columns) < len(COLUMNS):
            self.columns.append(COLUMNS[len(self.columns)])
            self.append()

    def configure(self) -> None:
        """The time zone decides what rules mean; rows of an unknown meaning cannot be brought up to date locally if
        they have annotations, or if unmatched rows are not stored."""
        draw = self.draw
        if self.settings["output"] == "all" and not self.settings["annotations"]:
            self.zone = draw.choice(ZONES)
        rules = {"time_zone": self.zone, "engine": draw.choice(["auto", "hybrid", "be_tree", "asc", "r_tree", "scan"])}
        document = self.document | {"rules": rules}
        self.workspace = Workspace(parse_configuration(document, self.workspace.configuration.path), None)

    def compile(self) -> None:
        errors = [result.error for result in compile_scopes(self.workspace) if result.error]
        assert not errors, errors

    def retag(self, whole: bool = False) -> None:
        draw, since = self.draw, None
        if not whole and self.settings["output"] == "all" and draw.random() < 0.3:
            since = (START + timedelta(hours=draw.randint(0, 30))).isoformat()
        if draw.random() < 0.3:
            with pytest.MonkeyPatch.context() as patch, suppress(DiedError, TableError):
                die_after(patch, draw.choice(STEPS), FolderLog)
                retag(self.workspace, "s", since)
        try:
            retag(self.workspace, "s", since)
        except TableError as error:
            # which rows are stored is not known beside lists that have changed
            assert self.settings["output"] == "matched" and "--restart" in str(error)
            tag_stream(self.workspace, "s", restart=True)

    def fold(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(folding, "KEPT_BATCHES", self.draw.randint(1, 3))
            folding.fold(self.workspace.lake, datetime.now(UTC))
        if self.draw.random() < 0.5 and "cluster_by" not in self.settings:  # Spark merges the files of such tables
            assert [each.error for each in maintain(self.workspace) if each.error] == []

    def tag(self) -> None:
        tag_stream(self.workspace, "s")

    def step(self) -> None:
        choices = [self.edit_rules] * 4 + [self.edit_list] * 2 + [self.append] * 2 + [self.compile] * 3 + [self.tag] * 3
        choices += [self.retag] * 3 + [self.add_column, self.configure, self.fold]
        self.draw.choice(choices)()

    def expected(self) -> dict[int, list[Any]]:
        """The ids of each row that is tagged, by `scan` over rules and lists as they are now."""
        table = DeltaTable(self.source()).to_pyarrow_table()
        lists = []
        for name in LISTS:
            place = self.workspace.lake.uri(name)
            if DeltaTable.is_deltatable(place):
                lists.append(ri.value_list(name, DeltaTable(place).to_pyarrow_table().column("v")))
        given = [each for each in self.rules.values() if each.get("enabled") is not False]
        kind = pa.int64() if self.bigint else pa.string()
        bound = pa.timestamp("us", "UTC")
        schema = pa.schema([("rule_id", kind), ("expression", pa.string()), ("valid_from", bound), ("valid_to", bound)])
        wanted = pa.Table.from_pylist([{name: each[name] for name in schema.names} for each in given], schema=schema)
        compiled = ri.compile_rules(
            wanted, table.schema, engine="scan", event_time="t", time_zone=self.zone, lists=lists
        )
        ids = compiled.match(table).to_pylist()
        found = zip(table["seq"].to_pylist(), table["id"].to_pylist(), ids, strict=True)
        every = self.settings["output"] == "all"
        return {seq: sorted(those) for seq, key, those in found if key is not None and (those or every)}


def later_columns(names: list[str], numbers: range) -> dict[str, pa.Array]:
    """The values of those of COLUMNS that there are already."""
    values = pa.array([n % 9 for n in numbers], pa.int64())
    found: dict[str, pa.Array] = {}
    if "c" in names:
        found["c"] = values
    if "u" in names:
        fields = {"a": values, **({"b": values} if "u.b" in names else {})}
        nothing = pa.array([n % 5 == 0 for n in numbers], pa.bool_())
        found["u"] = pa.StructArray.from_arrays(list(fields.values()), list(fields), mask=nothing)
    if "e" in names:
        found["e"] = values.cast(pa.string())
    return found


def annotated(workspace: Workspace) -> dict[int, Any]:
    names = ("rule_ids", "first_rule_id", "labels", "severity", *COLUMNS)
    return {r["seq"]: [r.get(name) for name in names] for r in read(workspace, "s_tagged").to_pylist()}


@pytest.mark.parametrize("is_range", [False, True])
def test_another_time_zone_replaces_all_ids(make_retagged: Any, is_range: bool) -> None:
    """It is not known which ids rows would keep; those of a rule that is gone meanwhile leave, too."""
    workspace = make_retagged()
    append(workspace, 0, 150)
    write_rules(workspace, {"gone": "n > 3", "hour": "hour(t) = 4", "same": "w = 'x'"})
    tag_stream(workspace, "s")
    source = workspace.configuration.path.parent / "lake"
    document = {
        "lake": {"root": str(source)},
        "streams": {"s": STREAM},
        "rules": {"time_zone": "Asia/Kolkata"},
    }
    workspace = Workspace(parse_configuration(document, workspace.configuration.path), None)
    write_rules(workspace, {"hour": "hour(t) = 4", "same": "w = 'x'"})
    if is_range:
        assert retag(workspace, "s", "2024-03-09T12:00:00Z").rows_changed
        assert matched(workspace) == exploded(workspace)
    assert retag(workspace, "s").rows_changed
    assert retag(workspace, "s").rows_changed == 0
    assert_like_anew(workspace)


@pytest.mark.parametrize("output", ["all", "matched"])
def test_a_rule_reads_a_column_that_only_the_source_has(make_retagged: Any, output: str) -> None:
    workspace = make_retagged(output=output)
    append(workspace, 0, 90)
    write_rules(workspace, {"same": "w = 'x'"})
    tag_stream(workspace, "s")
    more = rows(90, 120).append_column("c", pa.array([1] * 30))
    write_deltalake(workspace.configuration.streams["s"].source, more, mode="append", schema_mode="merge")
    write_rules(workspace, {"same": "w = 'x'", "null": "c IS NULL AND n > 12", "one": "c = 1"})
    assert retag(workspace, "s").rows_changed
    assert "c" not in read(workspace, "s_tagged").column_names
    tag_stream(workspace, "s")
    assert_like_anew(workspace)


@pytest.mark.parametrize("seed", quick_first(0, range(cases(8, RETAGS))))
def test_random_histories(new_workspace: Any, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    draw = random.Random(seed)
    settings = {
        "output": draw.choice(["all", "matched"]),
        "annotations": draw.choice([[], ["first_rule_id", "labels", "severity"]]),
        **draw.choice([{}, {"partition_by": ["n"]}, {"cluster_by": ["seq"]}]),
    }
    if draw.random() < 0.7:
        monkeypatch.setattr(update, "FEW_RULES", 0)
        monkeypatch.setattr(update, "FOLDED_SHARE", 1.0)
        monkeypatch.setattr(compiled_changes, "LEAST_RULES", 1)
        monkeypatch.setattr(compiled_changes, "MOST_CHANGED", 1.0)
    history = History(new_workspace, draw, settings)
    history.append()
    history.compile()
    history.tag()
    for _ in range(15):
        history.step()
    history.compile()
    history.tag()
    history.retag(whole=True)
    again = retag(history.workspace, "s")
    assert (again.files_read, again.files_written, again.rows_changed) == (0, 0, 0)
    found = annotated(history.workspace)
    assert {seq: each[0] for seq, each in found.items()} == history.expected()
    assert matched(history.workspace) == exploded(history.workspace)
    tag_stream(history.workspace, "s", restart=True)
    assert annotated(history.workspace) == found
