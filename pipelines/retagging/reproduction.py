"""Writes a stream's rows, as an older version of `rules` tags them, to a separate table. The stream's own tables are
not changed."""

from __future__ import annotations

import os
import re

from pipelines.annotated import annotate_of
from pipelines.errors import ConfigurationError, NeedsSparkError
from pipelines.lake.table_cache import local_folder
from pipelines.retagging.local_reproduction import MADE_BY, reproduce_here
from pipelines.retagging.retagger import Outcome
from pipelines.retagging.row_range import range_of
from pipelines.rule_set import SHOWN, read_rules
from pipelines.runners.choice import report_spark
from pipelines.scopes import Scope, StreamScope, scopes_of
from pipelines.table_definitions import FIXED_TABLES, scope_tables
from pipelines.workspace import Workspace

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LONGEST = 255
"""Maximum length of a table's name, which is that of its folder."""


def reproduce(scope: Scope, rules_version: int, table: str, since: str | None, until: str | None) -> Outcome:
    """Write the rows of a stream to a separate table, with the ids that a version of `rules` gives them.

    `rows_changed` of the outcome is the number of the table's rows. ConfigurationError for a join, for an invalid name,
    and for a `table` that exists but was not made in this way.
    """
    workspace = scope.workspace
    if not isinstance(scope, StreamScope):
        raise ConfigurationError(f"{scope.name} is a join; --rules-version reproduces the tags of streams.")
    in_time = range_of(scope, since, until)
    _check_name(workspace, table)
    annotated = annotate_of(workspace.configuration, scope.name) is not None
    rules = read_rules(workspace.lake, scopes_of(workspace), rules_version, annotated=annotated)
    of_scope = rules.of_scope(scope.name).drop("scope")
    workspace.progress(f"tagging the rows of {scope.name} by version {rules_version} of the rules")
    try:
        return reproduce_here(scope, of_scope, rules_version, table, in_time)
    except NeedsSparkError as reason:
        report_spark(workspace, f"the table {table}", reason)
    from pipelines.retagging.spark_reproduction import reproduce_by_spark

    return reproduce_by_spark(scope, of_scope, rules_version, table, in_time)


def _check_name(workspace: Workspace, table: str) -> None:
    configuration = workspace.configuration
    taken = {
        name for scope in scopes_of(workspace) for name in (scope, *scope_tables(scope, scope in configuration.joins))
    }
    if not _NAME.match(table):
        raise ConfigurationError(
            f"{table[:SHOWN]!r} is not a name of a table: it must consist of letters, digits and underscores."
        )
    if len(table) > _LONGEST:
        raise ConfigurationError(
            f"The name {table[:SHOWN]}... has {len(table):,} characters, and a table's has at most {_LONGEST}; give "
            "--into a shorter name."
        )
    if table.lower() in {name.lower() for name in (*taken, *FIXED_TABLES)}:
        raise ConfigurationError(f"{table} is a table of deltatag's own, or a stream's; give --into another name.")
    folder = None if workspace.lake.settings.root is None else local_folder(workspace.lake.uri(table))
    if folder is not None and os.path.lexists(folder) and not os.path.isdir(folder):
        raise ConfigurationError(f"At {folder} there is a file, and no table; give --into another name.")
    if workspace.lake.exists(table) and MADE_BY not in workspace.lake.delta(table).metadata().configuration:
        raise ConfigurationError(f"The table {table} exists and was not made by a re-tag; give --into another name.")
