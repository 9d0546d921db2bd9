"""What a scan need not read: files and rows that no rule can match, where only matched rows are written.

All rules together are widened to a few conjunctions over plain columns (`rules_index.implication.widening`). Delta's
own statistics tell which files these leave out, and Parquet's which row groups.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote

from rules_index.implication.widening import widen_compiled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.sources.positions import Add, Slice
    from pipelines.sources.source import Source
    from rules_index.index.compiled import CompiledRules

CONJUNCTIONS = 16
"""Conjunctions that rules are widened to, at most: more are nearer to the rules, and cost more for each row."""


class Matchable:
    """What of a source the rules of an index can match.

    condition  in SQL, TRUE on every row that a rule matches; None where nothing can be said
    """

    def __init__(self, spark: SparkSession, source: Source, compiled: CompiledRules) -> None:
        self._spark, self._source = spark, source
        widened = widen_compiled(compiled, CONJUNCTIONS).sql
        self.condition = None if widened == "true" else widened

    def files(self, taken: Slice) -> tuple[Add, ...]:
        """The files of a slice that can have rows on which the condition is TRUE, as far as Delta's statistics tell.

        A file that is not in the source's newest version any more is not judged.
        """
        return tuple((version, add) for version, add in taken.files if _name(add["path"]) not in self._left_out)

    @cached_property
    def _left_out(self) -> set[str]:
        """The names of the source's files that have no such row."""
        source = self._source
        rows = self._spark.read.format("delta").option("versionAsOf", source.version).load(source.log.uri)
        kept = rows.filter(self.condition).inputFiles() if self.condition is not None else source.current_files
        return {_name(path) for path in source.current_files} - {_name(path) for path in kept}


def _name(path: str) -> str:
    """A file's own name, which no two files of a table share."""
    return PurePosixPath(unquote(path)).name
