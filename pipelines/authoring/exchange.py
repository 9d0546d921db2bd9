"""Imports rules from files into the table, and exports them; an import is planned first, then written in one commit."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa

import rules_index as ri
from pipelines.analyse import analyser_of
from pipelines.annotated import annotate_of
from pipelines.authoring.dmn import read_dmn
from pipelines.authoring.foreign import FOREIGN_COLUMNS, UNREADABLE, ForeignRules
from pipelines.authoring.rule_files import RuleFileError, check_present, read_rules_file, write_rules_file
from pipelines.authoring.sigma import read_sigma
from pipelines.authoring.versions import COLUMNS, WHOLE_RULES, as_text, columns_in, names_of, rules_of
from pipelines.error_texts import first_line
from pipelines.errors import ConfigurationError, TableError, not_written
from pipelines.lake.authors import by_this_user
from pipelines.lake.lake import Lake, arrow_schema
from pipelines.lake.reading import rewrite_alters_times
from pipelines.rule_set import ANNOTATED_BY, DUPLICATE_ID, RULE_COLUMNS, SHOWN, UNKNOWN_SCOPE, unknown_scope
from pipelines.scopes import scope_of, scopes_of
from pipelines.value_lists import read_lists
from pipelines.workspace import Workspace
from rules_index.language.coercion import spark_type

READERS = {"sigma": read_sigma, "dmn": read_dmn}
"""Readers of rules in other languages than the table's own columns."""
_ATTEMPTS = 5
"""Maximum number of attempts of an import if others edit the table in the meantime."""
_REMOVED = "__removed"
_PLACE = "__place"
_FAR_BOUNDS = (
    "Spark has written rules with a valid_from or valid_to before 1678 or after 2261, which an import would change. "
    'Write NULL, which is no bound, in their place: deltatag sql "UPDATE rules SET valid_to = NULL WHERE valid_to >= '
    "TIMESTAMP'2262-01-01'\", and for valid_from likewise WHERE valid_from < TIMESTAMP'1678-01-01'. Then import again."
)
_COMPILED = [*RULE_COLUMNS, *ANNOTATED_BY]


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The ids of rules that were, or would be, added, changed and removed.

    rejected: the rules that are not written, and why; unchanged: how many are in the table already; version: of `rules`
    after the import, None if nothing was written; left_out: how many rules were skipped because their logsource is not
    the mapping file's.
    """

    added: tuple[str | int, ...] = ()
    changed: tuple[str | int, ...] = ()
    removed: tuple[str | int, ...] = ()
    rejected: tuple[dict[str, Any], ...] = ()
    unchanged: int = 0
    version: int | None = None
    left_out: int = 0


@dataclass(slots=True)
class _Plan:
    """What an import does to one version of the table."""

    written: pl.DataFrame
    removed: pl.DataFrame
    result: ImportResult = field(default_factory=ImportResult)


def import_rules(
    workspace: Workspace,
    file: Path,
    scope: str | None = None,
    replace: bool = False,
    dry_run: bool = False,
    language: str | None = None,
    mapping: Path | None = None,
) -> ImportResult:
    """Import the rules of a file into the table, in one commit. Rules that do not compile are left out and reported.

    language: "sigma" or "dmn" for a file, or a folder of files, of such rules; mapping: the file that names the column
    of each of their fields; scope: the scope of rules for which the file names none; replace: also remove the rules of
    the file's scopes, or of `scope`, that are not in the file. A scope whose rules in the file are all rejected keeps
    its rules, and no rule is removed if a file of the folder cannot be read.

    Columns that the file lacks are left as they are. After a concurrent edit of the table the import is planned again,
    so that no edit is lost. Spark is started only if a rule has a derived part. RuleFileError for an unusable file,
    ConfigurationError for unusable arguments, TableError if the table cannot be read or written.
    """
    lake = workspace.lake
    zone = ZoneInfo(workspace.configuration.rules.time_zone)
    foreign = _foreign(workspace, file, scope, language, mapping)
    if foreign is None:
        columns = columns_in(lake.delta("rules"))
        given = _with_scopes(workspace, file, read_rules_file(file, lake.rule_id_type(), zone, columns), scope)
    else:
        given = foreign.frame(FOREIGN_COLUMNS)
    given, repeated = _without_repeated(given)
    refused = [each["rule_id"] for each in foreign.rejected] if foreign is not None else []
    refused += repeated["rule_id"].unique().to_list()
    if replace and not given.height and not refused:
        raise RuleFileError(_no_rules(file, scope))
    checked: dict[tuple[str, Any, str], dict[str, Any] | None] = {}
    for attempt in range(_ATTEMPTS):
        table = lake.delta("rules") if dry_run else lake.writable("rules")
        _refuse_other_labels(table)
        is_whole = foreign is None or not foreign.is_partial
        plan = _plan(workspace, table, given, replace and is_whole, checked, refused)
        if repeated.height:
            plan.result = _with_repeated(plan.result, file, repeated, rules_of(lake, table))
        if foreign is not None:
            plan.result = _with_refused(plan.result, foreign, replace)
        if dry_run or not (plan.result.added or plan.result.changed or plan.result.removed):
            return plan.result
        if (plan.result.changed or plan.result.removed) and rewrite_alters_times(table):
            raise TableError(_FAR_BOUNDS)
        version = _commit(lake, table, plan, last=attempt == _ATTEMPTS - 1)
        if version is not None:
            return replace_fields(plan.result, version=version)
        time.sleep(0.1 * (attempt + 1))
    raise TableError("Others keep editing the table rules; try again.")


def _refuse_other_labels(table: Any) -> None:
    """TableError if the labels of this version of `rules` are no map, which is what an import writes."""
    fields = {field.name.lower(): field for field in pa.schema(table.schema())}
    if "labels" in fields and not pa.types.is_map(fields["labels"].type):
        found = spark_type(pl.Series(pl.from_arrow(pa.array([], fields["labels"].type))))
        raise TableError(
            f"The column labels of the table rules is {found}, and an import writes MAP<STRING,STRING>. Write the "
            "rules in SQL, or replace the column by one of that type."
        )


def _no_rules(file: Path, scope: str | None) -> str:
    """The message if a file without rules should replace the rules of a scope."""
    removed = f"DELETE FROM rules WHERE scope = '{scope or 'NAME'}'"
    return (
        f"{file} holds no rules, so nothing is replaced; to remove all rules of {scope or 'a scope'}, write: "
        f'deltatag sql "{removed}"'
    )


def _foreign(
    workspace: Workspace, file: Path, scope: str | None, language: str | None, mapping: Path | None
) -> ForeignRules | None:
    """The rules of files in another language; None if the file has the table's own columns."""
    reader = READERS.get(language or ("dmn" if file.suffix.lower() == ".dmn" else ""))
    if reader is None:
        if mapping is not None:
            raise ConfigurationError("--mapping is only for Sigma and DMN; give --format too.")
        return None
    if scope is None:
        raise ConfigurationError(f"{file} names no stream or join; give the scope of its rules with --scope.")
    if workspace.lake.rule_id_type() != "string":
        raise ConfigurationError("The rules of this lake have numbers as ids, and those of Sigma and DMN are texts.")
    return reader(file, scope, scope_of(workspace, scope).columns(), mapping)


