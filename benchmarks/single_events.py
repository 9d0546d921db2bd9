"""One event at a time: `match_one` by engine beside published engines, on the same rules and events.

    python -m benchmarks.single_events [--shapes range eq] [--rules 1000 10000 100000] [--engines hybrid be_tree]
        [--events 500] [--repeat 5] [--expressions] [--built FOLDER] [--json FILE]

The rules and events are those of `gen_workload.py` in the folder that DELTATAG_BENCH names (`../shared/bench`): five
predicates over 20 integer columns of 100 values. The drivers of the published engines are beside it, in `peers`; how
each is built says its README, and --built names the folder in which that was done. What is not there is left out, with
the reason.

The number of matches and the sum of the matching ids are compared with brute force before any time is taken. Times are
microseconds of CPU an event, medians of passes, the same events for all; deltatag is called from Python with a dict a
row, the others from their own language with events of their own type, so what it costs to make these is left out.
`first` is the first event after loading, in which an engine opens what it has stored.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import rules_index as ri
from benchmarks.report import machine, median, print_table, short
from rules_index.index.registry import ENGINES

COLUMNS = 20
PEERS = ("be-tree in C", "a-tree", "event-ruler", "hypermatch")
PEER_EVENTS = {1_000: 1_000, 10_000: 300, 100_000: 60}
"""Events that a peer is given: the slowest matches some hundred a second of 10,000 rules."""
SCHEMA = pa.schema([(f"a{i}", pa.int32()) for i in range(COLUMNS)])


@dataclass
class Cell:
    """A rule set, and microseconds by system; `lacking` says why a system has none."""

    shape: str
    rules: int
    matches: float
    micros: dict[str, float] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    lacking: dict[str, str] = field(default_factory=dict)


class Files:
    """The files of `gen_workload.py` for one shape and number of rules."""

    def __init__(self, folder: Path, shape: str, rules: int) -> None:
        self.folder, self.shape, self.rules = folder, shape, rules
        self.events = np.fromfile(folder / f"events_{shape}.u8", np.uint8).reshape(-1, COLUMNS)
        self._counts = np.fromfile(folder / f"ref_{shape}_{rules}.i64", np.int64)
        self._sums = np.fromfile(folder / f"refsum_{shape}_{rules}.u64", np.uint64)

    def texts(self) -> list[tuple[int, str]]:
        """The rules, numbered from 1."""
        lines = (self.folder / f"rules_{self.shape}_{self.rules}.expr").read_text().splitlines()
        return list(enumerate(lines, 1))

    def answer(self, events: int) -> tuple[int, int]:
        """How many matches the first events have, and the sum of their rules' numbers, by brute force."""
        return int(self._counts[:events].sum()), int(self._sums[:events].sum())


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shapes", nargs="+", default=["range", "eq"], choices=["range", "eq", "fixed"])
    parser.add_argument("--rules", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--engines", nargs="+", default=[name for name in ENGINES if name != "scan"], choices=ENGINES)
    parser.add_argument("--events", type=int, default=500)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--expressions", action="store_true", help="match_event of the same rows as expressions, too")
    parser.add_argument("--peers", nargs="*", default=PEERS, choices=PEERS, metavar="PEER")
    parser.add_argument("--seconds", type=float, default=600, help="after which a peer is ended")
    parser.add_argument("--built", type=Path, help="the folder in which the peers were built")
    parser.add_argument("--json", type=Path, help="file for all figures")
    options = parser.parse_args(arguments)
    bench = Path(os.environ.get("DELTATAG_BENCH") or Path(__file__).parents[2] / "shared" / "bench")
    if not (bench / "gen_workload.py").is_file():
        print(f"There is no gen_workload.py in {bench}; DELTATAG_BENCH can name another folder.", file=sys.stderr)
        return 1
    print(f"single events: {machine()}")
    peers = _peers(bench / "peers", options)
    cells: list[Cell] = []
    with tempfile.TemporaryDirectory(prefix="deltatag-bench-") as name:
        folder = Path(name)
        _generate(bench, folder, options.shapes, options.rules, options.events)
        for shape in options.shapes:
            for rules in options.rules:
                cell = measure(Files(folder, shape, rules), options, peers)
                cells.append(cell)
                if options.json:
                    options.json.write_text(json.dumps([asdict(each) for each in cells], indent=1))
    _print(cells)
    return 0


def _generate(bench: Path, folder: Path, shapes: Sequence[str], rules: Sequence[int], events: int) -> None:
    most = max(events, *PEER_EVENTS.values())
    command = [sys.executable, str(bench / "gen_workload.py"), str(folder), "--events", str(most), "--json-events"]
    command += [str(most), "--oracle-events", str(most), "--rules", *map(str, rules), "--shapes", *shapes]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def measure(files: Files, options: argparse.Namespace, peers: dict[str, Callable[[Files, int], Any] | str]) -> Cell:
    """All systems on one rule set."""
    count, _ = files.answer(options.events)
    cell = Cell(files.shape, files.rules, count / options.events)
    rows = [{f"a{i}": value for i, value in enumerate(event)} for event in files.events[: options.events].tolist()]
    texts = [" AND ".join(f"{name} = {value}" for name, value in row.items()) for row in rows]
    asked: dict[str, Callable[[], object]] = {}
    for engine in options.engines:
        try:
            compiled = ri.loads(_dumped(files, engine))
        except ri.RulesIndexError as error:
            cell.lacking[engine] = str(error)
            continue
        started = time.process_time()
        compiled.match_one(rows[0])
        cell.first[engine] = 1e6 * (time.process_time() - started)
        _compare(engine, [compiled.match_one(row) for row in rows], files)
        asked[engine] = lambda compiled=compiled: [compiled.match_one(row) for row in rows]  # type: ignore[misc]
        if options.expressions:
            name = f"{engine}, expression"
            _compare(name, [compiled.match_event(text) for text in texts], files)
            asked[name] = lambda compiled=compiled: [compiled.match_event(text) for text in texts]  # type: ignore[misc]
    seconds: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(options.repeat):
        for name, ask in asked.items():
            started = time.process_time()
            ask()
            seconds[name].append(time.process_time() - started)
    cell.micros = {name: 1e6 * median(values) / len(rows) for name, values in seconds.items()}
    for name, peer in peers.items():
        given = peer if isinstance(peer, str) else peer(files, PEER_EVENTS.get(files.rules, 30))
        if isinstance(given, str):
            cell.lacking[name] = given
        else:
            cell.micros[name] = given
    print(f"{cell.shape}, {cell.rules:,}: {cell.micros} {cell.lacking}", file=sys.stderr, flush=True)
    return cell


def _dumped(files: Files, engine: str) -> bytes:
    from rules_index.index.compiled import dumps

    compiled = ri.compile_rules(files.texts(), SCHEMA, engine=engine)
    assert compiled.engine == engine and not compiled.rejects.num_rows
    return dumps(compiled)


def _compare(name: str, found: list[list[ri.RuleId]], files: Files) -> None:
    answer = sum(map(len, found)), sum(int(rule) for ids in found for rule in ids)
    if answer != files.answer(len(found)):
        raise SystemExit(f"{name} gives {answer} on {files.shape}, {files.rules:,}: not {files.answer(len(found))}")


def _peers(sources: Path, options: argparse.Namespace) -> dict[str, Callable[[Files, int], Any] | str]:
    """How each published engine is run, or why it is not."""
    where = f"its drivers are in {sources}" if sources.is_dir() else f"there is no {sources}"
    folder = options.built or Path()
    commands: dict[str, tuple[Path, list[str], list[str]]] = {
        "be-tree in C": (folder / "betree_driver", [str(folder / "betree_driver")], ["3", "3"]),
        "a-tree": (folder / "atree/target/release/atree-driver", [], ["last", "cmp", "3"]),
        "event-ruler": (
            folder / "ruler/out/RulerBench.class",
            ["java", "-Xmx3g", "-cp", f"{folder}/ruler/out{os.pathsep}{folder}/ruler/lib/*", "RulerBench"],
            ["node", "true", "exact", "3", "60"],
        ),
        "hypermatch": (folder / "hm/hmdriver", [], ["3", "60", "3000"]),
    }
    peers: dict[str, Callable[[Files, int], Any] | str] = {}
    for name in options.peers:
        program, command, more = commands[name]
        if options.built is None or not program.is_file():
            peers[name] = f"not built ({where}; --built names the folder with them)"
            print(f"{name} is left out: {peers[name]}")
        elif command[:1] == ["java"] and shutil.which("java") is None:
            peers[name] = "there is no java"
        else:
            peers[name] = _peer(command or [str(program)], more, options.seconds)
    return peers


def _peer(command: list[str], more: list[str], seconds: float) -> Callable[[Files, int], Any]:
    def run(files: Files, events: int) -> float | str:
        full = [*command, str(files.folder), files.shape, str(files.rules), str(events), *more]
        try:
            done = subprocess.run(full, capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return f"not done within {seconds:.0f} s"
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if not lines:
            return f"ended with {done.returncode}"
        told = json.loads(lines[-1])
        if "failed" in told:
            return str(told["failed"])
        if (told["matches"], told["checksum"]) != files.answer(events):
            return f"wrong answers: {told['matches']} matches, not {files.answer(events)[0]}"
        return float(1e6 / told["ev_s"])

    return run


def _print(cells: Sequence[Cell]) -> None:
    systems = list(dict.fromkeys(name for cell in cells for name in (*cell.micros, *cell.lacking)))
    rows = [
        (
            cell.shape,
            f"{cell.rules:,}",
            short(cell.matches),
            *(short(cell.micros[name]) if name in cell.micros else "-" for name in systems),
        )
        for cell in cells
    ]
    print_table("Microseconds of CPU an event", ("shape", "rules", "matches", *systems), rows)
    for cell in cells:
        for name, reason in cell.lacking.items():
            print(f"{cell.shape}, {cell.rules:,}, {name}: {reason}")
    firsts = [(c.shape, f"{c.rules:,}", *(short(c.first.get(name, float("nan"))) for name in ENGINES)) for c in cells]
    print_table("Microseconds of CPU of the first event after loading", ("shape", "rules", *ENGINES), firsts)


if __name__ == "__main__":
    sys.exit(main())
