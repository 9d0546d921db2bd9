"""The verb retag: chooses the scopes to re-tag, and prints the results."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING

from deltatag.lines import none_configured, retag_line
from deltatag.output import print_json, say

if TYPE_CHECKING:
    from pipelines.workspace import Workspace


def check_arguments(args: Namespace) -> None:
    """Raise ConfigurationError for options that cannot be combined."""
    from pipelines.errors import ConfigurationError

    if (args.rules_version is None) != (args.into is None):
        raise ConfigurationError("Give --rules-version and --into together: the tags of an older version go there.")
    if args.into is not None and len(args.scopes) != 1:
        raise ConfigurationError("Give one stream, whose tags of an older version go into the table.")


def retag_action(
    workspace: Workspace,
    args: Namespace,
    failure_of: Callable[[str], AbstractContextManager[None]],
    failures: Mapping[str, str],
) -> None:
    """Re-tag and print the results. failure_of: a context that records a scope's failure in `failures`."""
    from pipelines.retag import RetagResult, compile_and_retag, reproduce_tags

    results: list[RetagResult] = []
    chosen = _chosen(workspace, args)
    for name in chosen:
        with failure_of(name):
            if args.into is not None:
                result = reproduce_tags(workspace, name, args.rules_version, args.into, args.since, args.until)
            else:
                result = compile_and_retag(workspace, name, args.since, args.until)
            results.append(result)
    if args.json:
        failed = [{"scope": name, "error": text} for name, text in failures.items()]
        print_json({"retagged": [*(asdict(result) for result in results), *failed]})
        return
    for result in results:
        if text := retag_line(result, args.into):
            say(text)
    if not chosen:
        say(none_configured("stream"))


def _chosen(workspace: Workspace, args: Namespace) -> list[str]:
    """The scopes to re-tag: those that are named, or all.

    With a range of event times and no named scope, scopes that cannot have one are left out, with a message.
    ConfigurationError, before any scope is re-tagged, if a named one or all cannot have a range, or if a time cannot be
    parsed.
    """
    from pipelines.errors import ConfigurationError, PipelineError
    from pipelines.retagging.row_range import range_of, why_no_range
    from pipelines.scopes import scope_of, scopes_of

    scopes = [scope_of(workspace, name) for name in dict.fromkeys(args.scopes or scopes_of(workspace))]
    if args.since is None and args.until is None:
        return [scope.name for scope in scopes]
    without = {scope.name: reason for scope in scopes if (reason := why_no_range(scope))}
    if without and (args.scopes or len(without) == len(scopes)):
        raise ConfigurationError(next(iter(without.values())))
    for reason in without.values():
        say(f"deltatag: not re-tagged: {reason}", file=sys.stderr)
    chosen = [scope for scope in scopes if scope.name not in without]
    for scope in chosen:
        try:
            range_of(scope, args.since, args.until)
        except ConfigurationError:
            raise
        except PipelineError:  # the re-tag of the scope itself will report it
            continue
    return [scope.name for scope in chosen]