def _with_refused(result: ImportResult, foreign: ForeignRules, replace: bool) -> ImportResult:
    """The result, with the rules and files added that were refused while they were read, and with each reject's file
    and title."""
    refused = [
        each | {"message": f"{each['message']} No rule is removed, since the file's rules are unknown."}
        if replace and each["error"] == UNREADABLE
        else each
        for each in foreign.rejected
    ]
    rejected = [each | foreign.origins.get(each["rule_id"], {}) for each in result.rejected]
    return replace_fields(result, rejected=(*refused, *rejected), left_out=foreign.left_out)


def export_rules(workspace: Workspace, file: Path, scope: str | None = None) -> int:
    """Write the rules, or those of one scope, into a file; returns how many. RuleFileError if that fails."""
    if scope is not None:
        scope_of(workspace, scope)
    table = workspace.lake.delta("rules")
    rules, columns = rules_of(workspace.lake, table), columns_in(table)
    rules = rules.filter(pl.col("scope") == scope) if scope is not None else rules
    rules = rules.sort("scope", "rule_id", nulls_last=True)
    schema = arrow_schema(WHOLE_RULES, workspace.lake.rule_id_type())
    write_rules_file(file, rules.select(columns).to_arrow().cast(pa.schema([schema.field(name) for name in columns])))
    return rules.height


