"""The verb maintain: runs maintenance and prints the results."""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING

from deltatag.lines import maintain_line
from deltatag.output import paragraph, print_json, say

if TYPE_CHECKING:
    from pipelines.workspace import Workspace


def maintain_action(workspace: Workspace, args: Namespace) -> int:
    """Maintain the tables and print the results; the exit status is 1 if one of them failed."""
    from pipelines.maintain import maintain

    workspace.lake.delta("rules")
    results = maintain(workspace)
    if args.json:
        print_json([asdict(result) for result in results])
    for result in results:
        if result.error is not None:
            say(f"deltatag: {result.table}: {paragraph(result.error)}", file=sys.stderr)
        elif not args.json:
            say(maintain_line(result))
    return int(any(result.error is not None for result in results))
