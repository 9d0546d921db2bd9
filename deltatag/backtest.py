"""The verb backtest: chooses the rules to try, and shows what they would have matched."""

from __future__ import annotations

from argparse import Namespace
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from deltatag.output import counted, jsonable, paragraph, print_json, print_table, say, say_rejected
from rules_index.printable import escaped

if TYPE_CHECKING:
    from pipelines.backtest import BacktestResult, Candidate, RuleBacktest
    from pipelines.workspace import Workspace

DONE, FAILED = 0, 1
_BARS = " ▁▂▃▄▅▆▇█"
_WIDTH = 60
_PLOTTED = 6
"""The most rules that are shown in full, and plotted."""


def backtest_action(workspace: Workspace, args: Namespace) -> int:
    """Try the rules that the command line names and show the results; returns the exit status."""
    from pipelines.backtest import backtest

    candidates = _candidates(workspace, args)
    result = backtest(
        workspace, args.scope, candidates, args.since, args.until, args.sample, None if args.json else _PLOTTED
    )
    if args.plot:
        _plot(result, Path(args.plot))
    if args.json:
        print_json(_as_json(result))
    else:
        _print(result, f"only {args.plot} was written" if args.plot else "nothing was written")
    failed = [(each.rule_id, each.error) for each in result.rules if each.error is not None]
    say_rejected([f"{escaped(rule_id)} is not tried: {paragraph(error)}" for rule_id, error in failed])
    return FAILED if failed else DONE


def _candidates(workspace: Workspace, args: Namespace) -> list[Candidate]:
    """The rules that the command line names: one text, a file, or the changes between two versions of `rules`."""
    import polars as pl

    from pipelines.authoring.rule_files import read_rules_file
    from pipelines.authoring.versions import columns_in, diff, in_force, rules_of
    from pipelines.backtest import Candidate
    from pipelines.errors import ConfigurationError

    if sum(given is not None for given in (args.expression, args.file, args.versions)) != 1:
        raise ConfigurationError('Give one of: the text of a rule ("amount > 5"), --file FILE, or --versions V1 V2.')
    if args.expression is not None:
        return [Candidate("expression", args.expression)]
    if args.versions is not None:
        changes = diff(workspace, *args.versions)
        frames = [(changes.added, "{}", None), (changes.removed, None, "{}"), (changes.changed, "{}", "{}_before")]
        found = [
            _candidate(str(row["rule_id"]), _part(row, new, args.scope), _part(row, old, args.scope))
            for frame, new, old in frames
            for row in frame.to_dicts()
        ]
        return [each for each in found if (each.new, each.old) != (None, None)]
    zone, table = ZoneInfo(workspace.configuration.rules.time_zone), workspace.lake.delta("rules")
    given = read_rules_file(Path(args.file), workspace.lake.rule_id_type(), zone, columns_in(table)).to_dicts()
    stored = rules_of(workspace.lake, table).filter(pl.col("scope") == args.scope)
    before = {row["rule_id"]: row for row in in_force(stored).iter_rows(named=True)}
    mine = [(row, before.get(row["rule_id"], {})) for row in given if row.get("scope") in (None, args.scope)]
    return [
        _candidate(
            str(row["rule_id"]),
            _part({**old, **row, "scope": args.scope}, "{}", args.scope),
            _part(old, "{}", args.scope) if old else {},
        )
        for row, old in mine
    ]


def _part(row: Mapping[str, Any], name: str | None, scope: str) -> dict[str, Any]:
    """The rule in a row of changes; empty without a name, and for a rule that is disabled or of another scope.

    name: a format for the names of its columns in the row.
    """
    if name is None or row[name.format("scope")] != scope or row.get(name.format("enabled")) is False:
        return {}
    columns = ("expression", "labels", "severity", "valid_from", "valid_to")
    return {each: row.get(name.format(each)) for each in columns}


