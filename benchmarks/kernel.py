"""The matching kernel on one core beside Polars, DuckDB and a compiled program, on the same rules in the same run.

    python -m benchmarks.kernel [--rules 1000 10000] [--accounts 100000] [--repeat 5] [--seconds 2] [--plots FOLDER]

20 integer columns, five predicates a rule. A system that is slow on a rule set gets fewer rows, so that a run takes
about `--seconds`. Speeds are per second of CPU time, which other work on the machine hardly changes. Matches per rule
are compared with brute force, or with one another, before any time.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

import rules_index as ri
from benchmarks import peers, workload
from benchmarks.peers import Answer, Witness
from benchmarks.report import interleaved, machine, median, plot_bars, print_table, short
from benchmarks.workload import Workload

POLARS, POLARS_LISTS = "Polars, counts only", "Polars, lists"
DUCKDB, DUCKDB_LISTS = "DuckDB, counts only", "DuckDB, lists"
COUNTS = (POLARS, DUCKDB)
"""Yardsticks that only count the matches of each rule."""
LISTS = (POLARS_LISTS, DUCKDB_LISTS)
"""Yardsticks that give the rule ids of each row, as deltatag does."""

ROWS = 1 << 18
LEAST_ROWS = 1 << 12  # witness.c looks at so many before it builds
MOST_BRUTE_FORCE = 2_000
"""Rules up to which brute force is the yardstick; above, the systems are compared with one another."""
BATCH_ROWS = 1 << 16
PLANNED_ROWS = {POLARS: 1 << 16, POLARS_LISTS: 1 << 16, DUCKDB: 1 << 14}
"""Rows that these get however slow they are: with fewer, planning thousands of conditions is most of what they do."""

Run = Callable[[Workload], Answer]


@dataclass
class Measured:
    """One system on one rule set: rows of a run, and rows per CPU second of each run."""

    rows: int
    speeds: list[float] = field(default_factory=list)


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rules", type=int, nargs="*", default=[1_000, 10_000])
    parser.add_argument("--accounts", type=int, nargs="*", default=[100_000], help="rules that name an account each")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one run of one system, about")
    parser.add_argument("--plots", type=Path, help="folder for kernel.png")
    options = parser.parse_args(arguments)
    _use_one_core()
    if pl.thread_pool_size() > 1:
        sys.exit("Polars has counted the cores already: set POLARS_MAX_THREADS=1.")
    print(f"kernel: one core, {workload.COLUMNS} integer columns, {workload.PREDICATES} predicates a rule; {machine()}")
    plotted: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="deltatag-bench-") as folder:
        witness = Witness(Path(folder))
        if witness.reason:
            print(f"witness.c is left out: {witness.reason}")
        cases = [(workload.ranges, count) for count in options.rules]
        for make, count in [*cases, *((workload.accounts, count) for count in options.accounts)]:
            given = make(count, ROWS)
            title = f"{count:,} rules, {given.name}"
            plotted[title] = _case(title, given, witness, options.repeat, options.seconds)
    if options.plots and plotted:
        systems = list(dict.fromkeys(name for speeds in plotted.values() for name in speeds))
        series = {name: [speeds.get(name, float("nan")) for speeds in plotted.values()] for name in systems}
        title, groups = "Rows per CPU second on one core", [name.replace(", ", ",\n", 1) for name in plotted]
        plot_bars(options.plots / "kernel.png", title, "rows per CPU second", groups, series, log=True)


def _use_one_core() -> None:
    """Everything on the last of this process's cores."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)


