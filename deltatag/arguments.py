"""The arguments of the command line: one sub-command for each verb, with a help text and an example."""

from __future__ import annotations

import argparse
import os
import sys
from copy import copy
from typing import Any

from pipelines.settings.model import ENGINES

_CONFIG_HELP = "the configuration file or its folder (default: what DELTATAG_CONFIG names, else deltatag.toml here)"


def parser() -> argparse.ArgumentParser:
    """The parser of all verbs; its result has the chosen verb as `verb`."""
    top = argparse.ArgumentParser(
        prog="deltatag",
        description="Tag every row of a Delta table with the ids of all rules that it satisfies.",
        epilog="Start with: deltatag init\nHelp on a verb: deltatag VERB --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--config", metavar="FILE", default=None, help=_CONFIG_HELP)
    top.add_argument("--verbose", action="store_true", help="show Spark's log, and where an error came from")
    top.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=_VerbParser)
    _authoring_verbs(verbs)
    _running_verbs(verbs)
    _table_verbs(verbs)
    _rules_verbs(verbs)
    _asking_verbs(verbs)
    _other_verbs(verbs)
    return top


def _authoring_verbs(verbs: Any) -> None:
    """Verbs that create a lake, and check and compile its rules: init, validate, compile, lint."""
    init = _verb(
        verbs, "init", "create a configuration and empty tables; existing ones are kept", "deltatag init my_lake"
    )
    init.add_argument("folder", nargs="?", metavar="DIR", help="where deltatag.toml goes (default: here)")
    init.add_argument("--id-type", choices=("string", "bigint"), help="the type of rule ids (default: string)")

    validate = _verb(
        verbs,
        "validate",
        "check whether a rule compiles",
        "deltatag validate \"dep_delay > 60 AND carrier = 'UA'\" --scope flights",
    )
    validate.add_argument("expression", metavar="EXPR", type=_text, help="a Boolean Spark SQL expression")
    validate.add_argument("--scope", required=True, help="the stream or the join whose columns it reads")

    compile_ = _verb(verbs, "compile", "rules table -> rule_index, rule_rejects", "deltatag compile flights")
    compile_.add_argument("scopes", nargs="*", metavar="SCOPE", help="streams and joins (default: all)")
    compile_.add_argument(
        "--engine",
        choices=ENGINES,
        help="use this engine until the next run instead of the configured one",
    )
    compile_.add_argument("--force", action="store_true", help="write the index again even if nothing changed")

    lint = _verb(verbs, "lint", "likely mistakes in the rules, and how to correct them", "deltatag lint flights")
    lint.add_argument("scopes", nargs="*", metavar="SCOPE", help="streams and joins (default: all)")
    lint.add_argument(
        "--runs", type=_count, default=10, metavar="N", help="micro-batches to look back at (default: 10)"
    )
    lint.add_argument(
        "--noisy",
        type=_share,
        default=0.5,
        metavar="SHARE",
        help="share of rows from which a rule counts as noisy (default: 0.5)",
    )
    lint.add_argument("--only", type=_kinds, metavar="KIND[,KIND]", help="show only findings of these kinds")
    lint.add_argument(
        "--fail-on", type=_kinds, metavar="KIND[,KIND]", help="exit with status 1 if there is a finding of these kinds"
    )
    lint.add_argument(
        "--accept",
        nargs=2,
        metavar=("RULE", "KIND"),
        type=_text,
        help="accept this finding on a rule until the rule changes",
    )
    lint.add_argument(
        "--reason", metavar="TEXT", type=_text, help="why it is accepted, kept in the table lint_accepted"
    )


def _running_verbs(verbs: Any) -> None:
    """Verbs that process rows: tag, join, retag, run."""
    tag = _verb(verbs, "tag", "new rows of the source -> tagged rows", "deltatag tag flights")
    tag.add_argument("streams", nargs="*", metavar="STREAM", help="streams (default: all)")
    tag.add_argument("--restart", action="store_true", help="empty the stream's tables and tag the whole source again")
    tag.add_argument(
        "--skip-changes", action="store_true", help="skip commits of the source that changed or removed rows"
    )

    join = _verb(verbs, "join", "new rows on any side of a join -> joined rows", "deltatag join flights_weather")
    join.add_argument("joins", nargs="*", metavar="JOIN", help="joins (default: all)")
    join.add_argument("--restart", action="store_true", help="empty the join's tables and join the whole sources again")
    join.add_argument(
        "--skip-changes", action="store_true", help="skip commits of the sources that changed or removed rows"
    )

    retag = _verb(
        verbs,
        "retag",
        "bring tagged rows up to date with edited rules",
        "deltatag retag flights --from 2026-01-01",
    )
    retag.add_argument("scopes", nargs="*", metavar="STREAM | JOIN", help="streams and joins (default: all)")
    retag.add_argument("--from", dest="since", metavar="TIME", help="first event time (ISO 8601)")
    retag.add_argument("--to", dest="until", metavar="TIME", help="event time to end before (ISO 8601)")
    retag.add_argument(
        "--rules-version", type=_version, metavar="VERSION", help="apply this version of rules, and write to --into"
    )
    retag.add_argument(
        "--into", metavar="TABLE", help="a table for --rules-version; the stream's own tables are not changed"
    )

    run = _verb(verbs, "run", "quality gates, compile, tag, re-tag and join whatever is due, once", "deltatag run")
    run.add_argument("--data-docs", action="store_true", help="write Data Docs of all gates (default: of closed ones)")