def _with_scopes(workspace: Workspace, file: Path, given: pl.DataFrame, scope: str | None) -> pl.DataFrame:
    if scope is not None:
        scope_of(workspace, scope)
    if "scope" not in given.columns and given.height:
        if scope is None:
            raise RuleFileError(f"{file} names no scope; give the scope of its rules with --scope.")
        given = given.with_columns(pl.lit(scope).alias("scope"))
    if not given.height:
        schema = arrow_schema(WHOLE_RULES, workspace.lake.rule_id_type())
        return pl.DataFrame(pl.from_arrow(schema.empty_table()))
    given = given.with_columns(pl.col("scope").fill_null(scope)) if scope is not None else given
    check_present(file, given["scope"])
    others = given.filter(pl.col("scope") != scope)["scope"].to_list() if scope is not None else []
    if others:
        raise RuleFileError(f"{file} has rules of {others[0]}, and --scope says {scope}; leave out --scope.")
    return given


def _without_repeated(given: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rules whose id no other rule of the file has, and the others, with their place in the file as `_PLACE`. Of
    equal rules only the first counts."""
    distinct = given.with_row_index(_PLACE, 1)
    if given["rule_id"].is_unique().all():
        return given, distinct.clear()
    distinct = distinct.filter(given.select(pl.struct(map(as_text, given.columns)).is_first_distinct()).to_series())
    is_repeated = pl.col("rule_id").is_duplicated()
    return distinct.filter(~is_repeated).drop(_PLACE), distinct.filter(is_repeated)


def _with_repeated(result: ImportResult, file: Path, repeated: pl.DataFrame, stored: pl.DataFrame) -> ImportResult:
    """The result, with the ids that several rules of the file have as rejected, or as unchanged if the table has just
    these rules."""
    names = [name for name in repeated.columns if name != _PLACE]
    rejected: list[dict[str, Any]] = []
    unchanged = 0
    for rules in repeated.partition_by("rule_id", maintain_order=True):
        rule_id = rules["rule_id"][0]
        now = stored.filter(pl.col("rule_id") == rule_id)
        rows, others = (sorted(each.select(map(as_text, names)).rows(), key=repr) for each in (rules, now))
        if rows == others:
            unchanged += rules.height
            continue
        places = ", ".join(map(str, rules[_PLACE].to_list()[:5]))
        message = (
            f"Rules {places} of {file} have the id {str(rule_id)[:SHOWN]}; give each its own, or leave all but one."
        )
        rejected.append({"rule_id": rule_id, "error": DUPLICATE_ID, "message": message, "position": None})
    return replace_fields(result, rejected=(*rejected, *result.rejected), unchanged=result.unchanged + unchanged)


def _plan(
    workspace: Workspace,
    table: Any,
    given: pl.DataFrame,
    replace: bool,
    checked: dict[tuple[str, Any, str], dict[str, Any] | None],
    unread: Sequence[str],
) -> _Plan:
    """What the import adds, changes and removes in this version of the table.

    checked: see `_rejected`; unread: the ids of rules in the files that were refused, and so are not in `given`. They
    are not removed. The id of a refused decision table stands for its rows, which have the ids DECISION/NUMBER.
    """
    stored = rules_of(workspace.lake, table)
    columns = [name for name in given.columns if name != "rule_id"]
    merged = given.join(stored, on="rule_id", how="left", suffix="_stored", maintain_order="left")
    known = given.join(stored.unique("rule_id"), on="rule_id", how="semi")["rule_id"]
    is_known = pl.col("rule_id").is_in(known.implode())
    differs = pl.any_horizontal(as_text(name).ne_missing(as_text(f"{name}_stored")) for name in columns)
    merged = merged.unique("rule_id", keep="any", maintain_order=True).with_columns(
        is_known.alias("__known"), (~is_known | differs).alias("__differs")
    )
    others = [name for name in COLUMNS if name not in given.columns]
    edited = merged.filter("__differs").select("rule_id", *columns, *others, "__known")
    repeated = stored.filter(pl.col("rule_id").is_duplicated())["rule_id"].unique()
    rejected = _rejected(workspace, edited, set(repeated), checked)
    refused = [each["rule_id"] for each in rejected]
    written = edited.filter(~pl.col("rule_id").is_in(refused))
    scopes = set(given.filter(~pl.col("rule_id").is_in(refused))["scope"].to_list())
    gone = stored.filter(pl.col("scope").is_in(list(scopes))).join(given, on="rule_id", how="anti")
    if unread:
        named, texts = pl.col("rule_id").cast(pl.String), list(map(str, unread))
        gone = gone.filter(~named.is_in(texts), ~named.str.replace(r"/\d+$", "").is_in(texts))
    removed = (gone if replace else gone.clear()).unique("rule_id", maintain_order=True)
    result = ImportResult(
        tuple(written.filter(~pl.col("__known"))["rule_id"].sort().to_list()),
        tuple(written.filter("__known")["rule_id"].sort().to_list()),
        tuple(removed["rule_id"].sort().to_list()),
        tuple(rejected),
        merged.height - edited.height,
    )
    return _Plan(written.select(COLUMNS), removed.select(COLUMNS), result)


def _rejected(
    workspace: Workspace,
    edited: pl.DataFrame,
    repeated: set[Any],
    checked: dict[tuple[str, Any, str], dict[str, Any] | None],
) -> list[dict[str, Any]]:
    """The edited rules that do not compile.

    checked: a cache over repeated plans: scope, id and contents of a rule -> its reject, or None if it compiles;
    repeated: ids that several rows of the table have.
    """
    found = []
    scopes = scopes_of(workspace)
    for name, rules in edited.group_by("scope", maintain_order=True):
        scope = str(name[0])
        keys = [(scope, row[0], repr(row)) for row in rules.select(_COMPILED).iter_rows()]
        new = rules.filter([key not in checked for key in keys])
        answers = _compile_rejects(workspace, scope, new) if scope in scopes else _unknown(new, scope, scopes)
        checked |= {key: None for key in keys if key not in checked} | {
            key: answers[key[1]] for key in keys if key[1] in answers
        }
        found += [answer for key in keys if (answer := checked[key]) is not None]
    for rule in edited.filter(pl.col("rule_id").is_in(list(repeated)))["rule_id"]:
        message = f"Several rules of the table have the id {rule}; give each its own there first."
        found.append({"rule_id": rule, "error": DUPLICATE_ID, "message": message, "position": None})
    return found


def _compile_rejects(workspace: Workspace, name: str, rules: pl.DataFrame) -> dict[Any, dict[str, Any]]:
    if not rules.height:
        return {}
    scope = scope_of(workspace, name)
    chosen = rules.filter(pl.col("enabled").fill_null(True)).select(_COMPILED)
    lists, _ = read_lists(workspace.configuration, chosen["expression"])
    compiled = ri.compile_rules(
        chosen.to_arrow(),
        scope.columns(),
        engine="scan",
        event_time=scope.event_time,
        time_zone=workspace.configuration.rules.time_zone,
        analyse=analyser_of(scope),
        annotate=annotate_of(workspace.configuration, name),
        lists=lists,
    )
    return {each["rule_id"]: each for each in compiled.rejects.to_pylist()}


def _unknown(rules: pl.DataFrame, scope: str, scopes: Sequence[str]) -> dict[Any, dict[str, Any]]:
    message = unknown_scope(scope, scopes)
    return {
        rule: {"rule_id": rule, "error": UNKNOWN_SCOPE, "message": message, "position": None}
        for rule in rules["rule_id"]
    }


def _commit(lake: Lake, table: Any, plan: _Plan, last: bool) -> int | None:
    """Write the plan in one commit; returns the version, or None if a concurrent edit came first."""
    from deltalake import exceptions

    schema = arrow_schema(WHOLE_RULES, lake.rule_id_type())
    known = names_of(field.name for field in table.schema().fields)
    names = [name for name in COLUMNS if name in known]
    rows = pl.concat(
        [
            plan.written.with_columns(pl.lit(False).alias(_REMOVED)),
            plan.removed.with_columns(pl.lit(True).alias(_REMOVED)),
        ]
    ).select(*names, _REMOVED)
    fields = [schema.field(name).with_name(known[name]) for name in names]
    source = rows.to_arrow().rename_columns([*(known[name] for name in names), _REMOVED])
    source = source.cast(pa.schema([*fields, pa.field(_REMOVED, pa.bool_())]))
    values = {f"`{known[name]}`": f"s.`{known[name]}`" for name in names}
    try:
        same = f"t.`{known['rule_id']}` = s.`{known['rule_id']}`"
        merge = table.merge(source, same, "s", "t", commit_properties=by_this_user())
        # a disabled rule of another scope may have the id, too
        merge = merge.when_matched_delete(f"s.{_REMOVED} AND t.`{known['scope']}` = s.`{known['scope']}`")
        merge = merge.when_matched_update(values, f"NOT s.{_REMOVED}")
        merge.when_not_matched_insert(values, f"NOT s.{_REMOVED}").execute()
    except exceptions.CommitFailedError as error:
        if last:
            raise TableError(f"The table rules could not be written: {first_line(error)}") from error
        return None
    except (exceptions.DeltaError, OSError) as error:
        raise not_written(f"The table rules at {lake.uri('rules')} could not be written", error) from error
    return int(table.version())
