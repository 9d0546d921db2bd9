"""The verb validate: would this expression compile as a rule of a scope, and what would become of it?"""

from __future__ import annotations

from dataclasses import dataclass

import rules_index as ri
from pipelines.analyse import spark_analyser
from pipelines.scopes import scope_of
from pipelines.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Validation:
    """`error`, `message` and `position` are None for a rule that compiles.

    `indexed` are the columns and computations that the index reads itself, `derived` the parts of the text
    that only Spark can evaluate.
    """

    expression: str
    scope: str
    error: str | None = None
    message: str | None = None
    position: int | None = None
    indexed: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()


def validate_expression(workspace: Workspace, expression: str, scope: str) -> Validation:
    """Compile one expression against the scope's source; Spark is started only if it must be asked."""
    over = scope_of(workspace, scope)
    compiled = ri.compile_rules(
        [("rule", expression)],
        over.columns(),
        event_time=over.event_time,
        time_zone=workspace.configuration.rules.time_zone,
        analyse=spark_analyser(over),
    )
    for reject in compiled.rejects.to_pylist():
        return Validation(expression, scope, reject["error"], reject["message"], reject["position"])
    plain = tuple(leaf.name for leaf in compiled.inputs if leaf.text is None)
    return Validation(expression, scope, indexed=plain, derived=tuple(leaf.text or "" for leaf in compiled.derived))
