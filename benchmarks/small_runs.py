"""A command from its start to its end, where there is little to do: seconds and memory, with either runner.

    python -m benchmarks.small_runs [--rules 100 10000] [--rows 0 1 1000 100000] [--repeat 3]

A lake has 100,000 tagged rows of nine columns; so many more come, and `deltatag run` compiles nothing, passes its gates
and tags them. Beside it what a program would take that only appends the new rows to a copy of the table: with Polars,
and with PySpark. How many rows each has written is compared before any time is printed. Linux only: it counts what this
program had itself when it started another one, so that memory is told from some 250 MiB on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from benchmarks.report import interleaved, machine, median, print_table

TAGGED = 100_000
"""Rows that the table has before."""
TEXTS = 50
RULE = "n{a} BETWEEN {low} AND {high} AND s{b} = 'v{text}'"
CONFIGURATION = '[lake]\nroot = "lake"\nrunner = "{runner}"\n\n[streams.s]\nsource = "source"\n'
POLARS = """
import polars as pl
rows = pl.scan_delta("source").filter(pl.col("id") >= {tagged}).collect()
rows.write_delta("copy", mode="append")
"""
PYSPARK = """
from pipelines.settings.configuration import load_configuration
from pipelines.spark.session import open_session
spark = open_session(load_configuration("deltatag.toml"), quiet=True)
rows = spark.read.format("delta").load("source").where("id >= {tagged}")
rows.write.format("delta").mode("append").save("copy")
"""
"""The session is deltatag's own, which finds Java and Delta's jars."""
EDIT = "INSERT INTO rules (rule_id, scope, expression) VALUES ('new', 's', 'n1 > 5')"


@dataclass(frozen=True)
class Cost:
    """Of one command: seconds from its start to its end, and the most memory that one of its processes had."""

    seconds: float
    bytes: int


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rules", type=int, nargs="+", default=[100, 10_000])
    parser.add_argument("--rows", type=int, nargs="+", default=[0, 1, 1_000, 100_000])
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args(arguments)
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        for rules in options.rules:
            lakes = {runner: _lake(Path(folder) / f"{rules}_{runner}", runner, rules) for runner in ("local", "spark")}
            rows = [_measured(lakes, count, options.repeat) for count in options.rows]
            header = ("rows", "run, local", "run, Spark", "Polars appends", "PySpark appends")
            print_table(f"{rules:,} rules: seconds, and memory of the largest process", header, rows)
        lakes = {runner: Path(folder) / f"{options.rules[0]}_{runner}" for runner in ("local", "spark")}
        print_table("statements", ("statement", "local", "Spark"), list(_statements(lakes, options.repeat)))


def _lake(folder: Path, runner: str, rules: int) -> Path:
    """A lake whose rows are tagged, and a copy of its source."""
    folder.mkdir()
    (folder / "deltatag.toml").write_text(CONFIGURATION.format(runner=runner))
    _deltatag(folder, "init")
    draw = np.random.default_rng(7)
    lowest, values = draw.integers(0, 980_000, rules), draw.integers(0, TEXTS, rules)
    texts = [
        RULE.format(a=n % 6, low=low, high=low + 20_000, b=n % 3, text=text)
        for n, (low, text) in enumerate(zip(lowest, values, strict=True))
    ]
    columns = {"rule_id": [f"r{n}" for n in range(rules)], "scope": ["s"] * rules, "expression": texts}
    write_deltalake(str(folder / "lake" / "rules"), pa.table(columns), mode="append", schema_mode="merge")
    for name in ("source", "copy"):
        write_deltalake(str(folder / name), _rows(0, TAGGED))
    _deltatag(folder, "run")
    return folder


def _rows(first: int, count: int) -> pa.Table:
    draw = np.random.default_rng(first)
    columns: dict[str, object] = {"id": pa.array(np.arange(first, first + count))}
    columns |= {f"n{n}": draw.integers(0, 1_000_000, count) for n in range(6)}
    texts = np.array([f"v{n}" for n in range(TEXTS)])
    return pa.table(columns | {f"s{n}": texts[draw.integers(0, TEXTS, count)] for n in range(3)})


def _measured(lakes: dict[str, Path], count: int, repeat: int) -> tuple[str, ...]:
    """A row of the table: what each way takes for so many new rows."""
    memory: dict[str, int] = {}

    def task(name: str, lake: Path, arguments: tuple[str, ...], written: str) -> float:
        with tempfile.TemporaryDirectory(dir=lake.parent) as folder:
            place = Path(folder) / "lake"
            shutil.copytree(lake, place)
            if count:
                write_deltalake(str(place / "source"), _rows(TAGGED, count), mode="append")
            cost = _cost(place, arguments)
            found = DeltaTable(str(place / written)).to_pyarrow_dataset().count_rows()
            if found != TAGGED + count:
                raise SystemExit(f"{name} has left {found:,} rows in place of {TAGGED + count:,}.")
        memory[name] = max(memory.get(name, 0), cost.bytes)
        return cost.seconds

    run = ("-m", "deltatag", "run")
    tasks = {
        "local": partial(task, "local", lakes["local"], run, "lake/s_tagged"),
        "Spark": partial(task, "Spark", lakes["spark"], run, "lake/s_tagged"),
        "Polars": partial(task, "Polars", lakes["local"], ("-c", POLARS.format(tagged=TAGGED)), "copy"),
        "PySpark": partial(task, "PySpark", lakes["local"], ("-c", PYSPARK.format(tagged=TAGGED)), "copy"),
    }
    seconds = interleaved(repeat, tasks)
    return (f"{count:,}", *(_told(median(values), memory[name]) for name, values in seconds.items()))


def _statements(lakes: dict[str, Path], repeat: int) -> list[tuple[str, ...]]:
    found = []
    for title, statement in (("a query", "SELECT * FROM rules LIMIT 5"), ("an edit", EDIT)):
        memory: dict[str, int] = {}

        def task(runner: str, statement: str = statement, memory: dict[str, int] = memory) -> float:
            cost = _cost(lakes[runner], ("-m", "deltatag", "sql", statement))
            memory[runner] = max(memory.get(runner, 0), cost.bytes)
            return cost.seconds

        seconds = interleaved(repeat, {runner: partial(task, runner) for runner in lakes})
        found.append((title, *(_told(median(values), memory[runner]) for runner, values in seconds.items())))
    return found


def _told(seconds: float, most: int) -> str:
    return f"{seconds:.2f} s, {most >> 20} MiB"


def _deltatag(folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "deltatag", *arguments], cwd=folder, check=True, capture_output=True)


def _cost(folder: Path, arguments: tuple[str, ...]) -> Cost:
    started = time.perf_counter()
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen([sys.executable, *arguments], cwd=folder, stdout=output, stderr=output)
        _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit((folder / "output").read_text())
    return Cost(seconds, used.ru_maxrss << 10)


if __name__ == "__main__":
    main()
