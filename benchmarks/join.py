"""`join` beside Spark's own join and a filter by the same rules: what do pairs cost that satisfy no rule?

    python -m benchmarks.join [--rules 10 1000] [--shares 0.01 0.0001] [--partners 1 32 1000] [--pairs 20000000]
                              [--rows 200000] [--repeat 3] [--hot 2000000] [--plots FOLDER]

Two streams, of which each row can be joined with so many of the other. Each rule is a range on a column of either side;
together they are satisfied by a share of all pairs. Spark's join and both runners of deltatag write the joined rows
that satisfy a rule into a Delta table, deltatag with the rules' ids. The joined rows are compared by count and hash sum
before any time is printed. All run in one process whose session has started already; the local runner needs none.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from benchmarks import lakes, spark_events
from benchmarks.report import interleaved, machine, median, plot_bars, print_table, short, timed
from pipelines.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VALUES = 1_000_000
"""Values of the columns that rules name."""
HOUR = 3_600_000_000
FILES = 4
SYSTEMS = ("Spark", "deltatag, local", "deltatag on Spark")
PATIENCE = 120
"""Seconds of Spark's first run beyond which nothing is repeated."""


@dataclass(frozen=True)
class Cell:
    """One comparison: rules, the share of all pairs that satisfy one, rows of a side and partners of each."""

    rules: int
    share: float
    rows: int
    partners: int

    @property
    def folder(self) -> str:
        """As its tables are called."""
        return f"{self.rules}_{self.share}_{self.partners}"


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rules", type=int, nargs="+", default=[10, 1_000])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.01, 0.0001])
    parser.add_argument("--partners", type=int, nargs="+", default=[1, 32, 1_000])
    parser.add_argument("--pairs", type=int, default=20_000_000, help="pairs that Spark forms, at most")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of a side, at most")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--hot", type=int, default=2_000_000, help="rows of which 30 %% have one key; 0: none")
    parser.add_argument("--plots", type=Path, help="folder for join.png")
    options = parser.parse_args(arguments)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    cells = [
        Cell(rules, share, min(options.rows, options.pairs // partners), partners)
        for rules in options.rules
        for share in options.shares
        for partners in options.partners
    ]
    print(f"join beside Spark's own join and filter; {machine()}")
    with tempfile.TemporaryDirectory(prefix="deltatag-bench-") as name:
        folder = Path(name)
        spark = lakes.session(folder, spark_events.settings(folder / "events"))
        log = spark_events.EventLog(folder / "events")
        _compare(folder, spark, log, cells, options)
        if options.hot:
            _show_hot_key(folder, spark, log, options.hot)


def _compare(folder: Path, spark: SparkSession, log: spark_events.EventLog, cells: list[Cell], options: Any) -> None:
    header = (
        *("rules", "share", "partners", "pairs", "joined rows", *(f"{system}, s" for system in SYSTEMS)),
        *("Spark / local", "Spark / deltatag on Spark"),
        *("Spark: shuffle, MiB", "deltatag on Spark", "Spark: memory of a task, MiB", "deltatag on Spark + worker"),
    )
    rows = []
    for cell in cells:
        rows.append(_measured(folder / cell.folder, spark, log, cell, options))
        told = zip(header, rows[-1], strict=True)
        print("; ".join(f"{name} {value}" for name, value in told), file=sys.stderr, flush=True)
    print_table(f"Medians of {options.repeat} runs in turn; {machine()}", header, rows)
    if options.plots:
        names = [f"{cell.rules:,}\n{cell.share:.2%}\n{cell.partners:,}" for cell in cells]
        title = "A join beside Spark's, by rules, share of pairs that satisfy one, and partners of a row"
        seconds = {name: [float(str(row[header.index(f"{name}, s")])) for row in rows] for name in SYSTEMS}
        plot_bars(options.plots / "join.png", title, "seconds", names, seconds, log=True)


def _measured(
    folder: Path, spark: SparkSession, log: spark_events.EventLog, cell: Cell, options: Any
) -> tuple[object, ...]:
    """One row of the table. Where Spark has taken minutes already, the first runs are the only ones."""
    rules = _rules(cell)
    workspace = _workspace(folder, spark, rules, _sides(cell))
    with log.tasks() as theirs:
        seconds = {"Spark": [_spark_join(workspace, rules)]}
    with log.tasks() as ours:
        seconds["deltatag on Spark"] = [_join(workspace)]
    _check(workspace)
    local = _locally(workspace)
    seconds["deltatag, local"] = [_join(local)]
    joined = _check(workspace)
    if seconds["Spark"][0] < PATIENCE:
        tasks = (partial(_spark_join, workspace, rules), partial(_join, local), partial(_join, workspace))
        seconds = interleaved(options.repeat, dict(zip(SYSTEMS, tasks, strict=True)))
    shutil.rmtree(folder)
    spark_seconds, local_seconds, own_seconds = (median(seconds[system]) for system in SYSTEMS)
    return (
        cell.rules, f"{cell.share:.2%}", cell.partners, short(cell.rows * cell.partners), short(joined),
        f"{spark_seconds:.1f}", f"{local_seconds:.2f}", f"{own_seconds:.1f}",
        f"{spark_seconds / local_seconds:.1f}", f"{spark_seconds / own_seconds:.1f}",
        _mib(theirs.shuffle_bytes), _mib(ours.shuffle_bytes), _mib(theirs.spark_bytes),
        f"{_mib(ours.spark_bytes)} + {_mib(ours.worker_bytes)}",
    )  # fmt: skip


def _show_hot_key(folder: Path, spark: SparkSession, log: spark_events.EventLog, rows: int) -> None:
    """How long the longest task takes where one key has 30 % of all rows."""
    draw = np.random.default_rng(3)
    sides = {}
    for name in "ab":
        key = np.where(draw.random(rows // 2) < 0.3, 0, draw.integers(1, rows // 100, rows // 2))
        sides[name] = _side(name, key, draw.integers(0, 240 * HOUR, rows // 2), draw)
    rules = [f"a.x < {VALUES // 100} AND b.y < {VALUES // 100}", f"a.x > {VALUES - 100}", "b.y = 17"]
    workspace = _workspace(folder / "hot", spark, rules, sides, window="10 min")
    _join(workspace)
    with log.tasks() as tasks:
        seconds = _join(workspace)
    stages = [each for each in tasks.seconds.values() if len(each) > 2]
    matching = max(stages, key=sum)
    middle = statistics.median(matching)
    print_table(
        f"One key with 30 % of {rows:,} rows; {machine()}",
        ("seconds", "tasks of the stage that matches", "median, s", "longest, s", "longest / median"),
        [(f"{seconds:.1f}", len(matching), f"{middle:.2f}", f"{max(matching):.2f}", f"{max(matching) / middle:.2f}")],
    )


def _mib(count: int) -> str:
    return f"{count / 2**20:,.1f}"


def _rules(cell: Cell) -> list[str]:
    """Ranges on both sides, each rule of equal share."""
    draw = np.random.default_rng(cell.rules)
    width = max(1, round(VALUES * (cell.share / cell.rules) ** 0.5))
    starts = draw.integers(0, VALUES - width, (cell.rules, 2)).tolist()
    return [f"a.x BETWEEN {x} AND {x + width - 1} AND b.y BETWEEN {y} AND {y + width - 1}" for x, y in starts]


def _sides(cell: Cell) -> dict[str, pa.Table]:
    """Rows of both streams: each key has as many of either as a row has partners, all within the window."""
    draw = np.random.default_rng(7)
    keys = max(1, cell.rows // cell.partners)
    return {
        name: _side(name, draw.permutation(np.arange(cell.rows) % keys), draw.integers(0, HOUR, cell.rows), draw)
        for name in "ab"
    }


def _side(name: str, key: np.ndarray, time: np.ndarray, draw: np.random.Generator) -> pa.Table:
    rows = len(key)
    value = {"a": "x", "b": "y"}[name]
    return pa.table(
        {
            "id": np.arange(rows),
            "k": key,
            "t": pa.array(1_700_000_000_000_000 + np.sort(time), pa.timestamp("us", "UTC")),
            value: draw.integers(0, VALUES, rows),
            "text": pa.array([f"row {number} of {name}" for number in range(rows)]),
        }
    )


def _workspace(
    folder: Path, spark: SparkSession, rules: list[str], sides: dict[str, pa.Table], window: str = "1 hour"
) -> Workspace:
    """A lake of its own with both sources and compiled rules."""
    folder.mkdir()
    for name, rows in sides.items():
        bounds = [part * rows.num_rows // FILES for part in range(FILES + 1)]
        for begin, end in pairwise(bounds):
            write_deltalake(str(folder / name), rows.slice(begin, end - begin), mode="append")
    streams = {name: {"source": str(folder / name), "event_time": "t"} for name in sides}
    joins = {"j": {"streams": list(sides), "on": ["k"], "window": window}}
    return lakes.lake(folder, spark, "j", rules, streams=streams, joins=joins)


def _locally(workspace: Workspace) -> Workspace:
    """The same lake for the runner that needs no session, though there is one."""
    configuration = workspace.configuration
    return Workspace(replace(configuration, lake=replace(configuration.lake, runner="local")))


def _join(workspace: Workspace) -> float:
    """One run of the verb over both sources, into empty tables; its seconds."""
    from pipelines.join import join_streams

    lake = workspace.lake
    for name in ("runs", "j_tagged"):
        shutil.rmtree(Path(lake.uri(name)), ignore_errors=True)
    lake.create("runs")
    return timed(lambda: join_streams(workspace, "j"))


def _spark_join(workspace: Workspace, rules: list[str]) -> float:
    """Spark's own join, filtered, into a Delta table; its seconds."""
    lake = workspace.lake
    near = f"abs(unix_micros(a.t) - unix_micros(b.t)) <= {HOUR}"
    text = (
        f"SELECT struct(a.*) AS a, struct(b.*) AS b FROM delta.`{lake.uri('a')}` a JOIN delta.`{lake.uri('b')}` b "
        f"ON a.k = b.k AND {near} WHERE {' OR '.join(f'({rule})' for rule in rules)}"
    )
    joined = workspace.spark.sql(text)
    return timed(lambda: joined.write.format("delta").mode("overwrite").save(lake.uri("spark_joined")))


def _check(workspace: Workspace) -> int:
    """The number of joined rows, which are the same ones."""
    lake = workspace.lake
    ours, theirs = (_sums(workspace.spark.read.format("delta").load(lake.uri(n))) for n in ("j_tagged", "spark_joined"))
    if ours != theirs:
        raise SystemExit(f"deltatag and Spark differ: {ours} and {theirs} (joined rows, sum of hashes).")
    return ours[0]


def _sums(rows: DataFrame) -> tuple[int, int]:
    from pyspark.sql import functions

    found = rows.agg(functions.count("*"), functions.sum(functions.hash("a.id", "b.id").cast("bigint"))).first()
    assert found is not None
    return int(found[0]), int(found[1] or 0)


if __name__ == "__main__":
    main()
