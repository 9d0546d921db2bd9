"""What tagged rows are tried with again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from pipelines.sources.pushdown import CONJUNCTIONS
from rules_index.implication.widening import widen_compiled
from rules_index.workers.retagged_rows import Retry

if TYPE_CHECKING:
    from pyspark.sql import Column

    import rules_index as ri
    from pipelines.retagging.changes import Changes
    from pipelines.writing.matching import Matcher

ID_TYPES = {"string": pa.string(), "bigint": pa.int64()}


@dataclass(frozen=True)
class Trial:
    """What rows are tried with: the index of the rules that differ and what applies it, None where there are none.

    former: an index of what these rules were, None where it is not to be had; in_range: TRUE on rows to be tried, None
    for all.
    """

    changes: Changes
    id_type: str
    compiled: ri.CompiledRules | None = None
    matcher: Matcher | None = None
    former: ri.CompiledRules | None = None
    in_range: Column | None = None

    @property
    def retry(self) -> Retry:
        """As the workers have it."""
        kind = ID_TYPES[self.id_type]
        return Retry(kind, pa.array(self.changes.held, kind), self.changes.everything)

    @property
    def condition(self) -> str | None:
        """In SQL, TRUE on every row whose rules can change; None where nothing can be said."""
        if self.changes.everything or (self.former is None and not self.changes.former.is_empty()):
            return None
        found = [matchable(each) for each in (self.compiled, self.former) if each is not None]
        return None if None in found else " OR ".join(f"({each})" for each in found) or "false"


def matchable(compiled: ri.CompiledRules | None) -> str | None:
    """In SQL, TRUE on every row that a rule of an index matches; None where nothing can be said."""
    found = "true" if compiled is None else widen_compiled(compiled, CONJUNCTIONS).sql
    return None if found == "true" else found
