"""The actions of the verb rules: import, export, history and diff."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from deltatag.output import counted, jsonable, paragraph, print_json, print_table, say, say_rejected
from rules_index.printable import escaped

if TYPE_CHECKING:
    from pipelines.authoring.exchange import ImportResult
    from pipelines.workspace import Workspace

DONE, FAILED = 0, 1
_LISTED = 20


def import_action(workspace: Workspace, args: Namespace) -> int:
    """Import the rules of a file into the table; returns the exit status."""
    from pipelines.authoring.exchange import import_rules

    mapping = Path(args.mapping) if args.mapping else None
    found = import_rules(
        workspace, Path(args.file), args.scope, args.replace, args.dry_run, language=args.format, mapping=mapping
    )
    kinds = ("added", "changed", "removed", "rejected")
    if args.json:
        shown: dict[str, Any] = {kind: list(getattr(found, kind)) for kind in kinds}
        shown |= {"unchanged": found.unchanged, "left_out": found.left_out}
        print_json(shown | {"version": found.version, "dry_run": args.dry_run})
        return FAILED if found.rejected else DONE
    for kind in kinds[:3]:
        ids = getattr(found, kind)
        more = f", and {len(ids) - _LISTED:,} more" if len(ids) > _LISTED else ""
        say(f"{kind}: {len(ids):,}" + (f" ({', '.join(map(escaped, ids[:_LISTED]))}{more})" if ids else ""))
    say(f"unchanged: {found.unchanged:,}")
    if found.left_out:
        say(f"left out, of another logsource: {found.left_out:,}")
    if len(found.rejected) > _LISTED:
        counts = Counter(each["error"] for each in found.rejected)
        say(f"rejected, by reason: {', '.join(f'{error} {count:,}' for error, count in counts.most_common())}")
    lines = []
    for reject in found.rejected:
        place = f" at {reject['position']}" if reject["position"] is not None else ""
        origin = [reject.get(name) for name in ("title", "file") if reject.get(name) not in (None, reject["rule_id"])]
        named = escaped(reject["rule_id"]) + (f" ({', '.join(map(escaped, origin))})" if origin else "")
        text = f"{reject['error']}{place}: {reject['message']}"
        lines.append(f"{named} is rejected and not written: {paragraph(text)}")
    say_rejected(lines)
    if found.version is not None:
        say(f"Written as version {found.version} of the rules.")
    else:
        say(f"Nothing was written: {_why_nothing(found, args.dry_run)}.")
    return FAILED if found.rejected else DONE


def _why_nothing(found: ImportResult, dry_run: bool) -> str:
    """Why an import wrote nothing."""
    if dry_run:
        return "this is a dry run"
    if found.unchanged or found.left_out:
        return "nothing differs" if not found.rejected else "no other rule differs"
    return "every rule is rejected" if found.rejected else "the file has no rules"


def export_action(workspace: Workspace, args: Namespace) -> int:
    """Export the rules into a file; returns the exit status."""
    from pipelines.authoring.exchange import export_rules

    count = export_rules(workspace, Path(args.file), args.scope)
    if args.json:
        print_json({"file": args.file, "rules": count})
    else:
        say(f"{args.file}: {counted(count, 'rule')}")
    return DONE


def history_action(workspace: Workspace, args: Namespace) -> int:
    """Print the history of a rule; returns the exit status."""
    from pipelines.authoring.versions import MOST_VERSIONS, history

    found = history(workspace, args.rule)
    zone = ZoneInfo(workspace.configuration.rules.time_zone)
    if args.json:
        print_json(jsonable(found))
        return DONE
    names = ["version", "at", "operation", "user", "enabled", "matches", "expression"]
    rows = [
        [
            each["version"],
            each["at"].astimezone(zone).strftime("%Y-%m-%d %H:%M %Z"),
            each["operation"] or "-",
            each["user"] or "-",
            "-" if each["expression"] is None else str(each["enabled"] is not False).lower(),
            each["matches"],
            "(removed)" if each["expression"] is None else each["expression"],
        ]
        for each in found
    ]
    print_table(names, rows)
    oldest = found[-1]
    if oldest["version"] and oldest["operation"] is None:
        reach = f"the files of earlier ones are gone, or they are not among the last {MOST_VERSIONS:,}"
        say(f"Version {oldest['version']} is the oldest that was read, and the rule may be older: {reach}.")
    return DONE


def diff_action(workspace: Workspace, args: Namespace) -> int:
    """Print the differences between two versions of the rules; returns the exit status."""
    from pipelines.authoring.versions import COLUMNS, diff

    found = diff(workspace, *args.versions)
    changed = [
        {
            "rule_id": row["rule_id"],
            "before": {name: row[f"{name}_before"] for name in found.differing(row)},
            "after": {name: row[name] for name in found.differing(row)},
        }
        for row in found.changed.to_dicts()
    ]
    if args.json:
        whole = {name: found_of.select(COLUMNS).to_dicts() for name, found_of in _both(found)}
        print_json(jsonable({"added": whole["added"], "changed": changed, "removed": whole["removed"]}))
        return DONE
    for row in found.added.to_dicts():
        say(f"+ {escaped(row['rule_id'])}: {paragraph(row['expression'] or '')}")
    for row in found.removed.to_dicts():
        say(f"- {escaped(row['rule_id'])}: {paragraph(row['expression'] or '')}")
    for each in changed:
        for name, value in each["after"].items():
            before = paragraph(str(each["before"][name]))
            say(f"~ {escaped(each['rule_id'])}: {name}: {before} -> {paragraph(str(value))}")
    say(f"{len(found.added):,} added, {len(changed):,} changed, {len(found.removed):,} removed")
    return DONE


def _both(found: Any) -> list[tuple[str, Any]]:
    return [("added", found.added), ("removed", found.removed)]


ACTIONS: Mapping[str, Callable[[Any, Namespace], int]] = {
    "import": import_action,
    "export": export_action,
    "history": history_action,
    "diff": diff_action,
}
