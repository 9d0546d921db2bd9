"""The figures on evaluating a disjunctive predicate with rows: SE, IE and IE+SC (figures 16 to 18, table 8)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.papers import disjunctive_runs as runs
from benchmarks.papers.experiment import Claim, Experiment, Progress, Row
from benchmarks.papers.judging import between

EVALUATION = ("SE", "IE", "IE+SC")
COMPARED = ("held %", *(f"{name} compared" for name in EVALUATION))


def evaluation(
    name: str,
    title: str,
    varied: str,
    claims: Sequence[Claim],
    values: dict[str, Sequence[Any]],
    panel: str = "",
    parameter: str = "",
    **fixed: Any,
) -> Experiment:
    """A figure or table on evaluation."""

    def measure(progress: Progress, **given: Any) -> list[Row]:
        return runs.evaluation(progress, parameter or varied, **given)

    rows, repeat = {"tiny": 500, "small": 20_000, "full": 1_000_000}, {"tiny": 1, "small": 3, "full": 5}
    return Experiment(
        name, title, varied, EVALUATION, "rows a millisecond", measure,
        {size: {"values": values[size], "rows": rows[size], "repeat": repeat[size]} | fixed for size in values},
        tuple(claims), panel=panel, own="IE+SC", best="highest", extra=COMPARED,
    )  # fmt: skip


def ratio(rows: Sequence[Row], one: str, other: str, where: Callable[[Row], bool], pick: Callable[..., float]) -> float:
    """The least or greatest quotient of two systems on some rows."""
    return pick((row[one] / row[other] for row in rows if where(row)), default=math.nan)


def crossing(rows: Sequence[Row], name: str, overlap: int) -> float:
    """The selectivity, in percent, from which on SE is ahead; 101 where it never is."""
    own = [row for row in rows if row["overlap"] == overlap]
    return next((float(row["selectivity"]) for row in own if row["SE"] > row[name]), 101.0)


def _any(row: Row) -> bool:
    return True


FIGURE_16 = evaluation(
    "Figure 16", "throughput by dimensions", "dimensions",
    (
        between("IE is ahead of SE", 1, math.inf, lambda rows: ratio(rows, "IE", "SE", _any, min), "IE / SE, least"),
        between("short circuit gains about 20 %", 1.1, math.inf,
                lambda rows: sum(row["IE+SC"] / row["IE"] for row in rows) / len(rows), "IE+SC / IE, mean"),
    ),
    {"tiny": (2, 3), "small": (2, 3, 4, 6, 8), "full": (2, 3, 4, 5, 6, 8, 10)},
)  # fmt: skip
FIGURE_17 = evaluation(
    "Figure 17",
    "throughput by subpredicates",
    "boxes",
    (
        between("IE is ahead of SE", 1, math.inf, lambda rows: ratio(rows, "IE", "SE", _any, min), "IE / SE, least"),
        between(
            "IE at 5,000 is ahead of SE at 10",
            1,
            math.inf,
            lambda rows: rows[-1]["IE"] / rows[0]["SE"],
            "IE at most boxes / SE at fewest",
        ),
        between(
            "(nodes and boxes that are compared)",
            0,
            1,
            lambda rows: rows[-1]["IE compared"] / rows[0]["SE compared"],
            "IE at most boxes / SE at fewest",
        ),
    ),
    {"tiny": (10, 50), "small": (10, 100, 1_000, 5_000), "full": (10, 50, 100, 500, 1_000, 5_000)},
)
FIGURE_18 = evaluation(
    "Figure 18",
    "throughput by selectivity",
    "selectivity",
    (
        between(
            "overlap 50 %: SE passes IE at about 70 %",
            50,
            90,
            lambda rows: crossing(rows, "IE", 50),
            "SE is ahead from % on",
        ),
        between(
            "overlap 50 %: SE passes IE+SC at about 90 %",
            75,
            100,
            lambda rows: crossing(rows, "IE+SC", 50),
            "SE is ahead from % on (101: never)",
        ),
        between(
            "overlap 40 %: IE+SC is always ahead",
            1,
            math.inf,
            lambda rows: ratio(rows, "IE+SC", "SE", lambda row: row["overlap"] == 40, min),
            "IE+SC / SE, least",
        ),
    ),
    {
        "tiny": (0.01, 0.75),
        "small": (0.01, 0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        "full": (0.01, *(i / 20 for i in range(1, 21))),
    },
    panel="overlap",
    overlaps=(0.4, 0.5),
)
TABLE_8 = evaluation(
    "Table 8",
    "throughput by overlap",
    "overlap",
    (
        between(
            "10 %: IE 633 to 690 % of SE",
            3.7,
            math.inf,
            lambda rows: ratio(rows, "IE", "SE", lambda row: row["selectivity"] == 10, min),
            "IE / SE, least",
        ),
        between(
            "10 %: IE+SC 1,015 to 1,215 % of SE",
            5.6,
            math.inf,
            lambda rows: ratio(rows, "IE+SC", "SE", lambda row: row["selectivity"] == 10, min),
            "IE+SC / SE, least",
        ),
        between(
            "75 %: IE 74 to 89 % of SE",
            0,
            1,
            lambda rows: ratio(rows, "IE", "SE", lambda row: row["selectivity"] == 75, max),
            "IE / SE, greatest",
        ),
        between(
            "75 %: IE+SC 156 to 185 % of SE",
            1.28,
            math.inf,
            lambda rows: ratio(rows, "IE+SC", "SE", lambda row: row["selectivity"] == 75, min),
            "IE+SC / SE, least",
        ),
    ),
    {"tiny": (0.0, 0.5), "small": (0.0, 0.15, 0.25, 0.3, 0.5), "full": (0.0, 0.15, 0.25, 0.3, 0.5)},
    panel="selectivity",
    selectivities=(0.1, 0.75),
)
