"""The verb validate: whether an expression compiles as a rule of a scope, and what Spark would evaluate of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

import rules_index as ri
from pipelines.analyse import analyser_of
from pipelines.scopes import StreamScope, scope_of
from pipelines.sources.columns import refused_checks
from pipelines.value_lists import read_lists
from pipelines.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Validation:
    """What validate found; `error`, `message` and `position` are None for a rule that compiles.

    indexed: the columns that the index reads itself; derived: the parts of the text that only Spark can evaluate;
    findings: lint's findings by the rule alone, each with kind, message, position and text; problems: a sentence for
    each of the stream's checks that no run can use.
    """

    expression: str
    scope: str
    error: str | None = None
    message: str | None = None
    position: int | None = None
    indexed: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    findings: tuple[dict[str, Any], ...] = ()
    problems: tuple[str, ...] = ()


def validate_expression(workspace: Workspace, expression: str, scope: str) -> Validation:
    """Compile one expression against the scope's source; Spark is started only for derived parts."""
    over = scope_of(workspace, scope)
    schema, zone = over.columns(), workspace.configuration.rules.time_zone
    lists, _ = read_lists(workspace.configuration, pl.Series([expression]))
    compiled = ri.compile_rules(
        [("rule", expression)],
        schema,
        event_time=over.event_time,
        time_zone=zone,
        analyse=analyser_of(over),
        lists=lists,
    )
    problems = tuple(refused_checks(over.stream, schema)) if isinstance(over, StreamScope) else ()
    for reject in compiled.rejects.to_pylist():
        what = reject["error"], reject["message"], reject["position"]
        return Validation(expression, scope, *what, problems=problems)
    plain = tuple(leaf.name for leaf in compiled.inputs if leaf.text is None)
    known = over.known_values([expression])
    found = ri.lint([("rule", expression)], schema, over.event_time, zone, known, lists)
    findings = tuple(found.select(["kind", "message", "position", "text"]).to_pylist())
    derived = tuple(leaf.text or "" for leaf in compiled.derived)
    return Validation(expression, scope, indexed=plain, derived=derived, findings=findings, problems=problems)
