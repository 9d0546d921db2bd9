"""The experiments of Wu, Chen and Yu: CEI, LCI and UI beside interval skip lists (figures 14 to 19).

    python -m benchmarks.papers.cei [--size small] [--to build/papers] [--only "Figure 17"]

Intervals start uniformly in 1..r-1 and are 1..W wide, clamped at r (ours). Values are real and uniform in [1, r), and
the ids of the intervals that hold them are written out. Storage is 4 N + 8 n mu bytes, as in the paper's section 4,
with mu as measured.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.baselines.is_list import IsList
from benchmarks.papers.command import main
from benchmarks.papers.experiment import Claim, DifferentAnswersError, Experiment, Paper, Progress, Row, in_turn
from benchmarks.papers.judging import below, between, growth
from benchmarks.papers.systems.cei.formulas import constructs, mu_bounds, storage_bytes
from benchmarks.papers.systems.cei.interval_index import IntervalIndex
from rules_index.engines.cei.constructs import Kind

SEED = 7
KINDS: Mapping[str, Kind] = {"UI": "ui", "LCI": "lci", "CEI": "cei"}
SYSTEMS = (*KINDS, "IS-lists")
STORE = tuple(f"{name} MB" for name in KINDS)
LARGE, SMALL = 1_048_576, 65_536
L = 16


def intervals(n: int, r: int, W: int) -> tuple[np.ndarray, np.ndarray]:  # noqa: N803
    """[a, b) [n] int64."""
    draw = np.random.default_rng([SEED, n, r, W])
    a = draw.integers(1, r, n)
    return a, np.minimum(a + draw.integers(1, W + 1, n), r)


def point(
    progress: Progress,
    n: int,
    r: int,
    W: int,  # noqa: N803
    length: int,
    systems: Sequence[str],
    searches: int,
    repeat: int,
) -> Row:
    """Microseconds a search, and megabytes, of each system on one set of intervals."""
    a, b = intervals(n, r, W)
    x = np.random.default_rng(SEED).uniform(1, r, searches)
    built: dict[str, Any] = {}
    for name in systems:
        built[name] = IsList(a, b) if name == "IS-lists" else IntervalIndex.build(r, a, b, None, length, KINDS[name])
    require_equal(built, x)
    seconds = in_turn({name: (lambda index=index: index.search_many(x)) for name, index in built.items()}, repeat)
    row: Row = {"n": n, "r": r, "W": W, "L": length} | {name: 1e6 * each / searches for name, each in seconds.items()}
    for name, index in built.items():
        if name == "IS-lists":
            row["IS-lists MB"] = index.nbytes / 1e6
        else:
            kind = KINDS[name]
            row[f"{name} MB"] = storage_bytes(constructs(kind, r, length), n, index.pieces / n) / 1e6
    progress(f"n {n:,}, W {W}, L {length}")
    return row


def require_equal(built: Mapping[str, Any], x: np.ndarray) -> None:
    """All indexes give the same intervals for every value."""
    expected = None
    for name, index in built.items():
        offsets, keys = index.search_many(x)
        order = np.lexsort((keys, np.repeat(np.arange(len(x)), np.diff(offsets))))
        found = (offsets.tobytes(), keys[order].tobytes())
        if expected is not None and found != expected:
            raise DifferentAnswersError(f"{name} finds other intervals")
        expected = found


def pieces(progress: Progress, n: int, r: int, W: int, lengths: Sequence[int]) -> list[Row]:  # noqa: N803
    """Figure 14: the mean pieces of an interval, and the bounds of Table 2."""
    a, b = intervals(n, r, W)
    rows = []
    for length in lengths:
        row: Row = {"L": length}
        for name, kind in KINDS.items():
            offsets, _ = IntervalIndex(r, length, kind).decompose(a, b)
            low, high = mu_bounds(kind, length, W)
            row |= {name: float(offsets[-1]) / n, f"{name} from": low, f"{name} to": high}
        progress(f"L {length}")
        rows.append(row)
    return rows


def by_length(progress: Progress, r: int, n: int, W: int, lengths: Sequence[int], **rest: Any) -> list[Row]:  # noqa: N803
    """Figures 15 and 16."""
    return [point(progress, n, r, W, length, list(KINDS), **rest) for length in lengths]


def by_width(progress: Progress, r: int, n: int, widths: Sequence[int], **rest: Any) -> list[Row]:
    """Figure 17."""
    return [point(progress, n, r, width, L, SYSTEMS, **rest) for width in widths]


def by_number(progress: Progress, r: int, W: int, numbers: Sequence[int], **rest: Any) -> list[Row]:  # noqa: N803
    """Figures 18 and 19."""
    return [point(progress, n, r, W, L, SYSTEMS, **rest) for n in numbers]


def within(name: str) -> Claim:
    """Measured pieces lie between the bounds of Table 2, up to a hundredth for the sample."""

    def judge(rows: Sequence[Row]) -> tuple[bool, str]:
        off = [max(row[f"{name} from"] / row[name], row[name] / row[f"{name} to"]) for row in rows]
        return max(off) <= 1.01, f"{name} at most {max(0.0, max(off) - 1):.2%} outside"

    return Claim(
        f"measured pieces of {name} lie between Table 2's bounds", "within 1 % of the bounds on every L", judge
    )


def stores(paper: str, one: str, other: str, criterion: str, where: Any = None) -> Claim:
    """One system stores less than another on the rows."""
    claim = below(paper, f"{one} MB", [f"{other} MB"], where)
    return Claim(paper, criterion, claim.judge)


def _store_told(rows: Sequence[Row]) -> str:
    lci, cei = (max(row[f"{name} MB"] for row in rows) for name in ("LCI", "CEI"))
    return f"UI {rows[-1]['UI MB']:.0f} MB; LCI at most {lci:.0f}, CEI {cei:.0f}"


def _slowest_told(rows: Sequence[Row]) -> str:
    least = min(row["IS-lists"] / max(row[name] for name in KINDS) for row in rows)
    return f"IS-lists over the slowest other {least:.2f} x at least"


def _lists_told(rows: Sequence[Row]) -> str:
    first, last = (row["IS-lists MB"] / row["CEI MB"] for row in (rows[0], rows[-1]))
    return f"IS-lists / CEI {first:.2f} at the smallest n, {last:.2f} at the largest"


def _lengths(number: int, r: int) -> Experiment:
    size = "large" if r == LARGE else "small"
    sizes = {
        "tiny": {"r": 4096, "n": 500, "W": 50, "lengths": (4, 16), "searches": 500, "repeat": 1},
        "small": {"r": r, "n": 100_000, "W": 200, "lengths": (4, 8, 16, 32, 64, 128), "searches": 50_000, "repeat": 3},
        "full": {
            "r": r,
            "n": 100_000,
            "W": 200,
            "lengths": (2, 4, 8, 16, 32, 64, 128, 256),
            "searches": 50_000,
            "repeat": 7,
        },
    }
    claims = (
        Claim(
            "UI stores most", "UI's store is above both others' from L = 8 on",
            lambda rows: (
                all(row["UI MB"] > max(row["LCI MB"], row["CEI MB"]) for row in rows if row["L"] >= 8),
                _store_told(rows),
            ),
        ),
        below("UI searches fastest", "UI", ["CEI", "LCI"], least=1 / 1.1),
        between(
            "LCI's search grows much faster with L than CEI's", 2, math.inf,
            lambda rows: growth(rows, "LCI") / growth(rows, "CEI"), "growth of LCI over growth of CEI",
        ),
        below("CEI searches faster than LCI in all cases", "CEI", ["LCI"]),
        stores("CEI stores less than LCI in all cases", "CEI", "LCI", "CEI's store below LCI's on every L"),
    )  # fmt: skip
    note = "" if r == LARGE else "At this r the paper's own formulae give CEI a larger store than LCI at most lengths."
    return Experiment(
        f"Figure {number}", f"store and search time by segment length, {size} r", "L", tuple(KINDS), "µs a search",
        by_length, sizes, claims, own="CEI", extra=STORE, note=note,
    )  # fmt: skip


def _numbers(number: int, r: int) -> Experiment:
    size = "large" if r == LARGE else "small"
    sizes = {
        "tiny": {"r": 4096, "W": 50, "numbers": (100, 1000), "searches": 500, "repeat": 1},
        "small": {"r": r, "W": 200, "numbers": (5_000, 20_000, 80_000, 160_000), "searches": 50_000, "repeat": 3},
        "full": {"r": r, "W": 200, "numbers": tuple(5_000 * 2**i for i in range(8)), "searches": 50_000, "repeat": 7},
    }
    claims = (
        below("CEI searches faster than LCI and IS-lists", "CEI", ["LCI", "IS-lists"]),
        between(
            "CEI's search is very close to UI's",
            -math.inf,
            1.5,
            lambda rows: max(row["CEI"] / row["UI"] for row in rows),
            "CEI / UI at most",
        ),
        Claim(
            "IS-lists search slowest",
            "IS-lists above the three others on every n",
            lambda rows: (
                all(row["IS-lists"] > max(row[name] for name in KINDS) for row in rows),
                _slowest_told(rows),
            ),
        ),
        Claim(
            "IS-lists store less than CEI only at large r and small n",
            "IS-lists below CEI at the smallest n and not at the largest" if r == LARGE else "IS-lists never below CEI",
            lambda rows: (
                (rows[0]["IS-lists MB"] < rows[0]["CEI MB"] and rows[-1]["IS-lists MB"] > rows[-1]["CEI MB"])
                if r == LARGE
                else all(row["IS-lists MB"] > row["CEI MB"] for row in rows),
                _lists_told(rows),
            ),
        ),
    )
    return Experiment(
        f"Figure {number}",
        f"store and search time by number of intervals, {size} r",
        "n",
        SYSTEMS,
        "µs a search",
        by_number,
        sizes,
        claims,
        own="CEI",
        extra=(*STORE, "IS-lists MB"),
    )


FIGURE_14 = Experiment(
    "Figure 14", "pieces of an interval by segment length", "L", tuple(KINDS), "pieces an interval", pieces,
    {
        "tiny": {"n": 2_000, "r": 4096, "W": 50, "lengths": (4, 8)},
        "small": {"n": 100_000, "r": LARGE, "W": 200, "lengths": (4, 8, 16, 32, 64, 128)},
        "full": {"n": 100_000, "r": LARGE, "W": 200, "lengths": (2, 4, 8, 16, 32, 64, 128)},
    },
    (
        within("CEI"), within("LCI"),
        Claim(
            "LCI has fewest pieces, then CEI, UI most", "LCI < CEI < UI on every L",
            lambda rows: (
                all(row["LCI"] < row["CEI"] < row["UI"] for row in rows),
                f"at L {rows[-1]['L']}: {rows[-1]['LCI']:.2f}, {rows[-1]['CEI']:.2f}, {rows[-1]['UI']:.1f}",
            ),
        ),
    ),
    best="nothing", extra=("CEI from", "CEI to", "LCI from", "LCI to"),
)  # fmt: skip

FIGURE_17 = Experiment(
    "Figure 17", "store and search time by greatest width", "W", SYSTEMS, "µs a search", by_width,
    {
        "tiny": {"r": 4096, "n": 500, "widths": (10, 80), "searches": 500, "repeat": 1},
        "small": {"r": SMALL, "n": 50_000, "widths": (10, 40, 160, 320), "searches": 50_000, "repeat": 5},
        "full": {"r": SMALL, "n": 50_000, "widths": (10, 20, 40, 80, 160, 240, 320), "searches": 50_000, "repeat": 7},
    },
    (
        below("UI, LCI and CEI all search faster than IS-lists", "CEI", ["IS-lists"]),
        below("(UI)", "UI", ["IS-lists"]),
        below("(LCI)", "LCI", ["IS-lists"]),
        between(
            "CEI takes about 1/20 of IS-lists' time at W = 10", 10, math.inf,
            lambda rows: rows[0]["IS-lists"] / rows[0]["CEI"], "IS-lists / CEI at the smallest W",
        ),
        stores("IS-lists store more than CEI and LCI", "CEI", "IS-lists", "CEI's store below IS-lists' on every W"),
        stores("(LCI)", "LCI", "IS-lists", "LCI's store below IS-lists' on every W"),
        stores(
            "IS-lists store less than UI where W is large", "IS-lists", "UI", "IS-lists' store below UI's at W = 320",
            lambda row: row["W"] == 320,
        ),
    ),
    own="CEI", extra=(*STORE, "IS-lists MB"),
)  # fmt: skip

PAPER = Paper(
    "cei", "Containment-encoded intervals (Wu, Chen, Yu)",
    (FIGURE_14, _lengths(15, LARGE), _lengths(16, SMALL), FIGURE_17, _numbers(18, LARGE), _numbers(19, SMALL)),
    shown=("Figure 17",),
    note="Times are CPU time of compiled kernels, medians of several turns. All four systems are written in the"
    " same way.",
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(PAPER))