def _candidate(rule_id: str, new: Mapping[str, Any], old: Mapping[str, Any]) -> Candidate:
    """A candidate from the rule's row and the row that it replaces; each is empty if there is none."""
    from pipelines.backtest import Candidate

    return Candidate(rule_id, new.get("expression"), old.get("expression"), new, old)


def _as_json(result: BacktestResult) -> Any:
    rules = [
        {
            "rule_id": each.rule_id,
            "matches": each.matches,
            "gained": each.gained,
            "lost": each.lost,
            "errors": each.errors,
            "examples": each.examples,
            "overlaps": _top(each.overlaps),
            "over_time": {f"{hour:%Y-%m-%d %H:00}": count for hour, count in sorted(each.over_time.items())},
            "cost_ns": None if each.cost is None else round(each.cost, 1),
            "error": each.error,
        }
        for each in result.rules
    ]
    shown = {"scope": result.scope, "rows": result.rows, "rules": rules, "sampled": result.sampled}
    return jsonable(shown | {"seconds": result.seconds, "notes": list(result.notes)})


def _top(overlaps: Mapping[str, int]) -> dict[str, int]:
    from pipelines.backtest import MOST_OVERLAPS

    return dict(sorted(overlaps.items(), key=lambda each: (-each[1], each[0]))[:MOST_OVERLAPS])


def _print(result: BacktestResult, written: str) -> None:
    from rules_index.explaining.tree import shown

    how = "a sample of " if result.sampled else ""
    say(f"{result.scope}: {how}{counted(result.rows, 'row')}, {result.seconds:.1f} s; {written}")
    names = ["rule", "matches", "share", "gained", "lost", "errors", "ns a row", "over time"]
    tried = [each for each in result.rules if each.error is None]
    periods = _periods_of(tried)
    bars = [periods.bars(each) if periods else "" for each in tried]
    share = [f"{each.matches / result.rows:.2%}" if result.rows else "-" for each in tried]
    rows = [
        [each.rule_id, each.matches, part, each.gained, each.lost, each.errors, _cost(each), bar]
        for each, part, bar in zip(tried, share, bars, strict=True)
    ]
    if rows:
        print_table(names, rows)
    if periods:
        say(periods.described())
    for each in tried[:_PLOTTED]:
        if each.overlaps:
            beside = ", ".join(f"{escaped(rule)} ({count:,})" for rule, count in _top(each.overlaps).items())
            say(f"{escaped(each.rule_id)}: also matched by {beside}")
        for example in (row for kind in ("gained", "lost") for row in _first(each, kind)):
            values = ", ".join(f"{escaped(name)} = {shown(value)}" for name, value in example["row"].items())
            say(f"{escaped(each.rule_id)}: {example['kind']}: {values}")
    if len(tried) > _PLOTTED:
        say(f"Overlaps and examples are those of the first {_PLOTTED} rules, as is a plot; --json has those of all.")
    for note in result.notes:
        say(note)
    if not result.rules:
        say(f"No rule was tried: no rule of {result.scope} is in the file, or differs between the two versions.")


def _cost(each: RuleBacktest) -> str:
    return "-" if each.cost is None else f"{each.cost:,.0f}"


def _first(each: RuleBacktest, kind: str) -> list[dict[str, Any]]:
    return [example for example in each.examples if example["kind"] == kind][:2]


