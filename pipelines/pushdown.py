"""What a scan need not read: files and rows that no rule can match, where only matched rows are written.

All rules together are widened to a few conjunctions over plain columns (`rules_index.implication.widening`). Delta's
own statistics tell which files these leave out, and Parquet's which row groups.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote

from rules_index.implication.widening import widen_compiled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.source import Add, Slice, Source
    from rules_index.compiled import CompiledRules

CONJUNCTIONS = 16
"""Conjunctions that rules are widened to, at most: more are nearer to the rules, and cost more for each row."""


def matchable_condition(compiled: CompiledRules) -> str | None:
    """A condition in SQL that is TRUE on every row which a rule matches; None where nothing can be said."""
    condition = widen_compiled(compiled, CONJUNCTIONS).sql
    return None if condition == "true" else condition


def matchable_files(spark: SparkSession, source: Source, taken: Slice, condition: str) -> tuple[Add, ...]:
    """The files of a slice that can have rows on which a condition is TRUE, as far as Delta's statistics tell.

    A file that is not in the source's newest version any more is not judged.
    """
    rows = spark.read.format("delta").option("versionAsOf", source.version).load(source.log.uri)
    kept = {_name(path) for path in rows.filter(condition).inputFiles()}
    left_out = {_name(path) for path in source.current_files} - kept
    return tuple((version, add) for version, add in taken.files if _name(add["path"]) not in left_out)


def _name(path: str) -> str:
    """A file's own name, which no two files of a table share."""
    return PurePosixPath(unquote(path)).name
