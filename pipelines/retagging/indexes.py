"""Small indexes of just the rules that differ, for rows that are matched with them alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

import rules_index as ri
from pipelines.errors import IndexOutdatedError
from pipelines.lake.index_store import file_sha256
from pipelines.scratch import indexes_folder, keep, new_file

if TYPE_CHECKING:
    import pyarrow as pa

    from pipelines.scopes import Scope
    from pipelines.writing.matching import Matcher
    from rules_index.domains.value_lists import AnyList
    from rules_index.errors import RuleError
    from rules_index.language.typed import Leaf


def index_of(
    scope: Scope, rules: pl.DataFrame, event_time: str | None, time_zone: str, lists: Sequence[AnyList] = ()
) -> ri.CompiledRules:
    """An index of rules that the scope's own index holds; IndexOutdatedError if one does not compile any more."""
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
        raise IndexOutdatedError(
            f"The rule {first['rule_id']} of {scope.name} does not compile any more with the columns that the source "
            f"has now ({first['message']}). Compile the rules again: deltatag compile {scope.name}"
        )
    return compiled


def index_without_spark(
    rules: pl.DataFrame, columns: pa.Schema, event_time: str | None, time_zone: str, lists: Sequence[AnyList] = ()
) -> ri.CompiledRules | None:
    """An index of rules whose parts for Spark, `derived`, nobody has looked at; None if one does not compile."""
    compiled = ri.compile_rules(
        rules.to_arrow(), columns, event_time=event_time, time_zone=time_zone, analyse=_accept, lists=lists
    )
    return None if compiled.rejects.num_rows else compiled


def former_index(
    rules: pl.DataFrame, columns: pa.Schema, event_time: str | None, time_zone: str
) -> ri.CompiledRules | None:
    """An index of rules as they were, by which nothing is matched; None if one does not compile any more."""
    if rules.is_empty():
        return None
    # one rule may have had several texts
    numbered = rules.with_columns(rule_id=pl.int_range(rules.height))
    return index_without_spark(numbered, columns, event_time, time_zone)


def _accept(leaves: Sequence[Leaf]) -> list[RuleError | None]:
    """Takes what only Spark evaluates as it is: nothing is said of it."""
    return [None for _ in leaves]


def matcher_of(scope: Scope, compiled: ri.CompiledRules, id_type: str) -> Matcher:
    """What applies an index to rows; its file stays as long as this process lives."""
    from pipelines.writing.matching import Matcher

    folder = indexes_folder()
    handle, path = new_file(folder)
    os.close(handle)
    compiled.save(path, shares_lists=True)
    named = folder / f"{file_sha256(path)}.index"
    os.replace(path, named)
    keep(named)
    return Matcher(scope.workspace.spark, compiled, named, id_type)