class _Periods:
    """At most `_WIDTH` equal periods of whole hours or days, over the times at which one of the rules matches.

    Outliers (such as the year 9999 for "never") are outside of the periods, since they would flatten all bars.
    """

    def __init__(self, rules: Iterable[RuleBacktest]) -> None:
        matched: Counter[datetime] = Counter()
        for each in rules:
            matched.update(each.over_time)
        self.first, self.last = _without_outliers(sorted(matched.items()))
        self.outside = sum(count for time, count in matched.items() if not self.first <= time <= self.last)
        span = _hours_between(self.first, self.last) + 1
        hours = -(-span // _WIDTH)
        self.hours = hours if hours < 24 else -(-hours // 24) * 24
        self.starts = [self.first + timedelta(hours=place) for place in range(0, span, self.hours)]

    def counts(self, each: RuleBacktest) -> list[int]:
        """[periods] the rule's matches."""
        counts = [0] * len(self.starts)
        for time, count in each.over_time.items():
            if self.first <= time <= self.last:
                counts[_hours_between(self.first, time) // self.hours] += count
        return counts

    def bars(self, each: RuleBacktest) -> str:
        """The counts as bars, of which the highest is full."""
        counts = self.counts(each)
        highest = max(1, *counts)
        return "".join(_BARS[-(-count * 8 // highest)] for count in counts)

    def described(self) -> str:
        """What a bar stands for."""
        days, hours = divmod(self.hours, 24)
        period = counted(self.hours, "hour") if hours or not days else counted(days, "day")
        outside = f"; {counted(self.outside, 'match')} far outside of it" if self.outside else ""
        return (
            f"over time: {self.first:%Y-%m-%d %H:00} to {self.last:%Y-%m-%d %H:59}{outside}, {period} a bar; "
            "the highest bar of each rule is full"
        )


def _without_outliers(matched: Sequence[tuple[datetime, int]]) -> tuple[datetime, datetime]:
    """The first and the last of these times, which ascend, each with its matches; without those that are much further
    from the 99 % of the matches in the middle than these are from each other."""
    until = list(accumulate(count for _, count in matched))
    few = until[-1] // 200
    low, high = (matched[bisect_right(until, place)][0] for place in (few, until[-1] - 1 - few))
    far = 10 * max(high - low, timedelta(days=30))
    near = [time for time, _ in matched if low - time <= far and time - high <= far]
    return near[0], near[-1]


def _hours_between(first: datetime, last: datetime) -> int:
    return int((last - first).total_seconds() // 3_600)


def _periods_of(rules: Sequence[RuleBacktest]) -> _Periods | None:
    """The periods; None if no rule matches a row with a time."""
    return _Periods(rules) if any(each.over_time for each in rules) else None


def _plot(result: BacktestResult, path: Path) -> None:
    """Plot the first rules' matches over time, one below the other; ConfigurationError if `path` cannot be written."""
    import matplotlib

    from pipelines.errors import ConfigurationError

    matplotlib.use("Agg")
    from matplotlib import dates, pyplot

    shown = [each for each in result.rules if each.error is None][:_PLOTTED]
    periods = _periods_of(shown)
    figure, axes = pyplot.subplots(max(1, len(shown)), 1, figsize=(9, 1 + 2 * max(1, len(shown))), squeeze=False)
    for axis, each in zip(axes[:, 0], shown, strict=False):
        axis.set_title(f"{each.rule_id}: {counted(each.matches, 'match')}", loc="left", fontsize=10, parse_math=False)
        axis.set_ylabel("rows")
        axis.yaxis.get_major_locator().set_params(integer=True)
        if periods:
            starts, counts = periods.starts, periods.counts(each)
            width = timedelta(hours=periods.hours * 0.9)
            # Matplotlib has no time beyond the year 9999
            widths = [min(width, datetime.max - start) for start in starts]
            axis.bar(starts, counts, width=widths, align="edge", color="#0969da")
            axis.margins(x=0)
            ticks = dates.AutoDateLocator(maxticks=9)
            # short labels: whole dates would overlap at the end of a month, which has its own tick
            axis.xaxis.set_major_locator(ticks)
            axis.xaxis.set_major_formatter(dates.ConciseDateFormatter(ticks))
    figure.suptitle(f"{result.scope}: {'a sample of ' if result.sampled else ''}{result.rows:,} rows", fontsize=11)
    figure.tight_layout()
    try:
        figure.savefig(path, dpi=120, format="png")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        pyplot.close(figure)
