"""Executes MERGE of literal rows into `rules` or a list, in one commit."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pipelines.errors import NeedsSparkError
from pipelines.lake.authors import by_this_user
from pipelines.lake.reading import quoted
from pipelines.local_sql.edits import committed, writable_of
from pipelines.local_sql.syntax import Merge, Term
from pipelines.local_sql.tables import LocalTable
from pipelines.local_sql.values import value_of
from pipelines.workspace import Workspace
from rules_index.names import column_key

_TARGET, _GIVEN = "target", "given"


def merge(workspace: Workspace, statement: Merge) -> pa.Table:
    """Update matching rows and insert the others; returns the counts in the form that Spark gives."""

    def write(table: LocalTable) -> pa.Table:
        """Merge the rows into one version of the table."""
        merged = _Merged(table, statement)
        updated, inserted = merged.counts()
        if updated or inserted:
            merged.write()
        counts = {"affected": updated + inserted, "updated": updated, "deleted": 0, "inserted": inserted}
        return pa.table({f"num_{what}_rows": pa.array([count], pa.int64()) for what, count in counts.items()})

    return committed(workspace, statement.table, write)


class _Merged:
    """A MERGE into one version of a table; NeedsSparkError if Spark might execute it differently."""

    def __init__(self, table: LocalTable, statement: Merge) -> None:
        names = [column_key(name) for name in statement.columns]
        if len(set(names)) < len(names) or any(len(row) != len(names) for row in statement.rows):
            raise NeedsSparkError("a row does not have one value for each column")
        self._table, self._statement = table, statement
        self._places = {name: place for place, name in enumerate(names)}
        self._given: dict[str, pa.Array] = {}
        self._keys = [table.column(target) for target, _ in statement.on]
        if not all(_is_key(table.schema.field(key).type) for key in self._keys):
            raise NeedsSparkError("its keys are neither texts nor whole numbers")
        self._key_names = [
            self._put(Term(column=column), key) for key, (_, column) in zip(self._keys, statement.on, strict=True)
        ]
        keys = zip(*(self._given[name].to_pylist() for name in self._key_names), strict=True)
        whole = [key for key in keys if None not in key]
        self._wanted = set(whole)
        if len(self._wanted) < len(whole):
            raise NeedsSparkError("two of its rows have the same key")
        self._updates, self._inserts = self._assigned(statement.updated), self._assigned(statement.inserted)

    def counts(self) -> tuple[int, int]:
        """How many rows are updated, and how many are inserted."""
        held = [
            key
            for part in self._table.batches(list(dict.fromkeys(self._keys)), None)
            for key in zip(*(part.column(key).to_pylist() for key in self._keys), strict=True)
            if key in self._wanted
        ]
        new = len(self._statement.rows) - len(set(held))
        return (0 if self._updates is None else len(held)), (0 if self._inserts is None else new)

    def write(self) -> None:
        """Execute the merge, in one commit."""
        pairs = zip(self._keys, self._key_names, strict=True)
        work = writable_of(self._table).merge(
            pa.table(self._given),
            " AND ".join(f"{_TARGET}.{quoted(key)} = {_GIVEN}.{name}" for key, name in pairs),
            source_alias=_GIVEN,
            target_alias=_TARGET,
            commit_properties=by_this_user(),
        )
        work = work if self._updates is None else work.when_matched_update(self._updates)
        work = work if self._inserts is None else work.when_not_matched_insert(self._inserts)
        work.execute()

    def _assigned(self, pairs: Sequence[tuple[str, Term]] | None) -> dict[str, str] | None:
        """Columns of the table and their new values, both as delta-rs spells them."""
        if pairs is None:
            return None
        named = [(self._table.column(name), term) for name, term in pairs]
        if len({name for name, _ in named}) < len(named):
            raise NeedsSparkError("it gives a column two values")
        return {quoted(name): f"{_GIVEN}.{self._put(term, name)}" for name, term in named}

    def _put(self, term: Term, column: str) -> str:
        """Add a term's values, one per source row, to `_given` in the type of a target column; returns their name."""
        kind, name = self._table.schema.field(column).type, f"c{len(self._given)}"
        rows, zone = self._statement.rows, self._table.zone
        place = self._places.get(column_key(term.column)) if term.column is not None else None
        if term.column is not None and place is None:
            raise NeedsSparkError(f"no column of what it merges is called {term.column}")
        texts = [row[place] if place is not None else str(term.text) for row in rows]
        self._given[name] = pa.array([value_of(text, kind, zone) for text in texts], kind)
        return name


def _is_key(kind: pa.DataType) -> bool:
    return bool(kind == pa.string() or pa.types.is_integer(kind))
