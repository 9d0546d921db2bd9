"""Decides what only Spark can evaluate or write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.errors import PipelineError
from pipelines.lake.index_store import newest_index
from pipelines.lake.table_log import table_log
from pipelines.recovery.attempts import rules_that_read
from rules_index.printable import escaped

if TYPE_CHECKING:
    from collections.abc import Sequence

    import rules_index as ri
    from pipelines.lake.lake import Lake
    from rules_index.language.typed import Leaf

_MOST_NAMED = 10
"""Maximum number of parts of rules that a message names."""


def why_spark_writes(lake: Lake, names: Sequence[str]) -> str | None:
    """Why only Spark commits to some tables, as a clause; None if deltatag can commit to all that exist."""
    for name in names:
        log = table_log(lake.uri(name))
        held = log.latest()
        if held.number >= 0 and (reason := log.why_spark_commits(held)):
            return f"the table {name} {reason}"
    return None


def why_spark_evaluates(compiled: ri.CompiledRules) -> str | None:
    """Why only Spark evaluates an index's rules: the parts that need it, as a clause; None if there are none."""
    if not compiled.derived:
        return None
    named = [_part(compiled, leaf) for leaf in compiled.derived[:_MOST_NAMED]]
    others = len(compiled.derived) - len(named)
    return f"only Spark evaluates {'; '.join(named)}" + (f"; and {_counted(others, 'other part')}" if others else "")


def _part(compiled: ri.CompiledRules, leaf: Leaf) -> str:
    rules = rules_that_read(compiled, leaf.name)
    more = f" (and {_counted(len(rules) - 1, 'more rule')})" if len(rules) > 1 else ""
    return escaped(f"{leaf.text}, of the rule {rules[0] if rules else '?'}{more}")


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def why_spark_evaluates_newest(lake: Lake, scope: str) -> str | None:
    """Why only Spark evaluates a scope's newest index, as a clause; None if deltatag can, or no index is readable."""
    try:
        stored = newest_index(lake, scope)
    except PipelineError:
        return None  # using the index reports the error
    return stored.needs_spark if stored is not None else None
