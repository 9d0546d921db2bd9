"""The verb explain: shows the explanations of rules on rows."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from deltatag.output import counted, paragraph, print_json, say
from rules_index.printable import escaped

if TYPE_CHECKING:
    from pipelines.explain import ExplainResult, RowExplained
    from pipelines.workspace import Workspace

DONE = 0
_MOST_COLUMNS = 30
"""Maximum number of columns by which a row without a key is shown."""


def explain_action(workspace: Workspace, args: Namespace) -> int:
    """Explain the rules that the command line names and show the trees; returns the exit status."""
    from pipelines.explain import explain

    result = explain(workspace, args.scope, args.rules, args.where, args.rules_version, args.limit)
    if args.json:
        print_json([_as_json(each) for each in result.explained])
    else:
        keys = workspace.configuration.streams[args.scope].key if args.scope in workspace.configuration.streams else ()
        _print(result, tuple(keys))
    for note in result.notes:
        say(f"deltatag: {paragraph(note)}", file=sys.stderr)
    return DONE


def _as_json(each: RowExplained) -> dict[str, Any]:
    miss = each.explanation.near_miss
    return {
        "row": each.row,
        "rule_id": each.rule_id,
        "matched": each.explanation.matched,
        "tree": each.explanation.as_dict(),
        "near_miss": None if miss is None else [change.as_dict() for change in miss],
    }


def _print(result: ExplainResult, keys: tuple[str, ...]) -> None:
    from rules_index.explaining.tree import shown

    if not result.rows:
        say(f"No row of {result.scope} satisfies the condition.")
    elif not result.explained:
        say(f"{counted(result.rows, 'row')}: no rule of {result.scope} matches, and none nearly does.")
    last: RowExplained | None = None
    for each in result.explained:
        if last is None or each.row is not last.row:
            names = [name for name in each.row if name.lower() in {key.lower() for key in keys}] or [*each.row]
            values = ", ".join(f"{escaped(name)} = {shown(each.row[name])}" for name in names[:_MOST_COLUMNS])
            if len(names) > _MOST_COLUMNS:
                values += f", and {counted(len(names) - _MOST_COLUMNS, 'other column')}"
            by = "" if each.rules_version is None else f" (version {each.rules_version} of the rules)"
            say(("" if last is None else "\n") + f"row {values}{by}")
        say(f"\n{each.explanation}")
        last = each