def _table_verbs(verbs: Any) -> None:
    """Verbs that show and edit tables: sql, status."""
    sql = _verb(
        verbs,
        "sql",
        "execute Spark SQL statements; tables go by their names",
        'deltatag sql "SELECT * FROM rule_rejects" --format json',
    )
    sql.add_argument(
        "statements",
        metavar="STATEMENT",
        nargs="*",
        type=_text,
        help="statements, several in one argument with ; between them; - reads them from standard input",
    )
    sql.add_argument("--file", metavar="FILE", help="a file of statements, run before those of the command line")
    sql.add_argument("--format", choices=("table", "csv", "json"), default=None, help="of the results (default: table)")

    _verb(verbs, "status", "the state of each stream and join", "deltatag status --json")


def _asking_verbs(verbs: Any) -> None:
    """Verbs that say what rules match, or would match: backtest, explain."""
    test = _verb(verbs, "backtest", "what rules would have matched", 'deltatag backtest flights "dep_delay > 90"')
    test.add_argument("scope", metavar="SCOPE", help="the stream whose source is read")
    test.add_argument("expression", metavar="EXPR", nargs="?", type=_text, help="the text of a rule")
    test.add_argument("--file", metavar="FILE", help="rules of a file, as rules import reads it")
    test.add_argument("--versions", metavar="VERSION", nargs=2, type=_version, help="what differs between two of them")
    test.add_argument("--from", dest="since", metavar="TIME", help="first event time (ISO 8601)")
    test.add_argument("--to", dest="until", metavar="TIME", help="event time to end before (ISO 8601)")
    test.add_argument("--sample", type=_count, metavar="ROWS", help="read about this many rows (default: all)")
    test.add_argument("--plot", metavar="FILE", help="matches over time as a picture (PNG)")

    why = _verb(
        verbs, "explain", "why rules match rows, or do not", 'deltatag explain flights late --where "flight_id = 7"'
    )
    why.add_argument("scope", metavar="SCOPE", help="the stream or the join")
    why.add_argument(
        "rules",
        nargs="*",
        metavar="RULE",
        type=_text,
        help="ids (default: those that match a row, and a few that nearly do)",
    )
    why.add_argument(
        "--where", required=True, metavar="CONDITION", type=_text, help="which rows: a condition, written like a rule"
    )
    why.add_argument(
        "--rules-version",
        type=_version,
        metavar="N",
        help="version of the table rules (default: the one that tagged the row)",
    )
    why.add_argument("--limit", type=_count, default=10, metavar="N", help="rows at most (default: 10)")


def _other_verbs(verbs: Any) -> None:
    """Verbs for pages, maintenance and the demonstration: report, serve, maintain, demo."""
    report = _verb(
        verbs, "report", "one HTML page for each scope: rules, matches, findings, edits", "deltatag report flights"
    )
    report.add_argument("scopes", nargs="*", metavar="SCOPE", help="streams and joins (default: all)")
    report.add_argument("--output", metavar="DIR", default="report", help="where the pages go (default: report)")

    serve = _verb(
        verbs, "serve", "show reports and Data Docs in a browser, by a web server", "deltatag serve", json=False
    )
    serve.add_argument("--host", default="127.0.0.1", help="the address to listen at (default: only this machine)")
    serve.add_argument("--port", type=_port, default=3001, help="the port to listen at (default: 3001)")

    _verb(verbs, "maintain", "keep deltatag's own tables at few files and short logs", "deltatag maintain")

    demo = _verb(verbs, "demo", "a small lake with real flights, rules and results", "deltatag demo demo", json=False)
    demo.add_argument("folder", nargs="?", default="demo", metavar="DIR", help="where it goes (default: demo)")
    demo.add_argument("--force", action="store_true", help="make it again even if it was edited since")


