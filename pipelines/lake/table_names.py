"""The names of tables in SQL statements."""

from __future__ import annotations

from pipelines.settings.model import Configuration
from pipelines.table_definitions import FIXED_TABLES, scope_tables


def table_names(configuration: Configuration) -> list[str]:
    """Every table name that a statement may use: the lake's tables, sources, value lists, and each scope's tables."""
    names = [*FIXED_TABLES, *configuration.streams]
    names += [*configuration.lists, *(table for name in configuration.streams for table in scope_tables(name))]
    return names + [table for name in configuration.joins for table in scope_tables(name, is_join=True)]


def source_of(configuration: Configuration, name: str) -> str | None:
    """The source of a stream's rows or of a value list; None if the name is neither."""
    found = configuration.streams.get(name) or configuration.lists.get(name)
    return found.source if found is not None else None
