"""The condition of a WHERE."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

import rules_index as ri
from pipelines.errors import NeedsSparkError
from pipelines.local_sql.syntax import Path
from rules_index.implication.widening import Widened, widen_compiled
from rules_index.names import path_parts


@dataclass(frozen=True)
class Condition:
    """The condition of a WHERE, compiled as an index of one rule."""

    compiled: ri.CompiledRules

    @cached_property
    def paths(self) -> list[Path]:
        """The columns, and fields of columns, that the condition reads."""
        return [tuple(path_parts(leaf.name)) for leaf in self.compiled.inputs]

    @property
    def may_raise(self) -> bool:
        """True if it may raise an error on some row, which Spark would report: then no file may be skipped."""
        return bool(len(self.compiled.raising[1]))

    @cached_property
    def widened(self) -> Widened:
        """The column ranges by which files are skipped."""
        return widen_compiled(self.compiled)

    def holds_on(self, rows: pa.Table) -> np.ndarray:
        """Which rows satisfy it, [rows] bool; NeedsSparkError if it raises on one, so that Spark reports that."""
        asked = rows if self.compiled.inputs else pa.table({"_": pa.nulls(rows.num_rows)})
        offsets, _, errors = self.compiled.match_ordinals(asked)
        if errors:
            raise NeedsSparkError("the condition raises on a row")
        return np.diff(offsets) > 0
