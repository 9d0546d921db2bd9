"""Rows, rules and deaths of re-tags."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from pipelines.compile import compile_scopes
from pipelines.errors import RestartedError
from pipelines.retag import retag
from pipelines.retagging.retagger import Retagger
from tests import lakes

START = datetime(2024, 3, 9, tzinfo=UTC)
STREAM = {"source": "lake/source", "key": ["id"], "event_time": "t"}
BEFORE = {"gone": "n > 3", "changed": "n < 9", "same": "w = 'x'"}
STEPS = ("found", "planned", "files", "s_tagged", "s_matches")
"""Those after which `die_after` has a re-tag's process end."""


def rows(start: int, stop: int) -> pa.Table:
    numbers = range(start, stop)
    return pa.table(
        {
            "id": pa.array([None if n % 31 == 7 else n // 2 for n in numbers], pa.int64()),
            "n": pa.array([None if n % 7 == 3 else n % 20 for n in numbers], pa.int32()),
            "w": pa.array([("x", "xy", None, "z", "")[n % 5] for n in numbers]),
            "d": pa.array([float("nan") if n % 6 == 0 else None if n % 6 == 1 else n / 10 for n in numbers]),
            "t": pa.array(
                [None if n % 11 == 2 else START + timedelta(minutes=10 * n) for n in numbers], pa.timestamp("us", "UTC")
            ),
            "seq": pa.array(numbers, pa.int64()),
        }
    )


def structs(numbers: range, *fields: str) -> pa.Table:
    """Rows with a STRUCT `u` of these fields, beside a number."""
    values = [dict.fromkeys(fields, n) for n in numbers]
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "n": pa.array(numbers, pa.int32()),
            "u": pa.array(values, pa.struct([(name, pa.int32()) for name in fields])),
        }
    )


def write_rules(workspace: Any, rules: Any) -> None:
    """Make the table hold just these rules: id -> text, or text and bounds."""
    listed = []
    for rule, definition in rules.items():
        text, since, until = definition if isinstance(definition, tuple) else (definition, None, None)
        listed.append({"rule_id": rule, "scope": "s", "expression": text, "valid_from": since, "valid_to": until})
    lakes.write_rules(workspace, listed, "overwrite")
    errors = [result.error for result in compile_scopes(workspace) if result.error]
    assert not errors, errors


def random_rule(draw: random.Random):
    texts = [
        f"n > {draw.randint(0, 20)}",
        f"n BETWEEN {draw.randint(0, 9)} AND {draw.randint(9, 20)} AND w = '{draw.choice(('x', 'xy', 'z'))}'",
        "n IS NULL",
        f"NOT (n = {draw.randint(0, 20)} OR w = 'x')",
        f"d >= {draw.randint(0, 40)}",
        "d = double('NaN')",
        f"seq BETWEEN {draw.randint(0, 300)} AND {draw.randint(0, 300)}",
        f"t > TIMESTAMP'2024-03-10 {draw.randint(0, 23):02}:00:00'",
        f"n + seq > {draw.randint(0, 300)}",
        "TRUE",
        "FALSE",
    ]
    return bounded(draw, draw.choice(texts))


def bounded(draw: random.Random, text: str) -> tuple[str, datetime | None, datetime | None]:
    """A rule's text with bounds of validity, or without."""
    since = START + timedelta(hours=draw.randint(0, 40)) if draw.random() < 0.25 else None
    until = START + timedelta(hours=draw.randint(0, 60)) if draw.random() < 0.25 else None
    return (text, since, until)


def edited(draw: random.Random, rules: Any, make: Any = random_rule) -> Any:
    """Another set of rules: some removed, some changed, some added."""
    kept = {rule: make(draw) if draw.random() < 0.2 else text for rule, text in rules.items() if draw.random() > 0.2}
    for _ in range(draw.randint(0, 2)):
        kept[f"r{draw.randint(0, 40)}"] = make(draw)
    return kept or {"r0": make(draw)}


class DiedError(BaseException):
    """Stands for the end of the process: no `except Exception` may catch it."""


def overtake(workspace: Any, tables: type, rules: Any) -> None:
    """A run is stopped behind its plan; another one, by `rules`, takes over; then the first one goes on, in vain.

    tables: the class whose `write` the run is stopped in.
    """
    write, patch = tables.write, pytest.MonkeyPatch()  # type: ignore[attr-defined]

    def late(self: Any, *arguments: Any) -> Any:
        patch.undo()
        write_rules(workspace, rules)
        assert retag(workspace, "s").rows_changed
        return write(self, *arguments)

    patch.setattr(tables, "write", late)
    with pytest.raises(RestartedError):
        retag(workspace, "s")
    assert retag(workspace, "s").rows_changed == 0


def die_after(patch: pytest.MonkeyPatch, step: str, log: type) -> None:
    """Have a re-tag's process end once it has found or planned what changes, made its files, or written a table (its
    name). log: the class whose `rewrite` writes tables."""
    if step in ("found", "planned"):
        record = Retagger._record

        def plan(self, *arguments):
            if step == "planned":
                record(self, *arguments)
            raise DiedError

        patch.setattr(Retagger, "_record", plan)
        return
    write = log.rewrite

    def then_die(self, *arguments):
        if step == "files":
            raise DiedError
        done = write(self, *arguments)
        if self.uri.endswith(step):
            raise DiedError
        return done

    patch.setattr(log, "rewrite", then_die)