def _case(title: str, given: Workload, witness: Witness, repeat: int, seconds: float) -> dict[str, float]:
    """Compares, measures and prints one rule set; rows per CPU second by system."""
    started = time.perf_counter()
    compiled = ri.compile_rules(list(enumerate(given.texts())), given.table().schema)
    compiling = time.perf_counter() - started
    if compiled.rejects.num_rows:
        sys.exit(f"The rules did not compile: {compiled.rejects.to_pylist()[:3]}")
    systems: dict[str, Run] = {
        "deltatag match": lambda part: _match(compiled, part),
        "deltatag, from codes": lambda part: _match_codes(compiled, part),
    }
    if given.name == "accounts":
        systems |= {POLARS_LISTS: peers.polars_join_lists, POLARS: peers.polars_join}
        systems |= {DUCKDB_LISTS: peers.duckdb_join_lists, DUCKDB: peers.duckdb_join}
    else:
        systems |= {POLARS_LISTS: peers.polars_lists, POLARS: peers.polars_expressions}
        systems[DUCKDB] = peers.duckdb_expressions
        if not witness.reason:
            systems["witness.c"] = lambda part: _witness(witness, part)
    counts = _compare(given, systems)
    least = {name: PLANNED_ROWS.get(name, LEAST_ROWS) for name in systems}
    measured = {name: Measured(_rows_for(run, given, least[name], seconds)) for name, run in systems.items()}
    tasks = {name: partial(_speed, run, given.first(measured[name].rows)) for name, run in systems.items()}
    for name, speeds in interleaved(repeat, tasks).items():
        measured[name].speeds = speeds
    figures = {name: median(each.speeds) for name, each in measured.items()}
    peer_lists = max((speed for name, speed in figures.items() if name in LISTS), default=float("nan"))
    peer_counts = max(speed for name, speed in figures.items() if name in COUNTS)
    rows = []
    for name, each in measured.items():
        ratios = (f"{figures[name] / peer:.1f}" if peer == peer else "-" for peer in (peer_lists, peer_counts))
        rows.append((name, f"{each.rows:,}", short(figures[name]), short(max(each.speeds)), *ratios))
    header = (
        "system",
        "rows a run",
        "rows/CPU s (median)",
        "rows/CPU s (best)",
        "times the best lists",
        "times the best counts",
    )
    per_row = counts.sum() / LEAST_ROWS
    about = f"{title}: {per_row:.2f} matches a row, counts equal; compiled in {compiling:.1f} s; {machine()}"
    print_table(about, header, rows)
    if given.name == "accounts":
        print(
            "Polars and DuckDB join a table of the rules on the account: quick, where every rule names just one value."
        )
    return figures


def _match(compiled: ri.CompiledRules, given: Workload) -> Answer:
    """From an Arrow table to a list of ids a row: all that a user's call does."""
    table = given.table()
    counts = np.zeros(len(given), np.int64)
    seconds = 0.0
    for start in range(0, table.num_rows, BATCH_ROWS):
        batch = table.slice(start, BATCH_ROWS)
        started = time.process_time()
        matched = compiled.match(batch)
        seconds += time.process_time() - started
        counts += np.bincount(matched.flatten().to_numpy(), minlength=len(given))
    return counts, seconds


def _match_codes(compiled: ri.CompiledRules, given: Workload) -> Answer:
    """The kernel alone: from region codes to offsets and rule ordinals."""
    table = given.table()
    counts = np.zeros(len(given), np.int64)
    seconds = 0.0
    for start in range(0, table.num_rows, BATCH_ROWS):
        codes, _ = compiled.codes(table.slice(start, BATCH_ROWS))
        started = time.process_time()
        _, ordinals = compiled.index.match(codes)
        seconds += time.process_time() - started
        counts += np.bincount(ordinals, minlength=len(given))
    return counts, seconds


def _witness(witness: Witness, given: Workload) -> Answer:
    """Only sums come back: they are compared here, with deltatag's own counts in `_compare`."""
    matches, checksum, seconds = witness.run(given)
    return np.array([matches, checksum]), seconds


def _compare(given: Workload, systems: dict[str, Run]) -> np.ndarray:
    """Matches per rule in the first rows, the same from all systems; ends the program where they are not."""
    part = given.first(LEAST_ROWS)
    answers: dict[str, Any] = {name: run(part)[0] for name, run in systems.items()}
    sums = answers.pop("witness.c", None)
    if len(given) <= MOST_BRUTE_FORCE:
        answers = {"brute force": workload.brute_force(part), **answers}
    yardstick, counts = next(iter(answers.items()))
    for name, answer in answers.items():
        if not np.array_equal(answer, counts):
            rule = int(np.flatnonzero(answer != counts)[0])
            text = given.texts(slice(rule, rule + 1))[0]
            sys.exit(f"{name} has {answer[rule]} matches for {text}, {yardstick} has {counts[rule]}.")
    if sums is not None and sums.tolist() != [counts.sum(), (counts * np.arange(1, len(given) + 1)).sum()]:
        sys.exit(f"witness.c found {sums[0]} matches, {yardstick} {counts.sum()}.")
    return counts


def _rows_for(run: Run, given: Workload, least: int, seconds: float) -> int:
    """As many of the first rows, a power of two, as the system matches in the time; planning counts against it."""
    rows = least
    while rows < len(given.rows) and run(given.first(rows))[1] < seconds / 2:
        rows *= 2
    return min(rows, len(given.rows))


def _speed(run: Run, part: Workload) -> float:
    """Rows per CPU second of one run."""
    return len(part.rows) / run(part)[1]


if __name__ == "__main__":
    main()
