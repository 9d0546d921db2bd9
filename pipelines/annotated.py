"""Annotations: the columns `first_rule_id`, `labels` and `severity` that tagged rows can have besides rule ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pipelines.errors import IndexOutdatedError, TableError
from pipelines.table_definitions import annotation_columns, tagged_table
from rules_index.index.annotate import Annotate

if TYPE_CHECKING:
    import polars as pl

    import rules_index as ri
    from pipelines.settings.model import Configuration
    from rules_index.errors import RuleError
    from rules_index.index.annotations import Annotations


def annotate_of(configuration: Configuration, scope: str) -> Annotate | None:
    """The annotations for which the rules of a stream or join are compiled; None if none are configured."""
    columns = configuration.annotations_of(scope)
    return Annotate(columns, configuration.rules.severities) if columns else None


def refused_for_annotations(
    configuration: Configuration, scope: str, rules: pl.DataFrame
) -> list[tuple[str, RuleError]]:
    """The ids, as text, of rules that compile rejects for their severity or labels, and the error for each.

    rules: of this stream or join, with the columns of `ANNOTATED_BY` if the configuration annotates.
    """
    annotate = annotate_of(configuration, scope)
    if annotate is None or rules.is_empty():
        return []
    from rules_index.compiling.rule_annotations import read_annotations, refused_annotations

    refused = refused_annotations(read_annotations(rules.to_arrow(), annotate), annotate)
    return [(str(rules["rule_id"][place]), error) for place, error in refused.items()]


def annotations_of(compiled: ri.CompiledRules | None, columns: Sequence[str]) -> Annotations | None:
    """An index's annotations, restricted to the `columns` that it was compiled for; None if it has no annotations."""
    found = compiled.annotations if compiled is not None else None
    return found.chosen(columns) if found is not None else None


def check_compiled(compiled: ri.CompiledRules, columns: Sequence[str], scope: str) -> None:
    """Raise IndexOutdatedError if an index was not compiled for all the annotation `columns`."""
    known = compiled.annotations.annotate.columns if compiled.annotations is not None else ()
    missing = [name for name in columns if name not in known]
    if missing:
        raise IndexOutdatedError(
            f"The rules of {scope} were compiled without {', '.join(missing)}, which annotations asks for. Compile "
            f"them again with: deltatag compile {scope}"
        )


_OF_TAGS = ("rule_ids", "rules_version", "index_fingerprint")
"""Columns of a tagged table without which it is not known how its rows were tagged."""


def check_widened(scope: str, held: Iterable[str], columns: Sequence[str], id_type: str) -> None:
    """Raise TableError, with the statement to run, if a scope's tagged table lacks one of the annotation `columns`, or
    if others have dropped a column in which rows have their tags: added again, it would be NULL in them.

    held: the names of the table's columns; id_type: the type of rule ids.
    """
    names = {name.lower() for name in held}
    if dropped := [name for name in _OF_TAGS if name not in names]:
        table = tagged_table(scope)
        raise TableError(
            f"The table {table} no longer has the column {dropped[0]}, so the tags of its rows are lost. Bring them "
            f"back with RESTORE TABLE {table} to the version before it was dropped, or process everything again with "
            "--restart."
        )
    before, added = "rule_ids", []
    for column in annotation_columns(columns, id_type):
        if column.name not in names:
            added.append(f"{column.name} {column.type.upper()} AFTER {before}")
        before = column.name
    if added:
        table, names_added = tagged_table(scope), ", ".join(each.split()[0] for each in added)
        statement = f"ALTER TABLE {table} ADD COLUMNS ({', '.join(added)})"
        raise TableError(
            f"The table {table} was made without {names_added}, which annotations of {scope} asks for. Widen it once "
            f'with: deltatag sql "{statement}". Existing rows then have NULL, until: deltatag retag {scope}'
        )