def _rules_verbs(verbs: Any) -> None:
    about = "rules in files, and in the table's history"
    rules = verbs.add_parser(
        "rules",
        help=about,
        description=f"rules: {about}",
        epilog="Example: deltatag rules export rules.yaml\nHelp on an action: deltatag rules ACTION --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _options_before_a_verb(rules)
    actions = rules.add_subparsers(dest="action", metavar="ACTION", required=True)

    load = _verb(
        actions,
        "import",
        "rules of a file -> the table rules, in one commit",
        "deltatag rules import rules.yaml --dry-run",
    )
    load.add_argument("file", metavar="FILE", help="ends with .csv, .yaml, .jsonl or .dmn; or a folder of Sigma or DMN")
    load.add_argument(
        "--format", choices=("sigma", "dmn"), help="the language of the rules, if it is not the table's own"
    )
    load.add_argument(
        "--mapping", metavar="FIELDS", help="a YAML file that names the column of each Sigma or DMN field"
    )
    load.add_argument("--scope", help="the stream or join of rules for which the file names none")
    load.add_argument("--replace", action="store_true", help="remove the scope's rules that are not in the file")
    load.add_argument("--dry-run", action="store_true", help="show what would change, and write nothing")

    save = _verb(actions, "export", "the table rules -> a file", "deltatag rules export rules.yaml --scope flights")
    save.add_argument("file", metavar="FILE", help="ends with .csv, .yaml or .jsonl")
    save.add_argument("--scope", help="only the rules of this stream or join")

    past = _verb(
        actions, "history", "the edits of a rule, and what each version matched", "deltatag rules history late"
    )
    past.add_argument("rule", metavar="RULE", type=_text, help="its id")

    diff = _verb(actions, "diff", "what differs between two versions of the rules", "deltatag rules diff 3 7")
    diff.add_argument("versions", metavar="VERSION", nargs=2, type=_version, help="of the table rules")


def _verb(verbs: Any, name: str, text: str, example: str, *, json: bool = True) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(
        name, help=text, description=f"{name}: {text}", epilog=f"Example: {example}", allow_abbrev=False
    )
    _options_before_a_verb(verb)
    if json:
        verb.add_argument("--json", action="store_true", help="print the result as JSON")
    return verb


def _options_before_a_verb(verb: argparse.ArgumentParser) -> None:
    """Add the options that may also precede the verb; without defaults, which would override values given there."""
    verb.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help=_CONFIG_HELP)
    text = "show Spark's log, and where an error came from"
    verb.add_argument("--verbose", action="store_true", default=argparse.SUPPRESS, help=text)


def _text(text: str) -> str:
    """An argument decoded as UTF-8, whatever encoding the environment names; ArgumentTypeError if it is not UTF-8."""
    try:
        # Python passes bytes that the environment's encoding lacks as surrogates, which no valid text contains
        return os.fsencode(text).decode() if any("\ud800" <= letter <= "\udfff" for letter in text) else text
    except UnicodeError:
        raise argparse.ArgumentTypeError(f"{text!a:.60} is not text in UTF-8") from None


def _count(text: str) -> int:
    """An integer of at least 1, at most `sys.maxsize`; ArgumentTypeError for others."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return min(int(text), sys.maxsize)


def _port(text: str) -> int:
    """A port, or 0 for any that is free; ArgumentTypeError for other texts."""
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: a whole number from 0 to 65535")
    return int(text)


def _version(text: str) -> int:
    """A version of a table; ArgumentTypeError for other texts."""
    if not text.isdecimal() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a version of a table")
    return int(text)


def _share(text: str) -> float:
    """A share above 0, up to 1; ArgumentTypeError for others."""
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share above 0, up to 1")
    return share


def _kinds(text: str) -> list[str]:
    """Kinds of findings, separated by commas; ArgumentTypeError for an unknown one."""
    from pipelines.lint_kinds import KINDS

    found = [each.strip() for each in text.split(",") if each.strip()]
    wrong = [each for each in found if each not in KINDS]
    if wrong or not found:
        named = f"{wrong[0]!r} is not a kind of finding" if wrong else "a kind of finding is needed"
        raise argparse.ArgumentTypeError(f"{named}; there are {', '.join(KINDS)}")
    return found


class _VerbParser(argparse.ArgumentParser):
    """A parser that also takes a verb's arguments after its options (`explain SCOPE --json RULE`), and arguments that
    begin with a dash (`lint --accept --late overlap`).

    `argparse` itself takes an optional argument as missing at the first option, and rejects it later as one too many.
    It takes a text with a dash for an option, and gives an option with two values none that begins with a dash.
    """

    _is_second_try = False
    _before = ""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The values and the unknown arguments, as in `ArgumentParser`; options may also be intermixed."""
        given = copy(namespace)
        found, unknown = super().parse_known_args(args, namespace)
        if not unknown or self._is_second_try or self._subparsers is not None:
            return found, unknown
        self._is_second_try = True
        try:
            found, unknown = self.parse_known_intermixed_args(args, given)
        finally:
            self._is_second_try = False
        if unknown:  # the parser above would show its own usage, without the options that this verb has
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def _parse_optional(self, arg_string: str) -> Any:
        """The option that a text is, as `ArgumentParser` has it; None for a value, such as the id after --accept."""
        before, self._before = self._before, arg_string
        is_value = (arg_string[:2] != "--" or before == "--accept") and arg_string not in self._option_string_actions
        return None if is_value else super()._parse_optional(arg_string)


class _Version(argparse.Action):
    """Prints the installed version, which is looked up only on demand."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Print it and stop."""
        from importlib.metadata import version

        print(f"deltatag {version('deltatag')}")
        parser.exit()
