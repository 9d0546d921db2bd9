"""The chapters of the demonstration; every figure that it shows is read from the lake's tables."""

from __future__ import annotations

import os
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deltatag.demo.changes import RuleChange, rule_changes
from deltatag.demo.figures import (
    matches_by_rule,
    matches_by_version,
    pairs_and_flights,
    pairs_by_rule,
    rows_by_version,
)
from deltatag.demo.flights import LAST_MONTH, read_flights
from deltatag.demo.place import DAGSTER_HOME, PLOT, SQL_FILES, make_place, remember
from deltatag.demo.printing import Narrator
from deltatag.demo.statements import read_statements
from deltatag.demo.weather import read_weather
from deltatag.output import write
from pipelines.lake.python_values import values_of
from pipelines.local_sql.statement import local_result
from pipelines.table_definitions import tagged_table

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from deltatag.demo.running import Runner, RunOutcome, Step
    from pipelines.lake.runs import MicroBatch
    from pipelines.workspace import Workspace

STREAM = "flights"
JOIN = "flights_weather"
_EXAMPLES = ("late-departure", "missed-connections", "own-threshold", "slow", "odd-tail-number", "crosswind")


class Story:
    """One demonstration in one folder."""

    def __init__(self, folder: Path, verbose: bool = False, force: bool = False) -> None:
        """verbose: show the logs of Spark and Dagster; force: replace an edited demonstration without asking."""
        self.folder = folder
        self.force = force
        self.verbose = verbose
        self.narrator = Narrator()
        self._workspace: Workspace | None = None

    def tell(self) -> int:
        """Run all chapters; returns 0, or 1 if a run failed."""
        from deltatag.demo.running import Runner

        narrator = self.narrator
        again = make_place(self.folder, self._may_remove)
        with narrator.timed("reading the flights and the weather"):
            sources = {"flights": read_flights(), "weather": read_weather()}
        flights = sources["flights"].height
        narrator.title(f"{flights:,} flights out of New York City, tagged with rules that are edited in SQL")
        if again:
            narrator.say(f"The files of an earlier demonstration in {self.folder} were made again.")
        _be_silent()
        runner = Runner(self.workspace, self.folder / DAGSTER_HOME, self.verbose)
        self._begin(sources)
        first = self._first_run(runner)
        if first.failures:
            return self._stop(first)
        self._edit()
        second = self._second_run(runner, sources)
        if second.failures:
            return self._stop(second)
        self._what_changed()
        self._joined()
        self._questions()
        self._where_next(runner)
        remember(self.folder)
        return 0

    def _may_remove(self, edits: list[str]) -> bool:
        """Whether an edited demonstration may be removed: with `force`, or if the user at the terminal agrees."""
        if self.force or not (sys.stdin.isatty() and sys.stdout.isatty()):
            return self.force
        answer = input(f"{self.folder} was edited ({', '.join(edits)}). Make it again and lose the edits? [y/N] ")
        return answer.strip().lower() in ("y", "yes")

    @property
    def workspace(self) -> Workspace:
        """The demonstration's workspace; its Spark session starts on first use."""
        if self._workspace is None:
            from pipelines.settings.configuration import FILE_NAME, load_configuration
            from pipelines.workspace import Workspace

            configuration = load_configuration(self.folder / FILE_NAME)
            self._workspace = Workspace(configuration, quiet=not self.verbose, progress=self.narrator.progress)
        return self._workspace

    def _begin(self, sources: Mapping[str, pl.DataFrame]) -> None:
        """Create the lake: eleven months of flights and weather, and the rules."""
        import polars as pl

        from pipelines.table_definitions import LAKE_TABLES

        narrator = self.narrator
        narrator.chapter("A lake with flights, weather and rules")
        early = {name: source.filter(pl.col("month") != LAST_MONTH) for name, source in sources.items()}
        self._write(early)
        for name in LAKE_TABLES:
            self.workspace.lake.create(name)
        narrator.say(
            f"{self.folder / 'lake' / 'flights'} is a Delta table of {early['flights'].height:,} flights, one row "
            f"each; {sources['flights'].height - early['flights'].height:,} of the last month are held back to arrive "
            f"later. {self.folder / 'lake' / 'weather'} has {early['weather'].height:,} hours of weather at the "
            f"airports that they left from. {self.folder / 'deltatag.toml'} names both as streams, and `{JOIN}` as "
            "their join: each flight with the weather of the three hours before it."
        )
        with narrator.timed("inserting the rules"):
            for statement in read_statements("rules.sql"):
                self._execute(statement.text)
        rules = self._rules()
        enabled = rules.filter(pl.col("enabled").fill_null(True))
        bounded = rules.filter(pl.any_horizontal(pl.col("valid_from", "valid_to").is_not_null()))
        narrator.say(
            f"The Delta table `rules` now has {rules.height} rules of {rules['owner'].n_unique()} teams, "
            f"{enabled.height} of them enabled and {bounded.height} valid for a time only; they came "
            f"by INSERT statements ({self.folder / SQL_FILES[0]}). Some of them:"
        )
        listed = rules.filter(pl.col("rule_id").is_in(_EXAMPLES)).sort("owner", "rule_id")
        columns = ("rule_id", "scope", "owner", "expression")
        narrator.table(columns, listed.select(columns).rows())

    def _first_run(self, runner: Runner) -> RunOutcome:
        narrator = self.narrator
        narrator.chapter("First run: check, compile, tag")
        outcome = runner.run()
        self._tell_run(outcome)
        if outcome.failures:
            return outcome
        narrator.say("Matches of each rule on flights, most first:")
        counted = matches_by_rule(self.workspace, STREAM)
        narrator.table(
            counted.columns, [(rule, n, f"{percent:.2f}", text) for rule, n, percent, text in counted.rows()]
        )
        self._tell_errors()
        return outcome

    def _edit(self) -> None:
        narrator = self.narrator
        narrator.chapter("The rules are edited, in SQL")
        narrator.say("From any Delta client, while nothing else stops. One of the edits is wrong.")
        for statement in read_statements("edits.sql"):
            narrator.sql(statement.title, statement.text)
            with narrator.timed("executing"):
                self._execute(statement.text)

    def _second_run(self, runner: Runner, sources: Mapping[str, pl.DataFrame]) -> RunOutcome:
        import polars as pl

        narrator = self.narrator
        narrator.chapter("The last month arrives, and the second run")
        late = {name: source.filter(pl.col("month") == LAST_MONTH) for name, source in sources.items()}
        self._write(late)
        appended = " and ".join(f"{rows.height:,} rows to {name}" for name, rows in late.items())
        narrator.say(f"Appended to the sources: {appended}.")
        outcome = runner.run()
        self._tell_run(outcome)
        if not outcome.failures:
            self._tell_rejects()
        return outcome

    def _tell_run(self, outcome: RunOutcome) -> None:
        """Print the steps of a run, warnings of checks, and the newest micro-batches in `runs`."""
        narrator = self.narrator
        rows = [(step.name, f"{step.seconds:.1f}", _what_came_of(step)) for step in outcome.steps]
        narrator.table(("step", "seconds", "outcome"), rows)
        narrator.line_break()
        for warning in outcome.warnings:
            narrator.say(f"Warning of a check: {warning}")
        for batch in self._newest(STREAM):
            narrator.say(
                f"Tagged {batch.rows or 0:,} flights with version {batch.rules_version} of the rules in "
                f"{batch.seconds or 0:.1f} s: {batch.matches or 0:,} matches, {batch.quarantined or 0:,} rows in "
                "quarantine."
            )
        for batch in self._newest(JOIN):
            narrator.say(
                f"Joined {batch.rows or 0:,} new flights and hours of weather with all that are near them in "
                f"{batch.seconds or 0:.1f} s: {batch.matches or 0:,} matches."
            )
        narrator.say(f"The whole run took {outcome.seconds:.0f} s.")

    def _newest(self, scope: str) -> list[MicroBatch]:
        """The newest finished micro-batch of a stream or a join, in a list; empty if there is none."""
        from pipelines.lake.runs import DONE, batches

        return [batch for batch in batches(self.workspace.lake, scope) if batch.state == DONE][-1:]

    def _tell_errors(self) -> None:
        from pipelines.lake.runs import batches

        raised: Counter[str] = Counter()
        for batch in batches(self.workspace.lake, STREAM):
            raised.update(batch.errors)
        texts = dict(self._rules().select("rule_id", "expression").iter_rows())
        for rule_id, rows in sorted(raised.items()):
            self.narrator.line_break()
            self.narrator.say(
                f"On {rows:,} rows a part of {rule_id} ({texts[rule_id]}) could not be computed: it counts as unknown "
                "there, the rows were tagged all the same, and `runs` counts them."
            )

    def _tell_rejects(self) -> None:
        """Print every rejected rule with its message and a marker under the position."""
        narrator = self.narrator
        texts = dict(self._rules().select("rule_id", "expression").iter_rows())
        rejected = self.workspace.lake.arrow("rule_rejects").sort_by("rule_id").to_pylist()
        number = "One rule was" if len(rejected) == 1 else f"{len(rejected)} rules were"
        narrator.say(f"{number} rejected, which stops no other rule; the table `rule_rejects` says why:")
        for reject in rejected:
            expression, position = texts.get(reject["rule_id"]), reject["position"]
            lines = ["", f"{reject['rule_id']}: {reject['error']}: {reject['message']}"]
            if expression is not None and position is not None:
                start = expression.rfind("\n", 0, position) + 1
                lines += [f"  {expression[start:].splitlines()[0]}", f"  {' ' * (position - start)}^"]
            narrator.verbatim(lines)

    def _what_changed(self) -> None:
        narrator = self.narrator
        narrator.chapter("What changed with the edit")
        (first, first_rows), *_, (second, second_rows) = rows_by_version(self.workspace, STREAM)
        narrator.say(
            f"{first_rows:,} rows were tagged by version {first} of the rules and keep their tags; {second_rows:,} "
            f"were tagged by version {second}. Matches per 1,000 flights under each:"
        )
        counts = matches_by_version(self.workspace, STREAM)
        changes = rule_changes(self.workspace.lake, first, second)
        rows = [
            (
                change.rule_id,
                change.what,
                _per_thousand(counts, change.rule_id, first, first_rows),
                _per_thousand(counts, change.rule_id, second, second_rows),
                change.expression or "",
            )
            for change in changes
        ]
        narrator.table(("rule_id", "edit", f"version {first}", f"version {second}", "expression now"), rows)
        self._plot(counts, (first, first_rows), (second, second_rows), changes)

    def _joined(self) -> None:
        """Print the results of the rules on flights and weather together."""
        narrator = self.narrator
        narrator.chapter("Flights and the weather before them")
        rows, flights = pairs_and_flights(self.workspace, JOIN)
        narrator.say(
            f"The join pairs each flight with the three or four observations at its airport in the three hours before "
            f"it. {rows:,} pairs of {flights:,} flights satisfy a rule and are in {tagged_table(JOIN)}, with the whole "
            "row of each side."
        )
        counted = pairs_by_rule(self.workspace, JOIN)
        narrator.table(counted.columns, counted.rows())

    def _plot(
        self,
        counts: dict[tuple[str, int], int],
        first: tuple[int, int],
        second: tuple[int, int],
        changes: Sequence[RuleChange],
    ) -> None:
        from deltatag.demo.plot import plot_matches

        before: dict[str, float] = {}
        after: dict[str, float] = {}
        for (rule_id, version), matches in counts.items():
            side, rows = (before, first[1]) if version == first[0] else (after, second[1])
            side[rule_id] = side.get(rule_id, 0.0) + 1000 * matches / rows
        names = {*before, *after, *(change.rule_id for change in changes)}
        rules = sorted(names, key=lambda name: (-max(before.get(name, 0), after.get(name, 0)), name))
        path = self.folder / PLOT
        plot_matches(path, rules, [before.get(r, 0.0) for r in rules], [after.get(r, 0.0) for r in rules])

    def _questions(self) -> None:
        self.narrator.chapter("Four questions, asked in SQL")
        for query in read_statements("queries.sql"):
            self.narrator.sql(query.title, query.text)
            self._show(query.text)

    def _where_next(self, runner: Runner) -> None:
        from pipelines.lake.runs import batches

        narrator, folder = self.narrator, self.folder
        done = batches(self.workspace.lake, STREAM)
        total, matches = sum(b.rows or 0 for b in done), sum(b.matches or 0 for b in done)
        narrator.chapter("Where to look next")
        narrator.say(
            f"{total:,} tagged flights and {matches:,} matches are in {folder / 'lake'}, made in "
            f"{narrator.seconds:.0f} seconds."
        )
        places = [
            ("the tables", folder / "lake"),
            ("the configuration", folder / "deltatag.toml"),
            ("matches per rule, as a plot", folder / PLOT),
            ("the quality checks, as Data Docs", runner.report() or "not written"),
            ("the statements that were executed", folder / "*.sql"),
        ]
        narrator.table(("what", "where"), places, cut=False)
        command, config = _command("deltatag"), shlex.quote(str(folder / "deltatag.toml"))
        query = f"SELECT * FROM {tagged_table(JOIN)} WHERE array_contains(rule_ids, 'cloudburst')"
        repair = "dest IN ('ATL', 'ORD', 'DFW', 'CLT', 'DEN') AND arr_delay > 30"
        write("\nTry:")
        narrator.verbatim(
            [
                f'{command} validate "{repair}" --scope flights --config {config}',
                f'{command} sql "{query}" --config {config}',
                f"{command} sql --file {shlex.quote(str(folder / SQL_FILES[-1]))} --config {config}",
                f"{command} status --config {config}",
                f"{command} serve --config {config}",
                f"DAGSTER_HOME={_absolute(runner.home)} DELTATAG_CONFIG={config} {_command('dagster')} dev",
            ]
        )
        narrator.say(
            f"Nothing so far has needed a JVM. {SQL_FILES[-1]} does: its queries call functions that only Spark has."
        )
        narrator.say(
            "The last two are web servers, each until Ctrl-C: Dagster with the two runs above at "
            "http://localhost:3000, and the reports and Data Docs that it links to at http://localhost:3001."
        )

    def _stop(self, outcome: RunOutcome) -> int:
        for name, reason in outcome.failures.items():
            write(f"deltatag: {name}: {' '.join(reason.split())}", file=sys.stderr)
        return 1

    def _write(self, sources: Mapping[str, pl.DataFrame]) -> None:
        for name, rows in sources.items():
            rows.drop("month").write_delta(self.folder / "lake" / name, mode="append")

    def _rules(self) -> pl.DataFrame:
        """The current rules, read without Spark."""
        import polars as pl

        return pl.DataFrame(pl.from_arrow(self.workspace.lake.arrow("rules")))

    def _execute(self, statement: str) -> pa.Table:
        """The statement's result: by this process if it is exact, else by Spark."""
        result = local_result(self.workspace, statement)
        if result is not None:
            return result
        from pipelines.sql import statement_result

        return statement_result(self.workspace, statement)

    def _show(self, statement: str) -> None:
        with self.narrator.timed("asking"):
            result = self._execute(statement)
        columns = [values_of(column) for column in result.columns]
        self.narrator.table(result.column_names, [list(row) for row in zip(*columns, strict=True)])


def _be_silent() -> None:
    # Great Expectations and Dagster send usage statistics by default
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    os.environ["DAGSTER_DISABLE_TELEMETRY"] = "yes"


def _what_came_of(step: Step) -> str:
    if step.checks:
        return f"{step.passed} of {step.checks} checks passed"
    return f"wrote {', '.join(step.assets)}" if step.assets else "looked for a new version"


def _per_thousand(counts: dict[tuple[str, int], int], rule_id: str, version: int, rows: int) -> str:
    return f"{1000 * counts.get((rule_id, version), 0) / rows:.1f}"


def _absolute(path: Path) -> str:
    """The path as an absolute one, in a form for a shell in the working directory; Dagster needs it absolute."""
    return shlex.quote(str(path)) if path.is_absolute() else f'"$PWD/{path}"'


def _command(name: str) -> str:
    """The shortest path that calls a script of this environment from the working directory."""
    script = Path(sys.executable).parent / name
    relative = os.path.relpath(script)
    return relative if len(relative) < len(str(script)) else str(script)
