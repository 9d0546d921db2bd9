"""The experiments of Kuntschke and Kemper on disjunctive predicates (figures 9 to 18, tables 7 and 8).

    python -m benchmarks.papers.disjunctive [--size small] [--to build/papers] [--only "Figure 18"]

Matching is measured in microseconds a pair of predicates, evaluation in rows a millisecond, both of CPU time.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.papers import disjunctive_runs as runs
from benchmarks.papers.command import main
from benchmarks.papers.experiment import Claim, Experiment, Paper, Progress, Row
from benchmarks.papers.judging import below, between, growth

BREADTH = ("HSR+QC", "HCR+QC", "BFS", "BFS+I")
DEPTH = ("HSR+QC", "HCR+QC", "BFS", "BFS+I", "DFS", "DFS+I", "MIX", "MIX+I")
EVALUATION = ("SE", "IE", "IE+SC")
COMPARED = ("held %", *(f"{name} compared" for name in EVALUATION))


def finite(rows: Sequence[Row]) -> list[Row]:
    """Rows whose dimensions are all finite."""
    return [row for row in rows if row["dimensions are"] == "finite"]


def gain(rows: Sequence[Row], kind: str = "finite") -> float:
    """The largest BFS / BFS+I."""
    return max(row["BFS"] / row["BFS+I"] for row in rows if row["dimensions are"] == kind)


def matching(name: str, title: str, parameter: str, values: Sequence[int], names: Sequence[str], split: str) -> Experiment:
    """A figure that varies one parameter of the matching set-up."""

    def measure(progress: Progress, **given: Any) -> list[Row]:
        return runs.matching(progress, parameter, names=names, split=split, **given)

    few = [value for value in values if value <= (6 if parameter == "dimensions" else 25)]
    depth = "DFS" in names
    return Experiment(
        name, title, parameter, tuple(names), "µs a pair", measure,
        {
            "tiny": {"values": tuple(values[:2]), "repeat": 1, "queries": 3, "streams": 2, "both": not depth},
            "small": {"values": tuple(few), "repeat": 3, "queries": 10, "streams": 4, "both": not depth},
            "full": {"values": tuple(values), "repeat": 5, "queries": 60, "streams": 20, "both": not depth},
        },
        (_depth_claims if depth else _breadth_claims)(parameter), panel="dimensions are",
        note=("R*-tree. " if split == "r_star" else "R-tree, quadratic split. ")
        + "+I: with the index. " + ("" if depth else "HSR and HCR do without an index."),
    )  # fmt: skip


def _breadth_claims(parameter: str) -> tuple[Claim, ...]:
    return (
        between(
            "exact matching by BFS grows much faster than the heuristics", 5, math.inf,
            lambda rows: growth(finite(rows), "BFS") / growth(finite(rows), "HCR+QC"), "growth of BFS over growth of HCR+QC",
        ),
        between("the index gains about two orders of magnitude", 50, math.inf, gain, "BFS / BFS+I, at most"),
        between(
            "with the index BFS comes near HCR", 0, 10,
            lambda rows: max(row["BFS+I"] / row["HCR+QC"] for row in finite(rows)), "BFS+I / HCR+QC, at most",
        ),
        between(
            "with unbounded dimensions the gain is about an order less", 0, 0.5,
            lambda rows: gain(rows, "some unbounded") / gain(rows), "gain with unbounded dimensions over the gain without",
        ),
    )  # fmt: skip


def _depth_claims(parameter: str) -> tuple[Claim, ...]:
    return (
        below("DFS is far ahead of BFS", "DFS", ["BFS"], least=5, where=lambda row: row.get(parameter, 0) >= _large(parameter)),
        below("DFS is ahead of BFS with an index", "DFS", ["BFS+I"]),
        between("MIX takes as long as DFS", 0.67, 1.5, lambda rows: _mean(rows, "MIX", "DFS"), "MIX / DFS, mean"),
        between("an index does not help DFS", 1, math.inf, lambda rows: _mean(rows, "DFS+I", "DFS"), "DFS+I / DFS, mean"),
        between("nor MIX", 1, math.inf, lambda rows: _mean(rows, "MIX+I", "MIX"), "MIX+I / MIX, mean"),
    )


def _large(parameter: str) -> int:
    """From where on DFS has to be far ahead: where there is much to do."""
    return {"dimensions": 5, "query_boxes": 1, "stream_boxes": 20}[parameter]


def _mean(rows: Sequence[Row], one: str, other: str) -> float:
    return sum(row[one] / row[other] for row in rows) / len(rows)


VARIED = {
    "dimensions": ("time by dimensions", (2, 4, 5, 6, 7)),
    "query_boxes": ("time by subpredicates of a query", (1, 2, 4, 8)),
    "stream_boxes": ("time by subpredicates of a stream predicate", (5, 10, 20, 25, 30, 50)),
}
MATCHING = tuple(
    matching(f"Figure {first + place}", title, parameter, values, names, split)
    for first, names, split in ((9, BREADTH, "quadratic"), (12, DEPTH, "r_star"))
    for place, (parameter, (title, values)) in enumerate(VARIED.items())
)
FIGURE_15 = Experiment(
    "Figure 15", "large stream predicates", "stream_boxes", ("HSR+QC", "HCR+QC", "DFS", "DFS+I", "MIX", "MIX+I"), "µs a pair",
    lambda progress, **given: runs.large(progress, names=("HSR+QC", "HCR+QC", "DFS", "DFS+I", "MIX", "MIX+I"), **given),
    {
        "tiny": {"values": (5, 10), "repeat": 1, "queries": 3, "streams": 2, "parts": 10_000},
        "small": {"values": (20, 50, 200, 500), "repeat": 3, "queries": 6, "streams": 2, "parts": 300_000},
        "full": {"values": (20, 30, 50, 100, 200, 350, 500), "repeat": 5, "queries": 60, "streams": 20, "parts": 10_000_000},
    },
    (
        between("BFS lacks memory beyond 30", 1, math.inf,
                lambda rows: max(row["BFS undecided of 4"] for row in rows if row["stream_boxes"] > 30), "pairs beyond the parts"),
        between("DFS is like HCR up to 50", 0, 3,
                lambda rows: max(row["DFS"] / row["HCR+QC"] for row in rows if row["stream_boxes"] <= 50), "DFS / HCR+QC, at most"),
        between("at 500 HCR is 3 x faster", 2, math.inf,
                lambda rows: max(row["DFS"] / row["HCR+QC"] for row in rows if row["stream_boxes"] == 500), "DFS / HCR+QC at 500"),
    ),
    extra=("BFS undecided of 4",),
    note="BFS may hold as many parts as the parameter says; beyond them it leaves a pair undecided, where the paper's ran out of "
    "memory.",
)  # fmt: skip


def _same(rows: Sequence[Row]) -> tuple[bool, str]:
    off = 0.0
    for row in rows:
        exact = next(each for each in rows if each["seed"] == row["seed"] and each["method"] == "EM")
        if row["method"].startswith("HSR"):
            off = max(off, *(abs(row[label] - exact[label]) for label in ("p_A", "p_B", "p_C", "p_D")))
    return off < 1e-9, f"they differ by {off:.4f} points at most"


def _excess(rows: Sequence[Row]) -> tuple[bool, str]:
    found = [
        row["p_D"] - next(each for each in rows if each["seed"] == row["seed"] and each["method"] == "EM")["p_D"]
        for row in rows if row["method"] == "HCR"
    ]  # fmt: skip
    return max(found) <= 3.5, f"excess of HCR {min(found):.2f} to {max(found):.2f} points"


TABLE_7 = Experiment(
    "Table 7", "selectivity of a stream predicate as it takes in four queries", "method", ("p_A", "p_B", "p_C", "p_D"), "%",
    runs.selectivities,
    {"tiny": {"seeds": 1, "rows": 2_000}, "small": {"seeds": 5, "rows": 200_000}, "full": {"seeds": 10, "rows": 1_000_000}},
    (
        Claim("HSR, HSR+QC and EM: 66.31, 66.37, 66.37, 66.44", "all three the same", _same),
        Claim("HCR: 66.31, 67.93, 69.26, 69.82, never 3.5 points more", "excess of at most 3.5 points on every seed", _excess),
        between("HCR loses no row", 0, math.inf, lambda rows: _least_excess(rows), "HCR less EM, least, points"),
    ),
    panel="seed", best="nothing", log=False,
)  # fmt: skip


def _least_excess(rows: Sequence[Row]) -> float:
    exact = {row["seed"]: row for row in rows if row["method"] == "EM"}
    return min(
        row[label] - exact[row["seed"]][label] for row in rows if row["method"] == "HCR" for label in ("p_A", "p_B", "p_C", "p_D")
    )


SECTION_6_2 = Experiment(
    "Section 6.2", "pairs that each method sees implied", "seed", ("brute force", "EM", "HSR+QC", "HCR", "HSR"), "pairs", runs.implied,
    {
        "tiny": {"seeds": 1, "queries": 4, "streams": 3},
        "small": {"seeds": 3, "queries": 60, "streams": 20},
        "full": {"seeds": 10, "queries": 60, "streams": 20},
    },
    (
        Claim("exact matching finds 933 of 1,200", "EM finds what brute force finds",
              lambda rows: (all(row["EM"] == row["brute force"] for row in rows), f"EM {[row['EM'] for row in rows]}")),
        Claim("the heuristics find 660", "HSR+QC and HCR find fewer than EM, and alike",
              lambda rows: (all(row["HSR+QC"] == row["HCR"] <= row["EM"] for row in rows)
                            and sum(row["HCR"] for row in rows) < sum(row["EM"] for row in rows),
                            f"HCR {[row['HCR'] for row in rows]}")),
        Claim("HSR without quick check finds none", "HSR 0", lambda rows: (all(row["HSR"] == 0 for row in rows), "")),
        Claim("no false report", "none by any method",
              lambda rows: (not any(row[f"{name} false"] for row in rows for name in ("EM", "HSR+QC", "HCR", "HSR")), "")),
    ),
    best="nothing", log=False,
)  # fmt: skip


def evaluation(
    name: str, title: str, varied: str, claims: Sequence[Claim], values: dict[str, Sequence[Any]], panel: str = "", parameter: str = "",
    **fixed: Any,
) -> Experiment:  # fmt: skip
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
    "Figure 17", "throughput by subpredicates", "boxes",
    (
        between("IE is ahead of SE", 1, math.inf, lambda rows: ratio(rows, "IE", "SE", _any, min), "IE / SE, least"),
        between("IE at 5,000 is ahead of SE at 10", 1, math.inf, lambda rows: rows[-1]["IE"] / rows[0]["SE"],
                "IE at most boxes / SE at fewest"),
    ),
    {"tiny": (10, 50), "small": (10, 100, 1_000, 5_000), "full": (10, 50, 100, 500, 1_000, 5_000)},
)  # fmt: skip
FIGURE_18 = evaluation(
    "Figure 18", "throughput by selectivity", "selectivity",
    (
        between("overlap 50 %: SE passes IE at about 70 %", 50, 90, lambda rows: crossing(rows, "IE", 50), "SE is ahead from % on"),
        between("overlap 50 %: SE passes IE+SC at about 90 %", 75, 100, lambda rows: crossing(rows, "IE+SC", 50),
                "SE is ahead from % on (101: never)"),
        between("overlap 40 %: IE+SC is always ahead", 1, math.inf,
                lambda rows: ratio(rows, "IE+SC", "SE", lambda row: row["overlap"] == 40, min), "IE+SC / SE, least"),
    ),
    {"tiny": (0.01, 0.75), "small": (0.01, 0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0), "full": (0.01, *(i / 20 for i in range(1, 21)))},
    panel="overlap", overlaps=(0.4, 0.5),
)  # fmt: skip
TABLE_8 = evaluation(
    "Table 8", "throughput by overlap", "overlap",
    (
        between("10 %: IE 633 to 690 % of SE", 3.7, math.inf,
                lambda rows: ratio(rows, "IE", "SE", lambda row: row["selectivity"] == 10, min), "IE / SE, least"),
        between("10 %: IE+SC 1,015 to 1,215 % of SE", 5.6, math.inf,
                lambda rows: ratio(rows, "IE+SC", "SE", lambda row: row["selectivity"] == 10, min), "IE+SC / SE, least"),
        between("75 %: IE 74 to 89 % of SE", 0, 1,
                lambda rows: ratio(rows, "IE", "SE", lambda row: row["selectivity"] == 75, max), "IE / SE, greatest"),
        between("75 %: IE+SC 156 to 185 % of SE", 1.28, math.inf,
                lambda rows: ratio(rows, "IE+SC", "SE", lambda row: row["selectivity"] == 75, min), "IE+SC / SE, least"),
    ),
    {"tiny": (0.0, 0.5), "small": (0.0, 0.15, 0.25, 0.3, 0.5), "full": (0.0, 0.15, 0.25, 0.3, 0.5)},
    panel="selectivity", selectivities=(0.1, 0.75),
)  # fmt: skip
PAPER = Paper(
    "disjunctive", "Disjunctive predicates (Kuntschke, Kemper)",
    (*MATCHING, FIGURE_15, TABLE_7, SECTION_6_2, FIGURE_16, FIGURE_17, FIGURE_18, TABLE_8),
    shown=("Figure 18",),
    note="Default: matching with 6 dimensions, 2 subpredicates a query and 20 a stream predicate; evaluation with 3 dimensions, "
    "100 subpredicates, selectivity 1 %, overlap 50 %. *Compared* are nodes and boxes looked at for a row.",
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(PAPER))
