"""`update` after `update`, of random rules: each version is what a full compile gives."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.compiling import update as update_module
from rules_index.index.annotate import Annotate
from rules_index.index.compiled import Layers, dumps
from rules_index.index.registry import ENGINES
from rules_index.language.typed import Leaf
from tests.cases import cases, soak_but
from tests.random_expressions import Grammar
from tests.random_rows import ARROW, COLUMNS, rows
from tests.unit.rule_updates import require_same

HISTORIES = cases(24, "DELTATAG_UPDATE_CASES")
SCHEMA = pa.schema([(name, ARROW[kind]) for name, kind in COLUMNS.items()])
EPOCH = datetime(2024, 1, 1, tzinfo=UTC)


class History:
    """A table of rules as its owner edits it, and the index that follows."""

    def __init__(self, seed: int, engine: str) -> None:
        self.choice = random.Random(seed)
        self.grammar = Grammar(seed, variety=self.choice.choice((0.0, 0.1, 0.4)))
        self.numbers = self.choice.random() < 0.3
        self.engine = engine
        self.event_time = self.choice.choice((None, "ts", "dt", "nt"))
        self.time_zone = self.choice.choice(("UTC", "Europe/Berlin"))
        self.annotate = self.choice.choice((None, None, Annotate(), Annotate(("labels",))))
        self.rules: list[dict[str, Any]] = [self.rule(self.id()) for _ in range(self.choice.choice((0, 5, 40)))]

    def id(self) -> str | int:
        number = self.choice.randrange(60)
        return number * 7 - 100 if self.numbers else self.choice.choice(("", "é", "日", "r", "R \"'\\")) + str(number)

    def rule(self, rule_id: str | int) -> dict[str, Any]:
        since, until = (
            EPOCH + timedelta(days=self.choice.randrange(-9, 9), microseconds=self.choice.randrange(3))
            if self.choice.random() < 0.15
            else None
            for _ in range(2)
        )
        known = [rule["expression"] for rule in getattr(self, "rules", [])]
        again = known and self.choice.random() < 0.1
        text = self.choice.choice(known) if again else self.grammar.rule()
        return {
            "rule_id": rule_id,
            "expression": f"  {text} " if self.choice.random() < 0.05 else text,
            "valid_from": since,
            "valid_to": until,
            "enabled": self.choice.choice((True, None)),
            "priority": self.choice.choice((None, 1, 2)),
            "labels": self.choice.choice((None, "", "team=a", "b, c")),
            "severity": self.choice.choice((None, "low", "high", "high", "dire")),
        }

    def table(self, rules: Sequence[dict[str, Any]]) -> pa.Table:
        instant = pa.timestamp("us", "UTC")
        kinds = [pa.int64() if self.numbers else pa.string(), pa.string(), instant, instant, pa.bool_()]
        kinds += [pa.int32(), pa.string(), pa.string()]
        names = ["rule_id", "expression", "valid_from", "valid_to", "enabled", "priority", "labels", "severity"]
        return pa.table(
            [pa.array([rule[name] for rule in rules], kind) for name, kind in zip(names, kinds, strict=True)], names
        )

    def edit(self) -> pa.Table:
        """Changes the rules; what `update` is told of it."""
        choice, changed = self.choice, {}
        for _ in range(choice.choice((0, 1, 1, 3, 12))):
            known = [rule["rule_id"] for rule in self.rules]
            rule_id = choice.choice(known) if known and choice.random() < 0.7 else self.id()
            before = [rule for rule in self.rules if rule["rule_id"] == rule_id]
            kind = choice.random()
            if kind < 0.3:
                after = [{**rule, "enabled": False} for rule in before] if choice.random() < 0.5 else []
            elif kind < 0.4:
                after = [self.rule(rule_id) for _ in range(2)]
            elif kind < 0.5 and before:
                after = before
            else:
                after = [self.rule(rule_id)]
            self.rules = [rule for rule in self.rules if rule["rule_id"] != rule_id] + after
            changed[rule_id] = after
        choice.shuffle(self.rules)
        gone = dict.fromkeys(self.table([]).column_names)
        told = [rule for rule_id, after in changed.items() for rule in after or [{**gone, "rule_id": rule_id}]]
        return self.table(told)

    def full(self) -> ri.CompiledRules:
        return ri.compile_rules(
            self.table(self.rules),
            SCHEMA,
            self.engine,
            self.event_time,
            self.time_zone,
            self.analyse,
            annotate=self.annotate,
        )

    def analyse(self, leaves: Sequence[Leaf]) -> list[str | None]:
        """A Spark that refuses some of what only it can evaluate."""
        return ["refused" if zlib.crc32(leaf.name.encode()) % 5 == 0 else None for leaf in leaves]


@pytest.mark.parametrize("engine", soak_but(("auto", "be_tree", "scan"), [*ENGINES, "auto"]))
def test_random_histories_equal_full_compiles(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # small rule sets are updated as large ones are
    monkeypatch.setattr(update_module, "FEW_RULES", 0)
    overlays = annotated = 0
    for seed in range(HISTORIES):
        monkeypatch.setattr(update_module, "FOLDED_SHARE", (0.1, 0.5, 100.0)[seed % 3])
        history = History(seed, engine)
        table = rows(200, seed)
        compiled = history.full()
        for step in range(4):
            before, expected = compiled, compiled.fingerprint
            changes = history.edit()
            given = (changes, pl.DataFrame(changes))[step % 2]
            compiled = compiled.update(given, history.analyse)
            assert before.fingerprint == expected
            require_same(compiled, history.full(), table)
            overlays += isinstance(compiled.definition, Layers)
            annotated += isinstance(compiled.definition, Layers) and compiled.annotations is not None
            if step % 2:
                data = dumps(compiled)
                compiled = ri.loads(data)
                assert dumps(compiled) == data
                require_same(compiled, history.full(), table)
    assert (overlays > HISTORIES and annotated) or HISTORIES < 4
