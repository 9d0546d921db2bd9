"""Systems that match batches of codes, timed in turn on the same rules; what is told of each in a table."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from benchmarks.report import interleaved, median, short

AUTO, WITNESS, COMPILED = "auto", "witness", "witness.c"
BATCH_ROWS = 1 << 16
"""Rows that are matched at once, as `CompiledRules` does."""
LEAST_ROWS = 1 << 12
"""Rows that are compared before any time, and from which the witnesses estimate selectivities."""

Matcher = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Codes [attributes, rows] int32 -> offsets [rows + 1] int64, rule ordinals [hits] int32."""
Task = Callable[[int, int], float]
"""How many of the first rows, how many passes over them -> CPU seconds."""


@dataclass
class Measured:
    """One system on one rule set.

    engine: which it is, for `auto`; reason: why it was left out, or why `auto` chose; build_seconds: until it had
    matched a first row; nbytes: of its arrays; rows: of a pass; passes: of a run; speeds: rows per CPU second of each
    run.
    """

    name: str
    engine: str
    reason: str = ""
    build_seconds: float = math.nan
    nbytes: int = 0
    rows: int = 0
    passes: int = 1
    speeds: list[float] = field(default_factory=list)

    @property
    def speed(self) -> float:
        """The median, not a number where the system was left out."""
        return median(self.speeds) if self.speeds else math.nan

    @property
    def told(self) -> str:
        """The speed, or why there is none."""
        return short(self.speed) if self.speeds else self.reason

    @property
    def size(self) -> str:
        """Build time and bytes."""
        known = not math.isnan(self.build_seconds)
        return f"{self.build_seconds:.2f} s, {self.nbytes / 1e6:.1f} MB" if known else "-"


def batches(codes: np.ndarray, rows: int) -> list[np.ndarray]:
    """The first rows of a code matrix, `BATCH_ROWS` at a time."""
    starts = range(0, rows, BATCH_ROWS)
    return [np.ascontiguousarray(codes[:, start : min(start + BATCH_ROWS, rows)]) for start in starts]


def match_seconds(match: Matcher, codes: np.ndarray, rows: int, passes: int) -> float:
    """CPU seconds for matching the first rows so many times."""
    parts = batches(codes, rows)
    started = time.process_time()
    for _ in range(passes):
        for part in parts:
            match(part)
    return time.process_time() - started


def fit_rows(measured: Measured, task: Task, seconds: float, most: int) -> None:
    """As many of the first rows as the system matches in the time; where that is all of them, more than once."""
    measured.rows = min(LEAST_ROWS, most)
    while (taken := task(measured.rows, 1)) < seconds / 2 and measured.rows < most:
        measured.rows = min(2 * measured.rows, most)
    measured.passes = max(1, round(seconds / max(taken, 1e-9)))


def time_in_turn(measured: dict[str, Measured], tasks: Mapping[str, Task], repeat: int) -> None:
    """Sets the speeds; those of `auto` are the engine's that it chose, where that has a task and `auto` has none."""
    runs = {name: partial(_speed, measured[name], task) for name, task in tasks.items()}
    for name, speeds in interleaved(repeat, runs).items():
        measured[name].speeds = speeds
    if AUTO in measured and AUTO not in tasks:
        chosen = measured[measured[AUTO].engine]
        measured[AUTO] = replace(measured[AUTO], rows=chosen.rows, passes=chosen.passes, speeds=chosen.speeds)


def _speed(measured: Measured, task: Task) -> float:
    return measured.rows * measured.passes / task(measured.rows, measured.passes)


def is_witness(name: str) -> bool:
    """Whether a system is one of those that the engines are compared with."""
    return name in (WITNESS, COMPILED)


SPEED_HEADER = ("auto is", "best / witness", "auto / best", "auto / asc")


def speed_cells(measured: Mapping[str, Measured], systems: Sequence[str]) -> list[str]:
    """Speeds of all systems, then what `SPEED_HEADER` names: the best engine over the best witness, and so on."""
    speeds = {name: measured[name].speed if name in measured else math.nan for name in (*systems, AUTO, "asc")}
    best = _best(speed for name, speed in speeds.items() if not is_witness(name))
    witness = _best(speed for name, speed in speeds.items() if is_witness(name))
    ratios = (best / witness, speeds[AUTO] / best, speeds[AUTO] / speeds["asc"])
    return [
        *(measured[name].told if name in measured else "-" for name in systems),
        measured[AUTO].engine if AUTO in measured else "-",
        *("-" if math.isnan(ratio) else f"{ratio:.2f}" for ratio in ratios),
    ]


def _best(speeds: Iterable[float]) -> float:
    return max((speed for speed in speeds if not math.isnan(speed)), default=math.nan)
