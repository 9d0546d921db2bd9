"""The verb explain: why rules match rows or do not, and which values would have had to differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import rules_index as ri
from pipelines.errors import ConfigurationError
from pipelines.explaining.absent import why_absent
from pipelines.explaining.derived import derived_values, needs_of
from pipelines.explaining.indexes import Indexes
from pipelines.explaining.rows import TAGGED_WITH, rows_where
from pipelines.rule_set import bigint_of
from pipelines.scopes import JOINED_TIME, JoinScope, Scope, scope_of
from rules_index.explaining.nearest_rules import NearestRules
from rules_index.explaining.rule import rule_of
from rules_index.language.evaluation.datetime_parser import zone_of
from rules_index.language.scope import path_of
from rules_index.names import column_key, spelled

if TYPE_CHECKING:
    from pipelines.workspace import Workspace
    from rules_index.explaining.tree import Explanation

MOST_MATCHED, MOST_NEAR = 100, 5
"""Maximum numbers of matching rules, and of near misses, that are explained for a row if no rule is named."""
_MOST_TRIED = 20
"""Maximum number of candidates for near misses that are tried for a row."""


@dataclass(frozen=True)
class RowExplained:
    """The explanation of a rule on a row.

    row: the columns of the scope; rules_version: the version of `rules` that has the rule, None for the newest index.
    """

    row: dict[str, Any]
    rule_id: str | int
    rules_version: int | None
    explanation: Explanation


@dataclass(frozen=True)
class ExplainResult:
    """The explanations for rows of a scope, and sentences that people should read."""

    scope: str
    rows: int
    explained: tuple[RowExplained, ...]
    notes: tuple[str, ...] = ()


@dataclass
class _Task:
    """What to explain, and the results so far.

    rules: the named ones, empty for those that match and near misses; fixed: columns that a near miss must not change;
    notes: sentences for people, a dict to keep each once and in order; unknown: by rule, why an index lacks it.
    """

    scope: Scope
    indexes: Indexes
    rules: Sequence[str]
    fixed: tuple[str, ...]
    explained: list[RowExplained] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)


def explain(
    workspace: Workspace,
    scope: str,
    rules: Sequence[str],
    condition: str,
    rules_version: int | None = None,
    limit: int = 10,
) -> ExplainResult:
    """Explain rules on the rows that satisfy a condition. Without `rules`, those that match and near misses.

    The rows are the scope's tagged ones, each with the rules that tagged it unless `rules_version` names others. If no
    tagged row satisfies the condition, rows of a stream's source are taken, with the newest index. At most `limit` rows
    are explained. ConfigurationError for an unknown scope or a refused condition; UnknownRuleError if none of the rules
    is in these versions.
    """
    over = scope_of(workspace, scope)
    columns = over.columns()
    workspace.progress(f"looking for rows of {scope}")
    found = rows_where(workspace, over, columns, condition, limit)
    task = _Task(over, Indexes(workspace, over, columns), rules, _fixed(over, columns))
    for version, fingerprint, rows in _by_index(found.rows, rules_version):
        _explain_rows(task, rows, version, fingerprint)
    explained_ids = {str(each.rule_id) for each in task.explained}
    for rule, message in task.unknown.items():
        if rule not in explained_ids and not task.explained:
            raise ri.UnknownRuleError(message)
        task.notes[message] = None
    if found.note:
        task.notes[found.note] = None
    if found.has_more:
        first = "the first one is" if limit == 1 else f"the first {limit:,} are"
        task.notes[f"More rows satisfy the condition; {first} explained (--limit)."] = None
    return ExplainResult(scope, found.rows.num_rows, tuple(task.explained), tuple(task.notes))


def _by_index(rows: pa.Table, version: int | None) -> list[tuple[int | None, str | None, pa.Table]]:
    """The rows grouped by the index that explains them: its rules_version, its fingerprint, and its rows.

    The rows are without the columns that name the index. Both None stand for the newest index.
    """
    if "rules_version" not in rows.column_names:
        return [(version, None, rows)] if rows.num_rows else []
    plain = rows.drop_columns([*TAGGED_WITH])
    if version is not None:
        return [(version, None, plain)]
    groups: dict[tuple[int | None, str | None], list[int]] = {}
    for place, pair in enumerate(zip(*(rows.column(name).to_pylist() for name in TAGGED_WITH), strict=True)):
        groups.setdefault(pair, []).append(place)
    return [(*pair, plain.take(pa.array(places))) for pair, places in groups.items()]


def _explain_rows(task: _Task, rows: pa.Table, version: int | None, fingerprint: str | None) -> None:
    """Explain rows with one index."""
    compiled = task.indexes.index_of(version, fingerprint)
    named = [rule for each in dict.fromkeys(task.rules) if (rule := _known(task, compiled, each, version)) is not None]
    if task.rules and not named:
        return
    try:
        listed = rows.to_pylist(maps_as_pydicts="lossy")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"A row has a text that is not UTF-8 ({error.reason}); leave that row out.") from None
    except (ValueError, OverflowError) as error:
        raise ConfigurationError(
            f"A row has a date or time that Python cannot represent ({error}); leave that row out."
        ) from None
    leaves, read = needs_of(compiled, named) if task.rules else (compiled.derived, set(rows.column_names))
    derived = derived_values(task.scope, rows, leaves, read)
    nearest = None if task.rules else NearestRules(compiled)
    for row, more in zip(listed, derived, strict=True):
        given = row | more | _joined_time(task.scope, row)
        for rule in named if nearest is None else _matched(task, compiled, given):
            _add(task, compiled, row, given, rule, version)
        if nearest is not None:
            _add_near(task, compiled, row, given, nearest, version)


def _known(task: _Task, compiled: ri.CompiledRules, rule: str, version: int | None) -> str | int | None:
    """The id of a rule in the type that the index has; None, with the reason noted, if the index lacks the rule."""
    number = bigint_of(rule) if pa.types.is_integer(compiled.ids.type) else None
    rule_id = rule if number is None else number
    try:
        rule_of(compiled, rule_id)
    except ri.UnknownRuleError as error:
        which = "the newest index" if version is None else f"version {version} of the rules"
        why = why_absent(task.scope.workspace, task.scope.name, rule_id, version, compiled.ids)
        task.unknown[rule] = f"{task.scope.name}, {which}: {error}{why}"
        return None
    found: str | int = rule_id
    return found


def _matched(task: _Task, compiled: ri.CompiledRules, row: dict[str, Any]) -> list[Any]:
    """The rules that match a row, at most `MOST_MATCHED`."""
    matched = compiled.match_one(row)
    if len(matched) > MOST_MATCHED:
        task.notes[
            f"A row matches {len(matched):,} rules, of which {MOST_MATCHED} are explained; name others to see them."
        ] = None
    return matched[:MOST_MATCHED]


def _add(
    task: _Task, compiled: ri.CompiledRules, row: dict[str, Any], given: dict[str, Any], rule: Any, version: int | None
) -> None:
    explanation: Any = compiled.explain(given, rule, task.fixed)
    task.explained.append(RowExplained(row, rule, version, explanation))


def _add_near(
    task: _Task,
    compiled: ri.CompiledRules,
    row: dict[str, Any],
    given: dict[str, Any],
    nearest: NearestRules,
    version: int | None,
) -> None:
    """Add up to `MOST_NEAR` near misses of a row."""
    added = 0
    candidates = nearest.of(given, _MOST_TRIED + 1)
    for rule in candidates[:_MOST_TRIED]:
        explanation: Any = compiled.explain(given, rule, task.fixed)
        if explanation.near_miss is not None:
            task.explained.append(RowExplained(row, rule, version, explanation))
            added += 1
        if added == MOST_NEAR:
            break
    if added == MOST_NEAR or len(candidates) > _MOST_TRIED:
        task.notes[
            f"Of the rules that do not match a row, at most {MOST_NEAR} near misses are shown; name a rule to see why "
            "it does not match."
        ] = None


def _fixed(scope: Scope, columns: pa.Schema) -> tuple[str, ...]:
    """The columns that a near miss must not change: the event times of a joined row, by which it was joined."""
    if not isinstance(scope, JoinScope):
        return ()
    found = [JOINED_TIME]
    for stream in scope.streams:
        side = columns.field(stream.name).type
        name = spelled([field.name for field in side], stream.event_time or "", column_key)
        found += [path_of([stream.name, name])] if name is not None else []
    return tuple(found)


def _joined_time(scope: Scope, row: dict[str, Any]) -> dict[str, Any]:
    """The event time of a joined row, in UTC: the latest one among its rows."""
    if not isinstance(scope, JoinScope):
        return {}
    zone = zone_of(scope.workspace.configuration.rules.time_zone)
    times = []
    for stream in scope.streams:
        side = row[stream.name] or {}
        name = spelled([*side], stream.event_time or "", column_key)
        value = side[name] if name is not None else None
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime.combine(value, time())
        if value is not None:
            times.append(value if value.tzinfo is not None else value.replace(tzinfo=zone))
    return {JOINED_TIME: max(times).astimezone(UTC) if times else None}
