"""The verbs: each opens the workspace, calls its function, prints the results and returns the exit status."""

from __future__ import annotations

import os
import shlex
import sys
import zoneinfo
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltatag.lines import (
    compile_line,
    gate_lines,
    gate_summary,
    join_line,
    lag_text,
    maintain_line,
    none_configured,
    report_line,
    retag_line,
    size_line,
    tag_line,
    version_text,
)
from deltatag.output import jsonable, paragraph, print_json, print_table, say
from deltatag.progress import Progress

if TYPE_CHECKING:
    from pipelines.workspace import Workspace

DONE, FAILED = 0, 1


@contextmanager
def _workspace(args: Namespace) -> Iterator[Workspace]:
    """Open the workspace; the errors of a JVM that has ended are explained, and the progress is cleared at the end."""
    from pipelines.settings.configuration import load_configuration
    from pipelines.workspace import Workspace

    progress = Progress()
    workspace = Workspace(load_configuration(_configuration(args)), quiet=not args.verbose, progress=progress)
    try:
        yield workspace
    except Exception:
        if "py4j" not in sys.modules:
            raise
        from pipelines.recovery.jvm_restart import step

        with step(workspace, f"run deltatag {args.verb}"):
            raise
    finally:
        progress.clear()


def _configuration(args: Namespace) -> str | None:
    """The configuration that the command line or the environment names; None for the working directory's."""
    from pipelines.settings.configuration import CONFIG_VARIABLE

    named: str | None = args.config or os.environ.get(CONFIG_VARIABLE)
    return named


def init_verb(args: Namespace) -> int:
    """Create deltatag.toml and the four tables of a lake."""

    from pipelines.errors import ConfigurationError
    from pipelines.initialise import initialise
    from pipelines.settings.configuration import FILE_NAME
    from pipelines.workspace import Workspace

    if args.config and args.folder:
        raise ConfigurationError("Give DIR or --config, not both: each names the place of the configuration.")
    path = Path(args.folder or _configuration(args) or ".")
    path = path / FILE_NAME if args.folder or path.is_dir() else path
    made = initialise(path, args.id_type, lambda configuration: Workspace(configuration, quiet=not args.verbose))
    if args.json:
        print_json({"configuration": str(path), "made": made})
    elif made:
        say(f"Made {', '.join(made)}.")
        elsewhere = "" if path == Path(FILE_NAME) else f" --config {shlex.quote(str(path))}"
        first = f"name a source table under [streams] in {path}, then: " if str(path) in made else ""
        say(f"Next: {first}deltatag run{elsewhere}")
    else:
        say(f"Everything was there already: {path} and its tables.")
    return DONE


def validate_verb(args: Namespace) -> int:
    """Print whether an expression compiles as a rule."""
    from pipelines.validate import validate_expression

    with _workspace(args) as workspace:
        found = validate_expression(workspace, args.expression, args.scope)
    if args.json:
        print_json(asdict(found))
        return DONE if found.error is None else FAILED
    for problem in found.problems:
        say(f"warning: {paragraph(problem)}", file=sys.stderr)
    if found.error is not None:
        say(f"{found.error}: {paragraph(found.message or '')}", file=sys.stderr)
        if found.position is not None:
            line_start = args.expression.rfind("\n", 0, found.position) + 1
            line = args.expression[line_start:].split("\n", 1)[0]
            say(f"  {line}\n  {' ' * (found.position - line_start)}^", file=sys.stderr)
        return FAILED
    say("The rule compiles.")
    for each in found.findings:
        say(f"  {each['kind']}: {paragraph(each['message'])}")
    for title, values in (("indexed", found.indexed), ("evaluated by Spark", found.derived)):
        for value in values:
            say(f"  {title}: {value}")
    return DONE


def compile_verb(args: Namespace) -> int:
    """Compile the rules of the scopes."""
    from pipelines.compile import compile_scopes
    from pipelines.compiling.notices import refusals_notice

    with _workspace(args) as workspace:
        results = compile_scopes(workspace, args.scopes or None, args.force, args.engine)
        notice = refusals_notice(workspace)
    _print_results(args, results, compile_line, notice=notice)
    return FAILED if any(result.error for result in results) else DONE


def lint_verb(args: Namespace) -> int:
    """Print lint's findings on the rules of the scopes, or accept one."""
    from deltatag.lint import lint_action

    with _workspace(args) as workspace:
        return lint_action(workspace, args, _print_results)


