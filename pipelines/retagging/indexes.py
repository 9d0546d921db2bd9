"""The indexes with which rows are matched again: small ones of only the rules that differ, or the newest one where any
rule may."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

import rules_index as ri
from pipelines.errors import IndexOutdatedError, NeedsSparkError
from pipelines.lake.index_store import fetch_index
from pipelines.runners.spark_required import why_spark_evaluates
from pipelines.scratch import indexes_folder, keep, new_file
from rules_index.index.checksum_cache import sha256_once

if TYPE_CHECKING:
    import pyarrow as pa

    from pipelines.lake.index_store import StoredIndex
    from pipelines.origin import IndexedRules
    from pipelines.retagging.changes import Changes
    from pipelines.scopes import Scope
    from pipelines.writing.matching import Matcher
    from rules_index.domains.value_lists import AnyList
    from rules_index.errors import RuleError
    from rules_index.language.typed import Leaf


def index_of(
    scope: Scope,
    rules: pl.DataFrame,
    event_time: str | None,
    time_zone: str,
    lists: Sequence[AnyList] = (),
    advice: str | None = None,
) -> ri.CompiledRules:
    """An index of rules of the scope; IndexOutdatedError if one no longer compiles.

    advice: what to do then if these are former rules, which have tagged rows; None for those of the stored index.
    """
    from pipelines.analyse import spark_analyser

    compiled = ri.compile_rules(
        rules.to_arrow(),
        scope.columns(),
        event_time=event_time,
        time_zone=time_zone,
        analyse=spark_analyser(scope),
        lists=lists,
    )
    if compiled.rejects.num_rows:
        first = compiled.rejects.to_pylist()[0]
        then = ", as it was when it tagged rows," if advice else ""
        raise IndexOutdatedError(
            f"The rule {first['rule_id']} of {scope.name}{then} does not compile any more with the columns that the "
            f"source has now ({first['message']}). "
            f"{advice or f'Compile the rules again: deltatag compile {scope.name}'}"
        )
    return compiled


def index_without_spark(
    rules: pl.DataFrame, columns: pa.Schema, event_time: str | None, time_zone: str, lists: Sequence[AnyList] = ()
) -> ri.CompiledRules | None:
    """An index of rules whose derived columns no analyser has checked; None if a rule does not compile."""
    compiled = ri.compile_rules(
        rules.to_arrow(), columns, event_time=event_time, time_zone=time_zone, analyse=_accept, lists=lists
    )
    return None if compiled.rejects.num_rows else compiled


def local_index(scope: Scope, stored: StoredIndex, changes: Changes, indexed: IndexedRules) -> ri.CompiledRules:
    """The index of the rules that differ, which are all of `stored` if any rule may; NeedsSparkError, with the reason,
    if this process cannot apply it."""
    if changes.everything:
        compiled: ri.CompiledRules | None = ri.load(fetch_index(scope.workspace.lake, stored))
    else:
        columns = scope.columns()
        compiled = index_without_spark(changes.rules, columns, indexed.event_time, indexed.time_zone, indexed.lists)
    if compiled is None:
        raise NeedsSparkError("a rule that differs does not compile with the columns that its source has now")
    if reason := why_spark_evaluates(compiled):
        raise NeedsSparkError(reason)
    return compiled


def former_index(
    rules: pl.DataFrame, columns: pa.Schema, event_time: str | None, time_zone: str
) -> ri.CompiledRules | None:
    """An index of former rules, used only to find files in which they may have matched rows; None if there are none, or
    one no longer compiles."""
    if rules.is_empty():
        return None
    # a rule that has had several texts is there once with each: number them all
    numbered = rules.with_columns(rule_id=pl.int_range(rules.height))
    return index_without_spark(numbered, columns, event_time, time_zone)


def _accept(leaves: Sequence[Leaf]) -> list[RuleError | None]:
    """Accept every derived column without asking Spark."""
    return [None for _ in leaves]


def matcher_of(scope: Scope, compiled: ri.CompiledRules, id_type: str) -> Matcher:
    """The matcher of an index for Spark. The index is saved to a file, which is kept as long as this process lives."""
    from pipelines.writing.matching import Matcher

    folder = indexes_folder()
    handle, path = new_file(folder)
    os.close(handle)
    compiled.save(path, shares_files=True)
    named = folder / f"{sha256_once(path)}.index"
    os.replace(path, named)
    keep(named)
    return Matcher(scope.workspace.spark, compiled, named, id_type)
