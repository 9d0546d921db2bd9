"""Finds the rows of a stream that are not tagged, without Spark: those with a NULL in the key, and those that fail a
check.

A check is compiled as three rules: whether it is TRUE, FALSE or NULL. On a row where none of them is TRUE, it raised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from rules_index.arrays import segment_ids
from rules_index.names import path_parts

if TYPE_CHECKING:
    from rules_index.index.compiled import CompiledRules

_OUTCOMES = ("TRUE", "FALSE", "NULL")


@dataclass(frozen=True)
class RowChecks:
    """The key and the checks of a stream.

    compiled: the checks as rules, None if there are none: then the compiler is not even imported. needs_spark: the name
    of a check that cannot be evaluated here, None if all can.
    """

    key: tuple[str, ...]
    names: tuple[str, ...]
    compiled: CompiledRules | None
    needs_spark: str | None

    @classmethod
    def of(cls, key: Sequence[str], checks: Mapping[str, str], schema: pa.Schema, time_zone: str) -> RowChecks:
        """key: columns, ignoring case; checks: conditions by name; schema: the columns that they can read."""
        spelled = {name.lower(): name for name in schema.names}
        columns = tuple(spelled[name.lower()] for name in key)
        if not checks:
            return cls(columns, (), None, None)
        from rules_index.compiling.compile import compile_rules

        rules = [
            (number * len(_OUTCOMES) + place, f"(\n{condition}\n) IS {outcome}")
            for number, condition in enumerate(checks.values())
            for place, outcome in enumerate(_OUTCOMES)
        ]
        compiled = compile_rules(rules, schema, "scan", time_zone=time_zone)
        names = tuple(checks)
        unknown = [each["rule_id"] for each in compiled.rejects.to_pylist()]
        for leaf in compiled.derived:
            unknown += [number for number, text in rules if leaf.text is not None and leaf.text in text]
        spark = names[min(unknown) // len(_OUTCOMES)] if unknown else names[0] if compiled.derived else None
        return cls(columns, names, compiled, spark)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        inputs = () if self.compiled is None else self.compiled.inputs
        return tuple(dict.fromkeys((*self.key, *(path_parts(leaf.name)[0] for leaf in inputs))))

    def accepted(self, batch: pa.RecordBatch) -> np.ndarray:
        """[rows] bool: whether each row is tagged."""
        return self._judged(batch)[0]

    def count(self, batches: Iterator[pa.RecordBatch]) -> np.ndarray:
        """[2 + keys + checks] int64: the number of rows, of rows that are not tagged, of rows with NULL in each column
        of the key, and of rows on which each check is not TRUE."""
        counts = np.zeros(2 + len(self.key) + len(self.names), np.int64)
        for batch in batches:
            accepted, outcomes = self._judged(batch)
            nulls = [batch.column(name).null_count for name in self.key]
            counts += [len(batch), int((~accepted).sum()), *nulls, *(outcomes != 0).sum(axis=1).tolist()]
        return counts

    def reasons(self, batch: pa.RecordBatch) -> list[str]:
        """Why each row is not tagged, several reasons joined by "; "; "" for a row that is tagged."""
        _, outcomes = self._judged(batch)
        nulls = [(name, batch.column(name).is_null().to_numpy(zero_copy_only=False)) for name in self.key]
        found = []
        for row in range(len(batch)):
            reasons = [f"the key {name} is NULL" for name, is_null in nulls if is_null[row]]
            for number, name in enumerate(self.names):
                outcome = int(outcomes[number, row])
                if outcome:
                    reasons.append(f"the check {name} " + ("", "is FALSE", "is NULL", "raised an error")[outcome])
            found.append("; ".join(reasons))
        return found

    def _judged(self, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
        """Whether each row is accepted, and the result of each check on it [checks, rows]: 0 TRUE, 1 FALSE, 2 NULL, 3
        raised."""
        rows = len(batch)
        outcomes = np.full((len(self.names), rows), len(_OUTCOMES), np.int8)
        if self.compiled is not None:
            offsets, ordinals, _ = self.compiled.match_ordinals(batch)
            ids = self.compiled.ids.to_numpy()[ordinals]
            outcomes[ids // len(_OUTCOMES), segment_ids(offsets)] = ids % len(_OUTCOMES)
        accepted = (outcomes == 0).all(axis=0)
        for name in self.key:
            column = batch.column(name)
            if column.null_count:
                accepted &= column.is_valid().to_numpy(zero_copy_only=False)
        return accepted, outcomes