def tag_verb(args: Namespace) -> int:
    """Tag new rows of the streams."""
    from pipelines.tag import tag_stream

    with _workspace(args) as workspace:
        streams = args.streams or list(workspace.configuration.streams)
        for name in streams:
            workspace.configuration.stream(name)
        results: list[Any] = []
        failures: dict[str, str] = {}
        for name in streams:
            with _failure_of(name, failures, args):
                results.append(tag_stream(workspace, name, args.restart, args.skip_changes, stopped=results))
    _print_results(args, results, tag_line, failures)
    return FAILED if failures else DONE


@contextmanager
def _failure_of(name: str, failures: dict[str, str], args: Namespace) -> Iterator[None]:
    """Record the failure of one scope, so that the others go on."""
    from pipelines.errors import ConfigurationError, as_failure

    try:
        yield
    except ConfigurationError:
        raise
    except Exception as error:
        failures[name] = _error_text(as_failure(error), args)


def _error_text(error: Exception, args: Namespace) -> str:
    """The message of an error; with --verbose, also prints its stack trace."""
    if args.verbose:
        import traceback

        traceback.print_exception(error)
    return str(error)


def join_verb(args: Namespace) -> int:
    """Join new rows on any side of the joins."""
    from pipelines.join import join_together

    with _workspace(args) as workspace:
        joins = args.joins or list(workspace.configuration.joins)
        results, errors = join_together(workspace, list(dict.fromkeys(joins)), args.restart, args.skip_changes)
    failures = {name: _error_text(error, args) for name, error in errors.items()}
    _print_results(args, results, join_line, failures, "join")
    return FAILED if failures else DONE


def retag_verb(args: Namespace) -> int:
    """Bring tagged rows up to date with the newest index, or write the tags of an older version to another table."""
    from deltatag.retag import check_arguments, retag_action

    check_arguments(args)
    failures: dict[str, str] = {}
    with _workspace(args) as workspace:
        retag_action(workspace, args, lambda name: _failure_of(name, failures, args), failures)
    _print_failures(failures)
    return FAILED if failures else DONE


def run_verb(args: Namespace) -> int:
    """Compile, tag, re-tag and join what is due, with quality gates."""
    from pipelines.compiling.notices import refusals_notice
    from pipelines.run import run_due
    from quality.gates import Pages, QualityGates

    gates = QualityGates(Pages.ALL if args.data_docs else Pages.CLOSED)
    with _workspace(args) as workspace:
        # raises an error with advice if the lake does not exist, before the gates fail for it
        workspace.lake.delta("rules")
        report = run_due(workspace, gates)
        notice = "" if "rules" in report.failures else refusals_notice(workspace)
    if args.json:
        print_json(
            {
                "compiled": [asdict(result) for result in report.compiled],
                "tagged": [asdict(result) for result in report.tagged],
                "retagged": [asdict(result) for result in report.retagged],
                "joined": [asdict(result) for result in report.joined],
                "maintained": [asdict(result) for result in report.maintained],
                "quality": [gate_summary(result) for result in gates.results],
                "failures": report.failures,
            }
        )
    else:
        for compiled in report.compiled:
            say(compile_line(compiled) or f"{compiled.scope}: not compiled")
        for tagged in report.tagged:
            say(tag_line(tagged))
        for retagged in report.retagged:
            say(retag_line(retagged))
        for joined in report.joined:
            say(join_line(joined))
        for checked in gates.results:
            say(gate_lines(checked))
        for maintained in report.maintained:
            say(maintain_line(maintained))
        if not (report.compiled or report.tagged or report.retagged or report.joined or report.failures):
            say("Nothing was due." if workspace.configuration.streams else none_configured("stream"))
        if args.data_docs and not gates.results:
            say("No Data Docs were written: they show what the gates of a run find, and this run evaluated none.")
        if notice:
            say(paragraph(notice))
    _print_failures(report.failures)
    return FAILED if report.failures else DONE


def sql_verb(args: Namespace) -> int:
    """Execute statements in order and print their results; the first failure ends the command."""
    from deltatag.sql import print_results, statements_given

    statements = statements_given(args)
    with _workspace(args) as workspace:
        print_results(workspace, statements, args.format or ("json" if args.json else "table"))
    return DONE


