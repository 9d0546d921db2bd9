"""What only Spark reads or evaluates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.recovery.attempts import rules_that_read

if TYPE_CHECKING:
    import rules_index as ri

READABLE = frozenset(
    {"appendOnly", "changeDataFeed", "checkConstraints", "clustering", "domainMetadata", "generatedColumns",
     "identityColumns", "invariants", "allowColumnDefaults", "timestampNtz", "vacuumProtocolCheck", "inCommitTimestamp",
     "rowTracking"}
)  # fmt: skip
"""Features of a source that ask nothing of whoever reads its files."""


def of_derived(compiled: ri.CompiledRules) -> str | None:
    """The rule of an index that has a part which only Spark evaluates, for the middle of a sentence; None: none has."""
    if not compiled.derived:
        return None
    leaf = compiled.derived[0]
    rules = rules_that_read(compiled, leaf.name)
    more = f" (and {len(rules) - 1:,} more rules)" if len(rules) > 1 else ""
    others = f", as {len(compiled.derived) - 1:,} other parts of rules" if len(compiled.derived) > 1 else ""
    return f"only Spark evaluates {leaf.text}, of the rule {rules[0] if rules else '?'}{more}{others}"
