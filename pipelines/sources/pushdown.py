"""Predicate pushdown of all rules: a scan skips files and rows that no rule can match, if only matches are written.

All rules together are widened to a few conjunctions over plain columns (`rules_index.implication.widening`). Delta's
statistics then show which files can be skipped, and Parquet's which row groups.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from pipelines.lake.add_actions import file_name
from pipelines.lake.column_types import STORED_NAME
from pipelines.sources.slices import slice_schema
from rules_index.implication.widening import widen_compiled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.sources.positions import Add, Slice
    from pipelines.sources.source import Source
    from rules_index.index.compiled import CompiledRules

CONJUNCTIONS = 16
"""Maximum number of conjunctions to which rules are widened: more are tighter, but cost more per row."""


class Matchable:
    """The part of a source that the rules of an index can match.

    condition  a SQL condition that is TRUE on every row that a rule matches; None if there is no useful one
    """

    def __init__(self, spark: SparkSession, source: Source, compiled: CompiledRules) -> None:
        self._spark, self._source = spark, source
        widened = widen_compiled(compiled, CONJUNCTIONS).sql
        self.condition = None if widened == "true" else widened

    def files(self, taken: Slice) -> tuple[Add, ...]:
        """The files of a slice that, by Delta's statistics, may have rows on which the condition is TRUE.

        Delta looks them up in the source's newest version. Those that are no longer there are always included, and all
        are if a column has another name or type there.
        """
        if not self._columns(taken.schema_version) <= self._columns(self._source.version):
            return taken.files
        return tuple((version, add) for version, add in taken.files if file_name(add["path"]) not in self._left_out)

    def _columns(self, version: int) -> set[tuple[str, str, str]]:
        """The name, the name in files and the type of each of the source's columns at a version."""
        fields = slice_schema(self._source, version).fields
        return {(field.name, field.metadata.get(STORED_NAME, field.name), field.dataType.json()) for field in fields}

    @cached_property
    def _left_out(self) -> set[str]:
        """The names of the source's current files that have no such row."""
        source = self._source
        rows = self._spark.read.format("delta").option("versionAsOf", source.version).load(source.log.uri)
        kept = rows.filter(self.condition).inputFiles() if self.condition is not None else source.current_files
        return {file_name(path) for path in source.current_files} - {file_name(path) for path in kept}
