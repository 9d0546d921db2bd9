"""The batch kernels of all engines beside each other and beside the witnesses, from region codes to rule ordinals.

    python -m benchmarks.engines [--kinds ranges accounts] [--rules 1000 100000] [--matches 0.1 1 100]
        [--engines asc be_tree auto] [--repeat 7] [--seconds 0.5] [--plots FOLDER] [--json FILE]

A *cell* is a kind of rule set (`kinds.py`), a number of rules and the matches a row that are wanted. Speeds are rows
per second of CPU time on one core, medians of runs in turn. All systems are given the same codes, but for `witness.c`,
which reads values of one byte, row by row. A slow system gets fewer rows; one that would take too long is left out,
and its place in the table says how long. Matches per row and per rule are compared before any time: with brute force
where there are few rules, and with one another.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.baselines.flat import Flat
from benchmarks.baselines.witness import Witness
from benchmarks.kinds import KINDS, RuleSet
from benchmarks.measured import (
    AUTO,
    COMPILED,
    LEAST_ROWS,
    SPEED_HEADER,
    WITNESS,
    Matcher,
    Measured,
    Task,
    fit_rows,
    is_witness,
    match_seconds,
    speed_cells,
    time_in_turn,
)
from benchmarks.report import machine, print_table, short
from benchmarks.workload import PREDICATES, VALUES
from rules_index.index.build import SAMPLE_ROWS, build
from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.index.registry import ENGINES

SEED = 7
ROWS = 1 << 18
WARM_ROWS = (1 << 20) + LEAST_ROWS
"""Rows after which an engine has also measured the order of its terms anew."""
STARTS = 3
BUILD_SECONDS, MATCH_SECONDS = 60.0, 10.0
"""An engine that would take longer to build, or to match `LEAST_ROWS`, is left out."""
MOST_BRUTE_FORCE = 2_000
"""Rules up to which brute force is the yardstick."""


@dataclass
class Cell:
    """One rule set and all that was measured on it.

    wanted, rate: the matches a row that were asked for, and the nearest that can be had; matches: those of the rows
    that were compared.
    """

    kind: str
    rules: int
    wanted: float
    rate: float
    matches: float = math.nan
    measured: dict[str, Measured] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, str, str]:
        """Kind, rules and matches a row, as the tables tell them."""
        bound = " (most)" if self.rate < self.wanted else " (least)" if self.rate > self.wanted else ""
        return self.kind, f"{self.rules:,}", f"{self.matches:.3g}{bound}"


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS), metavar="KIND")
    parser.add_argument("--rules", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--matches", type=float, nargs="+", default=[0.1, 1, 100], help="a row, where they can be had")
    names = [*ENGINES, Flat.name, AUTO]
    parser.add_argument("--engines", nargs="+", default=names, choices=names, metavar="ENGINE")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one run of one system, about")
    parser.add_argument("--plots", type=Path, help="folder for engines.png")
    parser.add_argument("--json", type=Path, help="file for all figures")
    options = parser.parse_args(arguments)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(f"engines: one core; {machine()}")
    cells: list[Cell] = []
    with tempfile.TemporaryDirectory(prefix="deltatag-bench-") as folder:
        compiled = peers.Witness(Path(folder))
        if compiled.reason:
            print(f"{COMPILED} is left out: {compiled.reason}")
        warm_up(options.engines)
        for cell in planned(options.kinds, options.rules, options.matches):
            print(f"{cell.kind}, {cell.rules:,} rules, {cell.rate:.3g} matches a row", file=sys.stderr, flush=True)
            measure(cell, options.engines, compiled, options.repeat, options.seconds)
            cells.append(cell)
            if options.json:
                options.json.write_text(json.dumps([asdict(each) for each in cells], indent=1))
    systems = [name for name in (*names, WITNESS, COMPILED) if any(name in cell.measured for cell in cells)]
    header = ("kind", "rules", "matches a row", *systems)
    speeds = [(*cell.names, *speed_cells(cell.measured, systems)) for cell in cells]
    title = f"Rows per CPU second, medians of {options.repeat} runs in turn; {machine()}"
    print_table(title, (*header, *SPEED_HEADER), speeds)
    print("most, least: no more or no fewer matches can be had. best / witness: the best engine over the best witness.")
    sizes = [
        (*cell.names, *(cell.measured[name].size if name in cell.measured else "-" for name in systems))
        for cell in cells
    ]
    print_table("CPU seconds to build, and size of the arrays", header, sizes)
    if options.plots:
        plot(options.plots / "engines.png", cells, systems)


def warm_up(engines: Sequence[str]) -> None:
    """Runs everything once, so that what Numba compiles counts for nobody."""
    for kind, rows in (("ranges", WARM_ROWS), ("accounts", LEAST_ROWS), ("thresholds", LEAST_ROWS)):
        conjunctions, codes = KINDS[kind].make(1_000, 1, LEAST_ROWS, SEED).coded()
        for name in {*engines, AUTO}:
            match_seconds(_built(name, conjunctions, codes)[0], codes, LEAST_ROWS, rows // LEAST_ROWS)
        Witness.build(conjunctions, codes).match(codes)


def planned(kinds: Sequence[str], rules: Sequence[int], matches: Sequence[float]) -> Iterator[Cell]:
    """The cells; where several wanted rates come to the same one, only the first."""
    for name in kinds:
        for count in rules:
            rates: dict[float, float] = {}
            for wanted in matches:
                rates.setdefault(KINDS[name].rate(count, wanted), wanted)
            yield from (Cell(name, count, wanted, rate) for rate, wanted in rates.items())


def measure(cell: Cell, engines: Sequence[str], compiled: peers.Witness, repeat: int, seconds: float) -> None:
    """Builds, compares and times all systems of a cell."""
    given = KINDS[cell.kind].make(cell.rules, cell.rate, ROWS, SEED)
    conjunctions, codes = given.coded()
    matchers = _engines(cell, given, engines, conjunctions, codes)
    matchers[WITNESS] = _witness(cell, conjunctions, codes)
    counts = _compare(cell, given, matchers, codes)
    tasks: dict[str, Task] = {name: partial(match_seconds, match, codes) for name, match in matchers.items()}
    if not compiled.reason and _fits(given):
        _write(compiled, given)
        cell.measured[COMPILED] = _check_compiled(compiled, given, counts)
        tasks[COMPILED] = partial(_compiled_seconds, compiled, given)
    for name, task in tasks.items():
        fit_rows(cell.measured[name], task, seconds, ROWS)
    time_in_turn(cell.measured, tasks, repeat)


def _engines(
    cell: Cell, given: RuleSet, engines: Sequence[str], conjunctions: Conjunctions, codes: np.ndarray
) -> dict[str, Matcher]:
    """The engines that are not left out; `auto` under the name of what it chooses, where that is asked for too."""
    matchers: dict[str, Matcher] = {}
    probes = _Probes(given)
    for name in sorted(engines, key=lambda name: name != AUTO):
        if name in matchers:
            continue
        reason = "" if name == AUTO else probes.too_slow(name)
        if reason:
            cell.measured[name] = Measured(name, name, reason)
            continue
        match, measured = _built(name, conjunctions, codes)
        cell.measured[name] = measured
        if name == AUTO and measured.engine in engines:
            cell.measured[measured.engine] = replace(measured, name=measured.engine, reason="")
            matchers[measured.engine] = match
        else:
            matchers[name] = match
    return matchers


def _built(name: str, conjunctions: Conjunctions, codes: np.ndarray) -> tuple[Matcher, Measured]:
    """An engine that has matched a row, which is when all of it is there."""
    started = time.process_time()
    sample = np.ascontiguousarray(codes[:, :: max(1, codes.shape[1] // SAMPLE_ROWS)])
    engine, reason = (Flat.build(conjunctions), "") if name == Flat.name else build(conjunctions, name, sample)
    engine.match(np.ascontiguousarray(codes[:, :1]))
    seconds = time.process_time() - started
    nbytes = sum(array.nbytes for array in engine.arrays.values())
    return engine.match, Measured(name, engine.name, reason if name == AUTO else "", seconds, nbytes)


class _Probes:
    """Builds engines on the first rules, to tell how long all of them would take."""

    def __init__(self, given: RuleSet) -> None:
        self._given = given
        self._coded: dict[int, tuple[Conjunctions, np.ndarray]] = {}

    def too_slow(self, name: str) -> str:
        """Why an engine is left out, or nothing."""
        rules = len(self._given)
        for part in (rules // 100, rules // 10):
            if part < 100:
                continue
            if part not in self._coded:
                self._coded[part] = self._given.only(part, LEAST_ROWS).coded()
            conjunctions, codes = self._coded[part]
            match, measured = _built(name, conjunctions, codes)
            building = measured.build_seconds * rules / part
            if building > BUILD_SECONDS:
                return f"{building:.0f} s to build"
            matching = match_seconds(match, codes, LEAST_ROWS, 1)
            # with ten times the rules it takes hardly less than four times as long
            if matching > MATCH_SECONDS / 4:
                return f"{short(LEAST_ROWS / matching)} with {part:,} rules"
        return ""


def _witness(cell: Cell, conjunctions: Conjunctions, codes: np.ndarray) -> Matcher:
    started = time.process_time()
    witness = Witness.build(conjunctions, codes[:, :LEAST_ROWS])
    seconds = time.process_time() - started
    cell.measured[WITNESS] = Measured(WITNESS, WITNESS, build_seconds=seconds, nbytes=witness.nbytes)
    return witness.match


def _compare(cell: Cell, given: RuleSet, matchers: dict[str, Matcher], codes: np.ndarray) -> np.ndarray:
    """Matches per rule [rules] in the first rows, the same from all systems; ends the program where they are not. Takes
    out the engines that are too slow."""
    part = np.ascontiguousarray(codes[:, :LEAST_ROWS])
    first, match = next(iter(matchers.items()))
    offsets, ordinals = match(part)
    counts = np.bincount(ordinals, minlength=len(given))
    if len(given) <= MOST_BRUTE_FORCE:
        first, counts = "brute force", given.only(len(given), LEAST_ROWS).brute_force()
    for name, match in list(matchers.items()):
        started = time.process_time()
        found, ordinals = match(part)
        seconds = time.process_time() - started
        per_rule = np.bincount(ordinals, minlength=len(given))
        if not np.array_equal(per_rule, counts):
            rule = int(np.flatnonzero(per_rule != counts)[0])
            text = given.texts()[rule]
            sys.exit(f"{name} has {per_rule[rule]} matches for {text}, {first} has {counts[rule]}.")
        if not np.array_equal(found, offsets):
            sys.exit(f"{name} and {next(iter(matchers))} differ in the number of matches of a row.")
        if seconds > MATCH_SECONDS:
            cell.measured[name].reason = short(LEAST_ROWS / seconds)
            del matchers[name]
    cell.matches = float(counts.sum()) / LEAST_ROWS
    return counts


def _fits(given: RuleSet) -> bool:
    """Whether `witness.c` can hold it: so many predicates, and so few values."""
    return given.attributes.shape[1] == PREDICATES and int(max(given.high.max(), given.rows.max())) < VALUES


def _write(compiled: peers.Witness, given: RuleSet) -> None:
    """The files that `witness.c` reads."""
    order = np.argsort(given.high - given.low, axis=1, kind="stable")
    parts = (np.take_along_axis(each, order, 1) for each in (given.attributes, given.low, given.high))
    given.rows.astype(np.uint8).tofile(compiled.folder / "events_cell.u8")
    np.stack(list(parts), axis=2).astype(np.int32).tofile(compiled.folder / f"rules_cell_{len(given)}.i32")


def _run_compiled(compiled: peers.Witness, given: RuleSet, rows: int, passes: int) -> dict[str, Any]:
    """What `witness.c` prints; its speed is that of the best pass."""
    command = [str(each) for each in (compiled.program, compiled.folder, "cell", len(given), rows, passes)]
    answer: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return answer


def _check_compiled(compiled: peers.Witness, given: RuleSet, counts: np.ndarray) -> Measured:
    answer = _run_compiled(compiled, given, LEAST_ROWS, 1)
    if [answer["matches"], answer["checksum"]] != [counts.sum(), (counts * np.arange(1, len(given) + 1)).sum()]:
        sys.exit(f"{COMPILED} found {answer['matches']} matches, the others {counts.sum()}.")
    nbytes = int(answer["index_mb"] * (1 << 20))
    return Measured(COMPILED, COMPILED, build_seconds=answer["build_s"], nbytes=nbytes)


def _compiled_seconds(compiled: peers.Witness, given: RuleSet, rows: int, passes: int) -> float:
    """CPU seconds of so many passes. The program tells the fastest of its passes, all others run them all: of many
    passes it would be told without the host's noise. So it makes two, of which the first finds the caches empty, and
    is started up to `STARTS` times."""
    starts = min(passes, STARTS)
    each = [rows / float(_run_compiled(compiled, given, rows, 2)["ev_s"]) for _ in range(starts)]
    return passes * sum(each) / starts


def plot(path: Path, cells: Sequence[Cell], systems: Sequence[str]) -> None:
    """One panel a kind: the speed of every system in every cell, on a logarithmic scale."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    kinds = list(dict.fromkeys(cell.kind for cell in cells))
    lines = -(-len(kinds) // 2)
    figure, panels = pyplot.subplots(lines, min(2, len(kinds)), figsize=(14, 4 * lines + 1), squeeze=False)
    for axes in panels.flat[len(kinds) :]:
        axes.set_axis_off()
    for axes, kind in zip(panels.flat, kinds, strict=False):
        _draw(axes, [cell for cell in cells if cell.kind == kind], systems)
        axes.set_title(kind)
    figure.supxlabel("rules, and matches a row", fontsize=9)
    handles, names = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, fontsize=8, ncols=len(names), loc="upper center", frameon=False, handlelength=4)
    figure.tight_layout(rect=(0, 0, 1, 0.96))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    print(f"plot: {path}")


def _draw(axes: Any, cells: Sequence[Cell], systems: Sequence[str]) -> None:
    """One panel; a gap in the lines stands between rule sets of different sizes."""
    sizes = list(dict.fromkeys(cell.rules for cell in cells))
    places = [place + sizes.index(cell.rules) for place, cell in enumerate(cells)]
    span = range(places[-1] + 1)
    for number, name in enumerate(systems):
        measured = {place: cell.measured.get(name) for place, cell in zip(places, cells, strict=True)}
        speeds = [each.speed if (each := measured.get(place)) else math.nan for place in span]
        style: dict[str, Any] = {"color": f"C{number}"}
        if is_witness(name):
            style = {"color": "black" if name == WITNESS else "grey", "linestyle": "--"}
        axes.plot(span, speeds, marker="o", markersize=4, label=name, **style)
    axes.set_xticks(places, [f"{short(cell.rules)}\n{short(cell.matches)}" for cell in cells], fontsize=7)
    axes.set_yscale("log")
    axes.set_ylabel("rows per CPU second")
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main()
