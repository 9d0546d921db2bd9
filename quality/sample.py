"""Chooses the rules that a gate tries again on a sample of tagged rows, and limits the sample's size."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from pipelines.indexed_rules import indexed_rules
from quality.validation import listing

if TYPE_CHECKING:
    from pipelines.lake.runs import MicroBatch
    from pipelines.workspace import Workspace

ROWS = 400
"""Maximum rows in a sample: half of them any rows, half rows that a sampled rule matched."""
RULES = 40
"""Maximum rules in a sample: half of them any rules, half rules that matched rows."""


@dataclass(frozen=True, slots=True)
class SampleResult:
    """What trying rules again on a sample of tagged rows has found.

    disagreeing: the rules that contradict the rows' tags, each with the number of rows; rows, rules: how many were
    tried.
    """

    disagreeing: Sequence[str] = ()
    rows: int = 0
    rules: int = 0

    def measures(self) -> dict[str, Any]:
        """The result as measures of a gate."""
        disagreeing = listing(self.disagreeing)
        return {"disagreeing_rules": disagreeing, "sampled_rows": self.rows, "sampled_rules": self.rules}


def text_partitions(workspace: Workspace, table: str) -> list[str]:
    """The text columns by which a tagged table is partitioned.

    Rows with NULL there cannot be tried again: the rules may have seen an empty text, which a partition does not keep.
    """
    opened = workspace.lake.delta(table)
    texts = {field.name for field in opened.schema().fields if getattr(field.type, "type", "") == "string"}
    return [name for name in opened.metadata().partition_columns if name in texts]


def rules_to_try(workspace: Workspace, scope: str, batch: MicroBatch, pairs: pl.DataFrame) -> pl.DataFrame | None:
    """A sample of the rules in the index that tagged the micro-batch; None if the index cannot be read any more.

    Rules in an index were checked, so they are safe to hand to Spark. The index also keeps their texts, which `rules`
    may have lost again soon after the micro-batch.
    """
    from pipelines.lake.index_store import load_former

    compiled = load_former(workspace.lake, scope, batch.fingerprint) if batch.fingerprint else None
    if compiled is None:
        return None
    ids = compiled.ids.to_pylist()
    chance = random.Random(f"{batch.fingerprint} {batch.batch}")
    held = set(ids)
    matched = sorted(i for i in set(pairs["rule_id"].to_list()) if i in held)
    chosen = set(chance.sample(matched, min(len(matched), RULES // 2)))
    chosen |= set(chance.sample(ids, min(len(ids), RULES - len(chosen))))
    return indexed_rules(compiled, list(chosen))
