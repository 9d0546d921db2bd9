"""Edits of the table `rules`, of lists and of the source's columns, at random."""

from __future__ import annotations

import random
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from pipelines.lake.lake import arrow_schema
from pipelines.table_definitions import RULES
from pipelines.workspace import Workspace

TEXTS = (
    "x > {}",
    "x = {} AND s = 'a'",
    "s IN LIST('named') OR x = {}",
    "x NOT IN LIST('numbers') AND x > {}",
    "s IN ('a', 'b') OR x < {}",
    "x IS NULL",
    "y = {}",
    "x >",
    "x + 1 > {}",
)
LISTS = {name: {"source": f"lake/{name}"} for name in ("named", "numbers")}


class Author:
    """Edits the table `rules` by delta-rs, as people and programs do."""

    def __init__(self, workspace: Workspace, seed: int) -> None:
        self.lake, self.choice = workspace.lake, random.Random(seed)
        self.schema = arrow_schema(RULES, workspace.lake.rule_id_type())
        self.number = pa.types.is_integer(self.schema.field("rule_id").type)

    def id(self) -> Any:
        number = self.choice.randrange(40)
        return number if self.number else f"r{number}'"

    def rule(self, rule_id: Any) -> dict[str, Any]:
        choice = self.choice
        return {
            "rule_id": None if choice.random() < 0.03 else rule_id,
            "scope": choice.choice(("s", "s", "s", "t", "t", "u", None) if choice.random() < 0.5 else ("s", "t")),
            "expression": None if choice.random() < 0.05 else choice.choice(TEXTS).format(choice.randrange(12)),
            "enabled": choice.choice((True, None, None, False)),
            "valid_from": datetime(2024, 1, 1, choice.randrange(3), tzinfo=UTC) if choice.random() < 0.1 else None,
            "priority": choice.choice((None, 1, 2)),
            "labels": choice.choice((None, {}, {"team": "a"}, {"b": None, "level": "low"}, {"severity": "dire"})),
        }

    def table(self, rules: list[dict[str, Any]]) -> pa.Table:
        return pa.Table.from_pylist(rules, schema=self.schema)

    def append(self) -> None:
        known = set(self.lake.arrow("rules", ["rule_id"]).column(0).to_pylist())
        ids = sorted({self.id() for _ in range(self.choice.choice((1, 2, 5)))})
        given = self.table([self.rule(each) for each in ids if each not in known or self.choice.random() < 0.1])
        write_deltalake(self.lake.uri("rules"), given, mode="append")

    def resolve(self) -> None:
        """Takes back what has the id of another."""
        ids = self.lake.arrow("rules", ["rule_id"]).column(0).drop_null().to_pylist()
        for each in sorted({each for each in ids if ids.count(each) > 1}):
            self.lake.delta("rules").delete(f"rule_id = {self.literal(each)}")

    def literal(self, rule_id: Any) -> str:
        return str(rule_id) if self.number else "'" + rule_id.replace("'", "''") + "'"

    def change(self) -> None:
        text = self.choice.choice(TEXTS).format(self.choice.randrange(12)).replace("'", "''")
        updates = self.choice.choice(
            (
                {"expression": f"'{text}'"},
                {"expression": "expression || ' '"},
                {"enabled": "false"},
                {"enabled": "true"},
                {"scope": "'t'"},
                {"owner": "'me'"},
                {"priority": "7"},
            )
        )
        self.lake.delta("rules").update(updates=updates, predicate=f"rule_id = {self.literal(self.id())}")

    def delete(self) -> None:
        self.lake.delta("rules").delete(f"rule_id = {self.literal(self.id())}")

    def merge(self) -> None:
        ids = sorted({self.id() for _ in range(4)})
        given = self.table([{**self.rule(each), "rule_id": each} for each in ids])
        merged = self.lake.delta("rules").merge(given, "t.rule_id = g.rule_id", "g", "t")
        merged.when_matched_update_all().when_not_matched_insert_all().execute()

    def compact(self) -> None:
        self.lake.delta("rules").optimize.compact()

    def overwrite(self) -> None:
        rules = self.lake.arrow("rules").cast(self.schema)
        write_deltalake(self.lake.uri("rules"), rules, mode="overwrite")

    def make_anew(self) -> None:
        rules = self.lake.arrow("rules").cast(self.schema)
        shutil.rmtree(self.lake.uri("rules"))
        self.lake.create("rules", "bigint" if self.number else "string")
        write_deltalake(self.lake.uri("rules"), rules, mode="append")
        self.append()

    def lose_history(self) -> None:
        shutil.rmtree(Path(self.lake.uri("rules")) / "_change_data", ignore_errors=True)

    def restore(self) -> None:
        table = self.lake.delta("rules")
        table.restore(max(table.version() - self.choice.randrange(1, 4), 0))

    def switch_feed(self) -> None:
        given = {"delta.enableChangeDataFeed": self.choice.choice(("true", "false"))}
        self.lake.delta("rules").alter.set_table_properties(given)

    def edit_list(self) -> None:
        name = self.choice.choice(list(LISTS))
        place = Path(self.lake.uri("rules")).parent / name
        letters = self.choice.choices("abc", k=self.choice.randrange(3))
        values = pa.array(letters) if name == "named" else pa.array([ord(each) - 97 for each in letters], pa.int16())
        if self.choice.random() < 0.1:
            shutil.rmtree(place, ignore_errors=True)
        elif self.choice.random() < 0.1:
            write_deltalake(place, pa.table({"v": [b"a"]}), mode="overwrite", schema_mode="overwrite")
        else:
            write_deltalake(place, pa.table({"v": values}), mode="overwrite", schema_mode="overwrite")

    def change_columns(self) -> None:
        """The source gets a column y, or loses it."""
        place = Path(self.lake.uri("rules")).parent / "source"
        rows = DeltaTable(place).to_pyarrow_table()
        if "y" in rows.column_names:
            rows = rows.drop_columns("y")
        else:
            kind = self.choice.choice((pa.int64(), pa.int64(), pa.string()))
            rows = rows.append_column("y", pa.array([each % 12 for each in range(len(rows))]).cast(kind))
        write_deltalake(place, rows, mode="overwrite", schema_mode="overwrite")

    def edit(self) -> None:
        steps = (
            [self.append] * 4
            + [self.resolve] * 4
            + [self.change] * 5
            + [self.delete] * 3
            + [self.merge] * 3
            + [self.edit_list] * 3
            + [self.compact, self.restore, self.switch_feed, self.change_columns]
        )
        steps += [self.overwrite] + ([self.make_anew, self.lose_history] if self.choice.random() < 0.3 else [])
        self.choice.choice(steps)()
