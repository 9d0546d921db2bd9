"""The verb retag: brings tagged rows up to date with the newest index, by trying only the rules that differ.

A re-tag is planned in `runs`, under a scope of its own, before its first write. Its commit to the tagged table carries
its number; the table of matches is then brought in line with the tagged table. A concurrent tag only appends, so
neither waits for the other. If a file was removed in the meantime, as by OPTIMIZE, the re-tag starts over.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipelines.compiling.due import compile_is_due
from pipelines.errors import ConfigurationError, PipelineError, TableError
from pipelines.lake.index_histories import ALL, histories_to_retag, policy_mode
from pipelines.lake.index_store import index_to_tag_with
from pipelines.lake.runs import DONE, check_id_type, last_batch
from pipelines.recovery.jvm_restart import step
from pipelines.recovery.lost_rows import lost_or_restored_rows
from pipelines.retagging.changes import RuleSets
from pipelines.retagging.retagger import Outcome, Retagger
from pipelines.retagging.row_range import why_no_range
from pipelines.scopes import JoinScope, scope_of
from pipelines.settings.model import Stream
from pipelines.table_definitions import tagged_table
from pipelines.workspace import Workspace

_EDITED = "its rules, or lists that they name, were edited since they were compiled"


@dataclass(frozen=True, slots=True)
class RetagResult:
    """What one re-tag did.

    files_read, files_written: files of the tagged table; rows_changed: rows whose rules changed, including rows that
    were added or removed; notices: sentences that people should read.
    """

    scope: str
    rules_version: int | None = None
    files_read: int = 0
    files_written: int = 0
    rows_changed: int = 0
    seconds: float = 0.0
    notices: tuple[str, ...] = ()


def retag(
    workspace: Workspace, name: str, since: str | None = None, until: str | None = None, mode: str = ALL
) -> RetagResult:
    """Bring the tagged rows of a stream or a join, and a stream's matches, up to date with its newest index.

    since, until: range of the event time in ISO 8601, `until` excluded; mode: `NEW_RULES` for only the added rules. A
    join with added or changed rules is joined from scratch, as by `join_streams(restart=True)`.
    Raises ConfigurationError for an impossible range, NoIndexError, SourceError and others of pipelines.errors.
    """
    started = time.perf_counter()
    scope = scope_of(workspace, name)
    is_join = isinstance(scope, JoinScope)
    command, last = f"deltatag {'join' if is_join else 'tag'} {name}", last_batch(workspace.lake, name)
    configured = workspace.configuration.join(name) if is_join else workspace.configuration.stream(name)
    if loss := lost_or_restored_rows(workspace, configured, last):
        raise TableError(loss)
    if not workspace.lake.exists(tagged_table(name)):
        return RetagResult(name, notices=(f"{name}: no row has been tagged yet.",))
    if (since, until) != (None, None) and (reason := why_no_range(scope)):
        raise ConfigurationError(reason)
    check_id_type(last, workspace.lake.rule_id_type(), f"{command} --restart")
    notices: tuple[str, ...] = ()
    with step(workspace, f"retag {name}"):
        anew = is_join and _needs_joining(workspace, name)
        # a run that was stopped may be that of a re-tag, which had emptied the table
        if anew or (is_join and last is not None and (last.state != DONE or last.plan.get("reset"))):
            from pipelines.join import join_streams

            joined = join_streams(workspace, name, restart=anew)
            why = "rules were added or changed, so that everything was joined anew"
            notices = (f"{name}: {why if anew else 'a join that had been stopped was finished first'}.",)
        if anew:
            found = Outcome(joined.rules_version, rows_changed=joined.joined)
        else:
            found = Retagger(scope, since, until, mode).run()
    return RetagResult(
        name,
        found.rules_version,
        found.files_read,
        found.files_written,
        found.rows_changed,
        round(time.perf_counter() - started, 3),
        (*notices, *_notices(workspace, name)),
    )


def compile_and_retag(workspace: Workspace, name: str, since: str | None, until: str | None) -> RetagResult:
    """Re-tag by the rules as they are now: compile them first if they were edited since they were compiled.

    Raises what `retag` raises, and PipelineError, before any row is changed, if they cannot be compiled.
    """
    compiled = () if not workspace.lake.exists(tagged_table(name)) else _compile_if_due(workspace, name)
    result = retag(workspace, name, since, until)
    return replace(result, notices=(*compiled, *result.notices))


def _compile_if_due(workspace: Workspace, name: str) -> tuple[str, ...]:
    """Compile the scope if that is due; a sentence on it. A scope that cannot be compared with its rules is left."""
    if not _compile_is_due(workspace, name):
        return ()
    from pipelines.compile import compile_scopes  # takes longer to import than a re-tag of nothing

    result = compile_scopes(workspace, [name])[0]
    if result.error is not None:
        raise PipelineError(result.error)
    if result.state == "held":
        return ()
    rejected = f" ({result.rejects:,} rejected: see the table rule_rejects)" if result.rejects else ""
    return (f"{name}: {_EDITED}, so they were compiled first{rejected}.",)


def reproduce_tags(
    workspace: Workspace, name: str, rules_version: int, table: str, since: str | None = None, until: str | None = None
) -> RetagResult:
    """Write a stream's rows, as a version of `rules` tags them, to a separate table.

    The stream's own tables are not changed. An earlier such table of the same name is replaced.
    """
    from pipelines.retagging.reproduction import reproduce

    started = time.perf_counter()
    with step(workspace, f"retag {name} --into {table}"):
        found = reproduce(scope_of(workspace, name), rules_version, table, since, until)
    seconds = round(time.perf_counter() - started, 3)
    figures = (found.files_read, found.files_written, found.rows_changed, seconds, found.notices)
    return RetagResult(name, rules_version, *figures)


def retag_due(workspace: Workspace, stream: Stream) -> RetagResult:
    """Re-tag a stream in the mode that its policy sets."""
    return retag(workspace, stream.name, mode=policy_mode(stream))


def _needs_joining(workspace: Workspace, name: str) -> bool:
    """True if rules of a join were added or changed: they may match pairs of rows that were never stored."""
    last = last_batch(workspace.lake, name)
    if last is None:
        return False
    histories, undone = histories_to_retag(workspace.lake, name, last.batch)
    changes = RuleSets(workspace, name).changes(
        histories.distinct | undone, index_to_tag_with(workspace.lake, name), ALL
    )
    return changes.everything or not changes.rules.is_empty()


def _notices(workspace: Workspace, name: str) -> Sequence[str]:
    if not _compile_is_due(workspace, name):
        return ()
    held = workspace.configuration.rules.on_reject == "hold"
    first = 'on_reject is "hold": correct the rules that rule_rejects lists, and re-tag' if held else "Re-tag"
    stale = f"{name}: {_EDITED}, and a re-tag uses the newest index."
    return (f"{stale} {first} again: deltatag retag {name}",)


def _compile_is_due(workspace: Workspace, name: str) -> bool:
    """Whether the rules were edited since they were compiled; False if that cannot be said, for want of a source."""
    try:
        return compile_is_due(workspace, name)
    except PipelineError:
        return False