def status_verb(args: Namespace) -> int:
    """Print the state of each stream and each join."""
    from pipelines.compiling.notices import refusals_notice
    from pipelines.status import status

    with _workspace(args) as workspace:
        states, zone = status(workspace), zoneinfo.ZoneInfo(workspace.configuration.rules.time_zone)
        refusals = refusals_notice(workspace)
    if args.json:
        print_json([asdict(one) for one in states])
    elif not states:
        say(none_configured("stream"))
    else:
        names = ["scope", "rules", "index", "engine", "rejects", "source", "tagged", "behind", "last run", "state"]
        rows = [
            [
                one.scope,
                version_text(one.rules_version),
                version_text(one.index_version) + (" (compile is due)" if one.compile_due else ""),
                one.engine or "-",
                one.rejects,
                version_text(one.source_version),
                version_text(one.tagged_version),
                lag_text(one.lag_versions, one.lag_rows),
                one.last_started_at.astimezone(zone).strftime("%Y-%m-%d %H:%M %Z") if one.last_started_at else "never",
                one.last_state or "-",
            ]
            for one in states
        ]
        print_table(names, rows)
        for one in states:
            if one.engine_reason:
                say(f"{one.scope}, engine {one.engine}: {one.engine_reason}.")
            if one.needs_spark:
                say(f"{one.scope} needs Spark: {one.needs_spark}.")
            for notice in one.notices:
                say(notice)
            if one.files is not None:
                say(size_line(one))
        if refusals:
            say(paragraph(refusals))
    for one in states:
        if one.problem:
            say(f"deltatag: {one.scope}: {paragraph(one.problem)}", file=sys.stderr)
    return FAILED if any(one.problem for one in states) else DONE


def rules_verb(args: Namespace) -> int:
    """Import or export rules, or show a rule's history or the differences between versions."""
    from deltatag import rules

    with _workspace(args) as workspace:
        return rules.ACTIONS[args.action](workspace, args)


def backtest_verb(args: Namespace) -> int:
    """Try rules on the rows of a source."""
    from deltatag.backtest import backtest_action

    with _workspace(args) as workspace:
        return backtest_action(workspace, args)


def explain_verb(args: Namespace) -> int:
    """Print why rules match rows, or do not."""
    from deltatag.explain import explain_action

    with _workspace(args) as workspace:
        return explain_action(workspace, args)


def report_verb(args: Namespace) -> int:
    """Write an HTML page for each scope."""
    from pipelines.report import report_scopes

    with _workspace(args) as workspace:
        results = report_scopes(workspace, args.scopes or None, Path(args.output))
    _print_results(args, results, report_line)
    return FAILED if any(result.error for result in results) else DONE


def serve_verb(args: Namespace) -> int:
    """Serve the pages of reports and Data Docs until it is interrupted."""
    from deltatag.serve import serve_action
    from pipelines.settings.configuration import load_configuration

    serve_action(load_configuration(_configuration(args)), args)
    return DONE


def maintain_verb(args: Namespace) -> int:
    """Maintain deltatag's own tables."""
    from deltatag.maintain import maintain_action

    with _workspace(args) as workspace:
        return maintain_action(workspace, args)


def demo_verb(args: Namespace) -> int:
    """Run the demonstration."""
    from deltatag.demo import demo

    return int(demo(args.folder, verbose=args.verbose, force=args.force))


def _print_results(
    args: Namespace,
    results: Sequence[Any],
    line: Callable[[Any], str],
    failures: Mapping[str, str] | None = None,
    kind: str = "stream",
    notice: str = "",
) -> None:
    """Print the results and a notice for people on standard output, and failures on standard error.

    line: gives the text for a result, "" for none; kind: the key of a failed scope's name in JSON.
    """
    failures = dict(failures or {})
    failures |= {result.scope: result.error for result in results if getattr(result, "error", None)}
    if args.json:
        listed = [asdict(result) for result in results]
        known = {each.get("scope") or each.get(kind): each for each in listed}
        listed += [known.setdefault(name, {kind: name}) for name in failures if name not in known]
        for name, text in failures.items():
            known[name]["error"] = text
        print_json(jsonable(listed))
    else:
        for result in results:
            if text := line(result):
                say(text)
        if not results and not failures:
            say(none_configured(kind))
        if notice:
            say(paragraph(notice))
    _print_failures(failures)


def _print_failures(failures: Mapping[str, str]) -> None:
    for name, text in failures.items():
        say(f"deltatag: {name}: {paragraph(text)}", file=sys.stderr)
