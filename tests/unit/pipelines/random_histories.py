"""Random edits of what a re-tag follows, in a lake with a stream or joins, and what its rules match."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import rules_index as ri
from pipelines.compile import compile_scopes
from pipelines.compiling import changes as compiled_changes
from pipelines.maintain import maintain
from pipelines.maintaining import folding
from pipelines.workspace import Workspace
from rules_index.compiling import update
from tests import lakes

LISTS = {"words": pa.string(), "numbers": pa.int32()}
COLUMNS = ("c", "u", "e", "u.b")
"""Columns that a source is given later, the last one a field of a struct."""
ENGINES = ("auto", "hybrid", "be_tree", "asc", "r_tree", "scan")
ANNOTATIONS = ("first_rule_id", "labels", "severity")


@dataclass
class History:
    """A lake without a JVM, and random edits of its rules and lists."""

    draw: random.Random
    settings: dict[str, Any]
    rules: dict[Any, dict[str, Any]] = field(default_factory=dict)
    workspace: Workspace = field(init=False)
    bigint: bool = field(init=False)
    zone: str = field(init=False)

    def rule(self) -> dict[str, Any]:
        """A random rule's scope, expression and bounds."""
        raise NotImplementedError

    def edit_rules(self) -> None:
        """Remove, change or add up to three rules."""
        draw = self.draw
        for _ in range(draw.randint(1, 3)):
            number = draw.randint(0, 14)
            key = number if self.bigint else f"r'{number}"
            known = self.rules.get(key)
            if known is not None and draw.random() < 0.4:
                del self.rules[key]
            elif known is not None and draw.random() < 0.5:
                known |= draw.choice(
                    [
                        {"enabled": draw.choice([True, False])},
                        {"priority": draw.randint(0, 3)},
                        {"labels": {"a": str(draw.randint(0, 2))}},
                        {"severity": draw.choice([None, "low", "high"])},
                        {"expression": known["expression"] + " "},
                    ]
                )
            else:
                self.rules[key] = {"rule_id": key, **self.rule()}
        self.write_rules()

    def write_rules(self) -> None:
        lakes.write_rules(self.workspace, list(self.rules.values()), "overwrite")

    def edit_list(self) -> None:
        draw, name = self.draw, self.draw.choice(list(LISTS))
        drawn: Sequence[Any] = ["x", "xy", "xyz", "z", ""] if name == "words" else range(draw.choice((6, 20)))
        values = pa.array(draw.sample(drawn, draw.randint(0, 4)), LISTS[name])
        place = str(self.workspace.lake.uri(name))
        write_deltalake(place, pa.table({"v": values}), mode=draw.choice(["append", "overwrite"]))

    def compile(self) -> None:
        errors = [result.error for result in compile_scopes(self.workspace) if result.error]
        assert not errors, errors

    def fold(self, merges: bool = True) -> None:
        """Fold `runs`, and keep the tables up."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(folding, "KEPT_BATCHES", self.draw.randint(1, 3))
            folding.fold(self.workspace.lake, datetime.now(UTC))
        if merges and self.draw.random() < 0.5:
            assert [each.error for each in maintain(self.workspace) if each.error] == []

    def matched(self, scope: str, rows: pa.Table, event_time: str) -> list[list[Any]]:
        """The ids that rows match, ascending, by `scan` over the scope's rules and the lists as they are now."""
        lists = []
        for name in LISTS:
            place = self.workspace.lake.uri(name)
            if DeltaTable.is_deltatable(place):
                lists.append(ri.value_list(name, DeltaTable(place).to_pyarrow_table().column("v")))
        given = [each for each in self.rules.values() if each.get("enabled") is not False and each["scope"] == scope]
        kind, bound = pa.int64() if self.bigint else pa.string(), pa.timestamp("us", "UTC")
        schema = pa.schema([("rule_id", kind), ("expression", pa.string()), ("valid_from", bound), ("valid_to", bound)])
        wanted = pa.Table.from_pylist([{name: each[name] for name in schema.names} for each in given], schema=schema)
        compiled = ri.compile_rules(
            wanted, rows.schema, engine="scan", event_time=event_time, time_zone=self.zone, lists=lists
        )
        return [sorted(ids) for ids in compiled.match(rows).to_pylist()]

    def take(self, steps: Sequence[Callable[[], Any]]) -> None:
        """Fifteen of these steps at random."""
        for _ in range(15):
            self.draw.choice(steps)()


def compile_in_changes(patch: pytest.MonkeyPatch) -> None:
    """Have each compile update the index, as if there were many rules."""
    patch.setattr(update, "FEW_RULES", 0)
    patch.setattr(update, "FOLDED_SHARE", 1.0)
    patch.setattr(compiled_changes, "LEAST_RULES", 1)
    patch.setattr(compiled_changes, "MOST_CHANGED", 1.0)


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
