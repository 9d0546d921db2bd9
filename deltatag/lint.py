"""The verb lint: prints findings as lines or JSON, fails on chosen kinds, and accepts findings."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from deltatag.output import counted, paragraph, print_json, say
from rules_index.printable import escaped

if TYPE_CHECKING:
    from pipelines.lint import LintResult
    from pipelines.workspace import Workspace

DONE, FAILED = 0, 1
_LONGEST = 120
_NAMED = 10
"""Maximum number of rules that the line on --fail-on names."""
_OF_A_KIND = 100
"""Maximum number of findings of one kind that are printed for a scope; JSON has all."""


def lint_action(workspace: Workspace, args: Namespace, print_results: Callable[..., None]) -> int:
    """Print the findings; the exit status is 1 if a scope failed, or a finding has a kind of --fail-on.

    If all scopes are linted, rules of no stream or join count as rejected, too.
    """
    from pipelines.compiling.notices import refusals_notice, rules_of_no_scope
    from pipelines.lint import lint_scopes
    from rules_index.implication.kinds import REJECTED

    if args.accept is not None:
        return _accept(workspace, args)
    results = lint_scopes(workspace, args.scopes or None, args.runs, args.noisy)
    notice = refusals_notice(workspace)
    wanted = args.fail_on or ()
    failing = [(e.kind, e.rule_id) for result in results for e in result.findings if e.kind in wanted]
    if REJECTED in wanted and not args.scopes:
        failing += [(REJECTED, rule_id) for rule_id in rules_of_no_scope(workspace)]
    if args.only is not None:
        results = [_only(result, args.only) for result in results]
    print_results(args, results, lint_lines, notice=notice)
    if failing:
        kinds = ", ".join(dict.fromkeys(kind for kind, _ in failing))
        rules = [*dict.fromkeys(_shortened(escaped(rule_id)) for _, rule_id in failing)]
        more = f" and {len(rules) - _NAMED:,} more" if len(rules) > _NAMED else ""
        named = f"{', '.join(rules[:_NAMED])}{more}"
        say(f"deltatag: {counted(len(failing), 'finding')} of --fail-on: {kinds} ({named})", file=sys.stderr)
    return FAILED if failing or any(result.error for result in results) else DONE


def _only(result: LintResult, kinds: Sequence[str]) -> LintResult:
    findings, accepted = (
        tuple(each for each in found if each.kind in kinds) for found in (result.findings, result.accepted)
    )
    return replace(result, findings=findings, accepted=accepted)


def _accept(workspace: Workspace, args: Namespace) -> int:
    from pipelines.errors import ConfigurationError
    from pipelines.lint import accept_finding
    from pipelines.lint_kinds import KINDS

    rule, kind = args.accept
    if kind not in KINDS:
        raise ConfigurationError(f"{kind!r} is not a kind of finding; there are {', '.join(KINDS)}.")
    found = accept_finding(workspace, rule, kind, args.reason)
    if args.json:
        print_json({"rule_id": found.rule_id, "kind": found.kind, "reason": args.reason})
    else:
        say(f"Accepted until the rule changes: {escaped(found.rule_id)}: {found.kind}: {paragraph(found.message)}")
    return DONE


def lint_lines(result: LintResult) -> str:
    """The findings of a scope, the most harmful first: one line for each, and the rule's expression below it.

    At most `_OF_A_KIND` findings of a kind are listed; the last line counts the others.
    """
    from pipelines.lint_kinds import IMPLIED_BY_STREAM

    if result.error is not None:
        return ""
    count = len(result.findings)
    found = "no findings" if not count else counted(count, "finding")
    more = f", {len(result.accepted):,} accepted" if result.accepted else ""
    lines = [f"{result.scope}: {counted(result.rules, 'rule')}, {found}{more}, rules version {result.rules_version}"]
    kinds: Counter[str] = Counter()
    for each in result.findings:
        kinds[each.kind] += 1
        if kinds[each.kind] > _OF_A_KIND:
            continue
        named = "(no id)" if each.rule_id is None else _shortened(escaped(each.rule_id))
        rule = "" if each.rule_id is None and each.kind == IMPLIED_BY_STREAM else f"{named}: "
        lines.append(f"  {rule}{each.kind}: {paragraph(each.message)}")
        if each.expression is not None:
            owner = f"  (owner: {escaped(each.owner)})" if each.owner else ""
            lines.append(f"      {_shortened(paragraph(each.expression))}{owner}")
    others = {kind: count - _OF_A_KIND for kind, count in kinds.items() if count > _OF_A_KIND}
    if others:
        listed = ", ".join(f"{kind}: {count:,}" for kind, count in others.items())
        lines.append(f"  and {counted(sum(others.values()), 'finding')} more ({listed}); lint --json has them all")
    return "\n".join(lines)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
