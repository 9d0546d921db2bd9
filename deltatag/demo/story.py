"""What the demonstration does, chapter by chapter; every figure that it shows is read from the lake's tables."""

from __future__ import annotations

import os
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltatag.demo.changes import RuleChange, rule_changes
from deltatag.demo.flights import LAST_MONTH, read_flights
from deltatag.demo.place import DAGSTER_HOME, PLOT, SQL_FILES, make_place
from deltatag.demo.printing import Narrator
from deltatag.demo.statements import read_statements

if TYPE_CHECKING:
    import polars as pl

    from deltatag.demo.running import RunOutcome
    from pipelines.workspace import Workspace

STREAM = "flights"
_EXAMPLES = ("late-departure", "missed-connections", "own-threshold", "slow", "odd-tail-number", "thanksgiving")


class Story:
    """One demonstration in one folder."""

    def __init__(self, folder: Path, verbose: bool = False) -> None:
        """Nothing is done yet; `verbose` lets the logs of Spark and Dagster through."""
        self.folder = folder
        self.verbose = verbose
        self.narrator = Narrator()
        self._workspace: Workspace | None = None

    def tell(self) -> int:
        """Do everything; 0 if every step went as it should, 1 if a run failed."""
        from deltatag.demo.running import Runner

        narrator = self.narrator
        with narrator.timed("reading the flights"):
            again = make_place(self.folder)
            flights = read_flights()
        narrator.title(f"{flights.height:,} flights out of New York City, tagged with rules that are edited in SQL")
        if again:
            narrator.say(f"What an earlier demonstration left in {self.folder} has been made anew.")
        runner = Runner(self.workspace, self.folder / DAGSTER_HOME, self.verbose)
        self._begin(flights)
        first = self._first_run(runner)
        if first.failures:
            return self._stop(first)
        self._edit()
        second = self._second_run(runner, flights)
        if second.failures:
            return self._stop(second)
        self._what_changed()
        self._questions()
        self._where_next(runner)
        return 0

    @property
    def workspace(self) -> Workspace:
        """The demonstration's configuration and lake, with a Spark session on first use."""
        if self._workspace is None:
            from pipelines.config import FILE_NAME, load_configuration
            from pipelines.workspace import Workspace

            configuration = load_configuration(self.folder / FILE_NAME)
            self._workspace = Workspace(configuration, quiet=not self.verbose, progress=self.narrator.progress)
        return self._workspace

    def _begin(self, flights: pl.DataFrame) -> None:
        """The lake: eleven months of flights, and the rules."""
        import polars as pl

        from pipelines.tables import LAKE_TABLES

        narrator = self.narrator
        narrator.chapter("A lake with flights and rules")
        early = flights.filter(pl.col("month") != LAST_MONTH)
        self._write(early)
        for name in LAKE_TABLES:
            self.workspace.lake.create(name)
        narrator.say(
            f"{self.folder / 'lake' / 'flights'} is a Delta table of {early.height:,} flights, one row each; "
            f"{flights.height - early.height:,} of the last month are held back to arrive later. "
            f"{self.folder / 'deltatag.toml'} names it as the stream `{STREAM}`."
        )
        with narrator.timed("starting Spark, inserting the rules"):
            for statement in read_statements("rules.sql"):
                self._execute(statement.text)
        rules = self._rows(
            "SELECT count(*), count_if(enabled IS NOT FALSE), count(DISTINCT owner), "
            "count_if(valid_from IS NOT NULL OR valid_to IS NOT NULL) FROM rules"
        )[0]
        narrator.say(
            f"The Delta table `rules` now has {rules[0]} rules of {rules[2]} teams, {rules[1]} of them enabled and "
            f"{rules[3]} valid for a time only; they came by INSERT statements ({self.folder / SQL_FILES[0]}). "
            "Some of them:"
        )
        listed = ", ".join(f"'{name}'" for name in _EXAMPLES)
        self._show(f"SELECT rule_id, owner, expression FROM rules WHERE rule_id IN ({listed}) ORDER BY owner, rule_id")

    def _first_run(self, runner: Any) -> RunOutcome:
        self.narrator.chapter("First run: check, compile, tag")
        outcome: RunOutcome = runner.run(self.narrator)
        self._tell_run(outcome)
        if outcome.failures:
            return outcome
        self.narrator.say("Matches of each rule, most first:")
        self._show(
            "SELECT r.rule_id, count(m.rule_id) AS matches, "
            "round(100 * count(m.rule_id) / (SELECT count(*) FROM flights_tagged), 2) AS percent, r.expression "
            "FROM rules AS r LEFT JOIN flights_matches AS m ON m.rule_id = r.rule_id "
            "GROUP BY r.rule_id, r.expression ORDER BY matches DESC, r.rule_id"
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

    def _second_run(self, runner: Any, flights: pl.DataFrame) -> RunOutcome:
        import polars as pl

        narrator = self.narrator
        narrator.chapter("The last month arrives, and the second run")
        late = flights.filter(pl.col("month") == LAST_MONTH)
        self._write(late)
        narrator.say(f"{late.height:,} flights were appended to the source.")
        outcome: RunOutcome = runner.run(narrator)
        self._tell_run(outcome)
        if not outcome.failures:
            self._tell_rejects()
        return outcome

    def _tell_run(self, outcome: RunOutcome) -> None:
        """What `runs` says of the newest micro-batches, and what the quality checks found."""
        from pipelines.runs import batches

        narrator = self.narrator
        for line in outcome.lines:
            narrator.say(line)
        newest = [b for b in batches(self.workspace.lake, STREAM) if b.rules_version is not None][-1:]
        for batch in newest:
            narrator.say(
                f"Tagged {batch.rows or 0:,} flights with version {batch.rules_version} of the rules in "
                f"{batch.seconds or 0:.1f} s: {batch.matches or 0:,} matches, {batch.quarantined or 0:,} rows in "
                f"quarantine. The whole run took {outcome.seconds:.0f} s."
            )

    def _tell_errors(self) -> None:
        from pipelines.runs import batches

        raised: Counter[str] = Counter()
        for batch in batches(self.workspace.lake, STREAM):
            raised.update(batch.errors)
        for rule_id, rows in sorted(raised.items()):
            text = self._rows(f"SELECT expression FROM rules WHERE rule_id = '{rule_id}'")[0][0]
            self.narrator.line_break()
            self.narrator.say(
                f"On {rows:,} rows a part of {rule_id} ({text}) could not be computed: it is unknown there, the "
                "rows went on, and `runs` counts them."
            )

    def _tell_rejects(self) -> None:
        """Every rejected rule with its message and a mark under the place."""
        narrator = self.narrator
        rejected = self._rows(
            "SELECT j.rule_id, j.error, j.message, j.position, r.expression FROM rule_rejects AS j "
            "LEFT JOIN rules AS r ON r.rule_id = j.rule_id ORDER BY j.rule_id"
        )
        number = "One rule was" if len(rejected) == 1 else f"{len(rejected)} rules were"
        narrator.say(f"{number} rejected, which stops no other rule; the table `rule_rejects` says why:")
        for rule_id, error, message, position, expression in rejected:
            lines = ["", f"{rule_id}: {error}: {message}"]
            if expression is not None and position is not None:
                start = expression.rfind("\n", 0, position) + 1
                lines += [f"  {expression[start:].splitlines()[0]}", f"  {' ' * (position - start)}^"]
            narrator.verbatim(lines)

    def _what_changed(self) -> None:
        narrator = self.narrator
        narrator.chapter("What changed with the edit")
        versions = self._rows("SELECT rules_version, count(*) FROM flights_tagged GROUP BY rules_version ORDER BY 1")
        (first, first_rows), (second, second_rows) = versions[0], versions[-1]
        narrator.say(
            f"{first_rows:,} rows were tagged by version {first} of the rules and keep their tags; {second_rows:,} "
            f"were tagged by version {second}. Matches per 1,000 flights under each:"
        )
        counts = {
            (rule_id, version): matches
            for rule_id, version, matches in self._rows(
                "SELECT rule_id, rules_version, count(*) FROM flights_matches GROUP BY rule_id, rules_version"
            )
        }
        changes = rule_changes(self.workspace.lake, first, second)
        rows = [
            (
                change.rule_id,
                change.what,
                _per_thousand(counts, change.rule_id, first, first_rows),
                _per_thousand(counts, change.rule_id, second, second_rows),
                change.expression,
            )
            for change in changes
        ]
        narrator.table(("rule_id", "edit", f"version {first}", f"version {second}", "expression now"), rows)
        self._plot(counts, (first, first_rows), (second, second_rows), changes)

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
        self.narrator.chapter("Three questions, asked in SQL")
        for query in read_statements("queries.sql"):
            self.narrator.sql(query.title, query.text)
            self._show(query.text)

    def _where_next(self, runner: Any) -> None:
        narrator, folder = self.narrator, self.folder
        total = self._rows("SELECT count(*) FROM flights_tagged")[0][0]
        matches = self._rows("SELECT count(*) FROM flights_matches")[0][0]
        narrator.chapter("Where to look next")
        narrator.say(
            f"{total:,} tagged flights and {matches:,} matches are in {folder / 'lake'}, made in "
            f"{narrator.seconds:.0f} seconds."
        )
        narrator.table(("what", "where"), [*runner.places(folder), ("a plot of matches per rule", folder / PLOT)])
        command, config = _command(), shlex.quote(str(folder / "deltatag.toml"))
        query = "SELECT * FROM flights_tagged WHERE array_contains(rule_ids, 'diverted')"
        repair = "dest IN ('ATL', 'ORD', 'DFW', 'CLT', 'DEN') AND arr_delay > 30"
        print("\nTry:")
        narrator.verbatim(
            [
                f'{command} validate "{repair}" --scope flights --config {config}',
                f'{command} sql "{query}" --config {config}',
                f"{command} status --config {config}",
                runner.dagster_command(folder),
            ]
        )

    def _stop(self, outcome: RunOutcome) -> int:
        for name, reason in outcome.failures.items():
            print(f"deltatag: {name}: {' '.join(reason.split())}", file=sys.stderr)
        return 1

    def _write(self, flights: pl.DataFrame) -> None:
        flights.drop("month").write_delta(self.folder / "lake" / "flights", mode="append")

    def _execute(self, statement: str) -> None:
        from pipelines.sql import run_statement

        run_statement(self.workspace, statement)

    def _table(self, statement: str) -> tuple[list[str], list[list[Any]]]:
        from pipelines.sql import statement_result

        result = statement_result(self.workspace, statement)
        columns = [column.to_pylist() for column in result.columns]
        return list(result.column_names), [list(row) for row in zip(*columns, strict=True)]

    def _rows(self, statement: str) -> list[list[Any]]:
        return self._table(statement)[1]

    def _show(self, statement: str) -> None:
        with self.narrator.timed("asking"):
            names, rows = self._table(statement)
        self.narrator.table(names, rows)


def _per_thousand(counts: dict[tuple[str, int], int], rule_id: str, version: int, rows: int) -> str:
    return f"{1000 * counts.get((rule_id, version), 0) / rows:.1f}"


def _command() -> str:
    """How the reader calls deltatag: as short as it works from the working directory."""
    script = Path(sys.executable).parent / "deltatag"
    relative = os.path.relpath(script)
    return relative if len(relative) < len(str(script)) else str(script)
