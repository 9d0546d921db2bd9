"""The figures of the BE-Tree paper that vary one parameter of BEGen, for both laws of the attributes (5 to 10)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.papers import be_tree_runs as runs
from benchmarks.papers.be_tree_runs import EXTRA, SYSTEMS
from benchmarks.papers.experiment import Claim, Experiment, Progress, Row
from benchmarks.papers.judging import between, growth, less_by, spread

RIVALS = ("Propagation", "Gryphon", "k-index", "SIFT", "SCAN")


def of(column: str, value: Any) -> Callable[[Row], bool]:
    """Rows that have a value in a column."""
    return lambda row: row[column] == value


def both(uniform: float, zipf: float, rival: str = "the next best") -> tuple[Claim, ...]:
    """BE's time below the next best's by these percentages."""
    others = RIVALS if rival == "the next best" else (rival,)
    return (
        less_by(f"uniform: {uniform:g} % below {rival}", "BE", others, uniform, of("law", "uniform")),
        less_by(f"Zipf: {zipf:g} % below {rival}", "BE", others, zipf, of("law", "Zipf")),
    )


def figure(
    name: str, title: str, label: str, sizes: dict[str, dict[str, Any]], claims: Sequence[Claim], note: str = "",
    also: dict[Any, Any] | None = None, parameter: str = "",
) -> Experiment:  # fmt: skip
    """A figure that varies one parameter of the workload, for both laws."""

    def measure(progress: Progress, **given: Any) -> list[Row]:
        return runs.varied(progress, parameter or label, label=label, also=also, **given)

    return Experiment(
        name,
        title,
        label,
        SYSTEMS,
        "µs an event",
        measure,
        sizes,
        tuple(claims),
        panel="law",
        own="BE",
        family=("BE-B",),
        extra=EXTRA,
        note=note,
    )


def sizes(
    tiny: Any, small: Any, full: Any, n: int = 100_000, most: int = 100_000, events: int = 20, **fixed: Any
) -> dict[str, Any]:
    """The values that are varied by size; `n` in the papers' size, `most` in the small one, with so many events."""
    return {
        "tiny": {"values": tiny, "repeat": 1, "events": 5, "n": 400} | fixed,
        "small": {"values": small, "repeat": 3, "events": events, "n": min(n, most)} | fixed,
        "full": {"values": full, "repeat": 7, "events": 100, "n": n} | fixed,
    }


def _linear(rows: Sequence[Row]) -> tuple[bool, str]:
    told, met = [], True
    for name in ("BE", "Propagation", "Gryphon", "k-index", "SIFT"):
        own = [row for row in rows if row["law"] == "uniform" and name in row]
        if len(own) < 2:
            continue
        factor = growth(own, name) / growth(own, "matches")
        met &= 0.5 <= factor <= 2
        told.append(f"{name} {factor:.2f}")
    return met and bool(told), "growth of time over growth of matches: " + ", ".join(told)


def without_n(given: dict[str, Any]) -> dict[str, Any]:
    """Sizes of a figure that varies n."""
    return {size: {name: value for name, value in each.items() if name != "n"} for size, each in given.items()}


