"""`deltatag join` from its start to its end, by this process and by Spark: seconds, those of processors, and memory.

    python -m benchmarks.join_runners [--rules 1000] [--rows 1 1000 200000] [--repeat 3]

Two streams with ten partners to a row, rules as in `benchmarks.join` that one joined row in a thousand satisfies. First
both join everything, into lakes of their own, whose tables are compared. Then one more row arrives on one side, and is
joined with what is there.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from benchmarks.join import Cell, _rules, _sides
from benchmarks.report import machine, median, print_table

RUNNERS = ("local", "spark")
PARTNERS, SHARE = 10, 0.001


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rules", type=int, default=1_000)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 1_000, 200_000])
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args(arguments)
    header = ("rows a side", "joined rows", *(f"{name}, {what}" for name in RUNNERS for what in _WHAT))
    rows = [
        _measured(Cell(options.rules, SHARE, count, min(PARTNERS, count)), options.repeat) for count in options.rows
    ]
    print_table(f"{options.rules:,} rules, medians of {options.repeat} runs in turn; {machine()}", header, rows)


_WHAT = ("all: s", "CPU s", "MiB", "one more row: s", "CPU s", "MiB")


def _measured(cell: Cell, repeat: int) -> tuple[object, ...]:
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    joined: dict[str, tuple[int, str]] = {}
    for _ in range(repeat):
        for runner in RUNNERS:
            with tempfile.TemporaryDirectory(prefix="deltatag-bench-") as name:
                folder = Path(name)
                _make(folder, cell, runner)
                found.setdefault((runner, "all"), []).append(_join(folder))
                one = _sides(cell)["a"].slice(cell.rows // 2, 1)
                write_deltalake(str(folder / "a"), one, mode="append")
                found.setdefault((runner, "one"), []).append(_join(folder))
                joined[runner] = _digest(folder)
        if len(set(joined.values())) != 1:
            raise SystemExit(f"The tables differ: {joined}")
    told: list[object] = [f"{cell.rows:,}", f"{joined['local'][0]:,}"]
    for runner in RUNNERS:
        for what in ("all", "one"):
            seconds, used, size = zip(*found[runner, what], strict=True)
            told += [f"{median(seconds):.1f}", f"{median(used):.1f}", f"{median(size):,.0f}"]
    return tuple(told)


def _make(folder: Path, cell: Cell, runner: str) -> None:
    """A lake with both sources and compiled rules."""
    text = f'[lake]\nroot = "lake"\nrunner = "{runner}"\n'
    for name, table in _sides(cell).items():
        write_deltalake(str(folder / name), table)
        text += f'[streams.{name}]\nsource = "{name}"\nevent_time = "t"\n'
    text += '[joins.j]\nstreams = ["a", "b"]\non = ["k"]\nwindow = "1 hour"\n'
    (folder / "deltatag.toml").write_text(text, encoding="utf-8")
    _run(folder, "init")
    rules = [{"rule_id": f"r{n}", "scope": "j", "expression": each} for n, each in enumerate(_rules(cell))]
    schema = pa.schema(DeltaTable(str(folder / "lake" / "rules")).schema())
    write_deltalake(str(folder / "lake" / "rules"), pa.Table.from_pylist(rules, schema=schema), mode="append")
    _run(folder, "compile", "j")


def _run(folder: Path, *arguments: str) -> None:
    subprocess.run(_command(*arguments), cwd=folder, env=_environment(), check=True, stdout=subprocess.DEVNULL)


def _join(folder: Path) -> tuple[float, float, float]:
    """Seconds, those of processors (a JVM that is left to end by itself is not counted), and the most MiB at a time."""
    started, most = time.perf_counter(), [0.0]
    process = subprocess.Popen(
        _command("join", "j"), cwd=folder, env=_environment(), stdout=subprocess.DEVNULL, start_new_session=True
    )

    def watch() -> None:
        while process.returncode is None:
            most[0] = max(most[0], _resident(process.pid))
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    watcher.join()
    if process.returncode:
        raise SystemExit("deltatag join failed")
    return seconds, used.ru_utime + used.ru_stime, most[0]


def _resident(session: int) -> float:
    """MiB of the processes of a session, what several share counted once for each."""
    pages = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getsid(int(name)) == session:
                pages += int(Path(f"/proc/{name}/statm").read_text(encoding="ascii").split()[1])
        except (OSError, IndexError):
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _digest(folder: Path) -> tuple[int, str]:
    """How many joined rows there are, and a digest of them and their rules."""
    rows = DeltaTable(str(folder / "lake" / "j_tagged")).to_pyarrow_table(columns=["a", "b", "rule_ids"]).to_pylist()
    texts = sorted(repr((row["a"]["id"], row["b"]["id"], row["rule_ids"])) for row in rows)
    return len(texts), hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "deltatag", *arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (os.getcwd(), os.environ.get("PYTHONPATH"))))}


if __name__ == "__main__":
    main()