FIGURE_5 = figure(
    "Figure 5",
    "time by the number of subscriptions",
    "n",
    without_n(sizes((200, 400), (12_500, 25_000, 50_000), (100_000, 250_000, 500_000, 1_000_000))),
    (
        *both(80, 63),
        Claim("all are linear in the matches", "time grows 0.5 to 2 times as much as the matches", _linear),
    ),
)
FIGURE_6 = figure(
    "Figure 6",
    "time by dimensions",
    "dimensions",
    sizes((50, 200), (50, 400, 1_400), (50, 200, 400, 800, 1_400), n=1_000_000, most=20_000),
    (
        less_by(
            "uniform: 93 % below k-index at 50",
            "BE",
            ("k-index",),
            93,
            lambda row: row["law"] == "uniform" and row["dimensions"] == 50,
        ),
        less_by(
            "uniform: 75 % below k-index at 1,400",
            "BE",
            ("k-index",),
            75,
            lambda row: row["law"] == "uniform" and row["dimensions"] == 1400,
        ),
        less_by("Zipf: 97 % below k-index", "BE", ("k-index",), 97, of("law", "Zipf")),
        Claim(
            "only k-index and SIFT depend on the dimensions",
            "uniform: k-index and SIFT vary 1.5 x at least, and more than BE",
            lambda rows: _depends(rows, ("k-index", "SIFT"), "BE"),
        ),
    ),
)
FIGURE_7 = figure(
    "Figure 7",
    "time by predicates of a subscription",
    "subscription",
    sizes((5, 14), (5, 14, 66), (5, 9, 14, 24, 40, 66), most=20_000),
    (
        *both(63, 65),
        Claim(
            "Propagation is best near 14",
            "Propagation below BE at 14 predicates",
            lambda rows: _best_at(rows, "subscription", 14, "Propagation"),
        ),
    ),
    also={
        5: {"event": 13},
        9: {"event": 19},
        14: {"event": 26},
        24: {"event": 38},
        30: {"event": 45},
        40: {"event": 55},
        66: {"event": 81},
    },
    note="The sizes of the events grow with those of the subscriptions, from 13 to 81.",
)
FIGURE_8A = figure(
    "Figure 8a-b",
    "time by cardinality",
    "cardinality",
    sizes((48, 200), (48, 1_000, 6_000, 150_000), (48, 200, 1_000, 6_000, 30_000, 150_000), most=20_000),
    both(66, 59, "Propagation"),
    note="k-index and SIFT enumerate ranges. They are left out from 6,000 on, as in the paper, and if lists "
    "would have more than 120 M entries.",
)
FIGURE_8C = figure(
    "Figure 8c-d",
    "time by the width of ranges",
    "width",
    sizes((0.06, 0.5), (0.06, 0.12, 0.5), (0.06, 0.12, 0.25, 0.5), most=20_000),
    both(76, 43),
)
FIGURE_9 = figure(
    "Figure 9",
    "time by cardinality 2 to 10, equalities only",
    "cardinality",
    sizes((2, 5), (2, 4, 10), (2, 3, 4, 5, 6, 8, 10), most=20_000, equality=1.0, operators="Min"),
    (
        between(
            "BE-Tree hardly depends on the selectivity",
            0,
            1.5,
            lambda rows: _spread_less_matches(rows, "BE"),
            "uniform: BE's time from the least to the greatest",
        ),
        between(
            "Gryphon neither",
            0,
            1.5,
            lambda rows: _spread_less_matches(rows, "Gryphon"),
            "uniform: Gryphon's time from the least to the greatest",
        ),
        between(
            "Propagation's time rises (411 % from selectivity 0.9 to 0.5, Zipf)",
            2,
            math.inf,
            lambda rows: 1 / growth([row for row in rows if row["law"] == "Zipf"], "Propagation"),
            "Zipf: Propagation at cardinality 2 over 10",
        ),
        between(
            "k-index's time rises (650 %)",
            2,
            math.inf,
            lambda rows: 1 / growth([row for row in rows if row["law"] == "Zipf"], "k-index"),
            "Zipf: k-index at cardinality 2 over 10",
        ),
    ),
    note="Selectivity in the paper is 1 - 1 / cardinality. In the paper the times of BE-Tree and Gryphon change"
    " by 1 %. The criterion allows a factor of 1.5, since events match more if values repeat.",
)
FIGURE_10 = figure(
    "Figure 10", "time by the share of equalities", "equality",
    sizes((0.2, 1.0), (0.2, 0.6, 1.0), (0.2, 0.4, 0.6, 0.8, 1.0), n=1_000_000, most=20_000),
    (
        less_by("88 % below Gryphon where equalities are few", "BE", ("Gryphon",), 88, of("equality", 0.2)),
        less_by("20 % below Gryphon where there is nothing else", "BE", ("Gryphon",), 20, of("equality", 1.0)),
    ),
)  # fmt: skip


def _depends(rows: Sequence[Row], names: Sequence[str], other: str) -> tuple[bool, str]:
    own = [row for row in rows if row["law"] == "uniform"]
    told = {name: spread(own, name) for name in (*names, other)}
    met = all(told[name] >= 1.5 and told[name] > told[other] for name in names)
    return met, ", ".join(f"{name} varies {value:.2f} x" for name, value in told.items())


def _best_at(rows: Sequence[Row], column: str, value: Any, name: str) -> tuple[bool, str]:
    own = [row for row in rows if row[column] == value]
    ratios = [row[name] / row["BE"] for row in own]
    return bool(ratios) and max(ratios) < 1, f"{name} / BE {', '.join(f'{each:.2f}' for each in ratios)}"


def _spread_less_matches(rows: Sequence[Row], name: str) -> float:
    return spread([row for row in rows if row["law"] == "uniform"], name)
