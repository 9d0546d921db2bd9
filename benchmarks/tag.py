"""`tag` beside a plain copy of the same Delta table: how much dearer are tagged rows than rows alone?

    python -m benchmarks.tag [--rows 2000000] [--rules 1000 10000] [--ids string bigint]
                             [--work tag stream run] [--repeat 5] [--plots FOLDER]

What is timed: `tag`, into a tagged table alone; `stream`, tag of a stream as the README has it, with a key, `_matches`
and a check; `run`, the verb, which judges the source and the tagged table of such a stream beside. Copy and work are
done in turn in one Spark session. The numbers of matches are compared with brute force on a sample of
the rules before any time is printed.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from benchmarks import lakes, workload
from benchmarks.report import interleaved, machine, median, plot_bars, print_table, timed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.workspace import Workspace

FILES = 8
SAMPLE = 200
WORK = {"tag": "tag", "stream": "tag with key, _matches and check", "run": "run with gates"}


@dataclass(frozen=True)
class Variant:
    """One rule set with one type of ids, and what is timed."""

    rules: int
    id_type: str
    work: str

    @property
    def name(self) -> str:
        """As the tables call it."""
        return f"{self.rules:,} rules, {self.kind}"

    @property
    def kind(self) -> str:
        """Type of ids and work."""
        return f"{self.id_type} ids, {WORK[self.work]}"


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rules", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--ids", nargs="+", default=["string", "bigint"], choices=["string", "bigint"])
    parser.add_argument("--work", nargs="+", default=["tag"], choices=list(WORK))
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--plots", type=Path, help="folder for tag.png")
    options = parser.parse_args(arguments)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    print(f"tag beside a copy: {options.rows:,} rows x {workload.COLUMNS + 2} columns; {machine()}")
    variants = [Variant(*each) for each in product(options.rules, options.ids, options.work)]
    with tempfile.TemporaryDirectory(prefix="deltatag-bench-") as folder:
        _measure(Path(folder), options, variants)


def _measure(folder: Path, options: Any, variants: list[Variant]) -> None:
    source = folder / "source"
    spark = lakes.session(folder)
    _write_source(source, options.rows, spark)
    workspaces = {variant: _workspace(folder, source, variant, spark) for variant in variants}
    counts = {variant: _check(workspaces[variant], variant, options.rows) for variant in variants}
    tasks: dict[str, Callable[[], float]] = {"copy": lambda: _copy(spark, source, folder / "copy")}
    for variant in variants:
        tasks[variant.name] = partial(_do, workspaces[variant], variant)
    seconds = interleaved(options.repeat, tasks)
    copy = seconds["copy"]
    rows = []
    ratios: dict[str, list[float]] = {}
    for variant in variants:
        tagged = seconds[variant.name]
        ratio = median(tagged) / median(copy)
        ratios.setdefault(variant.kind, []).append(ratio)
        best = min(tagged) / min(copy)
        rows.append(
            (variant.name, f"{counts[variant] / options.rows:.2f}", f"{median(copy):.2f}", f"{median(tagged):.2f}",
             f"{ratio:.2f}", f"{best:.2f}")
        )  # fmt: skip
    header = ("rules", "matches a row", "copy, s", "tag, s", "tag / copy (medians)", "tag / copy (best)")
    print_table(f"Median and best of {options.repeat} runs in turn; {machine()}", header, rows)
    if options.plots:
        groups = [f"{rules:,} rules" for rules in options.rules]
        plot_bars(options.plots / "tag.png", "tag beside a plain copy", "tag / copy", groups, ratios)


def _write_source(source: Path, rows: int, spark: SparkSession) -> None:
    """An id, a time and the workload's columns, in FILES files as Spark writes them."""
    plain = source.with_name("plain")
    values = workload.ranges(1, rows).rows
    columns: dict[str, Any] = {
        "event_id": np.arange(rows),
        "at": pa.array(np.arange(rows) * 1_000_000 + 1_700_000_000_000_000, pa.timestamp("us", "UTC")),
    }
    columns |= {name: np.ascontiguousarray(values[:, i]) for i, name in enumerate(workload.names())}
    write_deltalake(str(plain), pa.table(columns))
    frame = spark.read.format("delta").load(str(plain))
    frame.repartitionByRange(FILES, "event_id").write.format("delta").save(str(source))


def _workspace(folder: Path, source: Path, variant: Variant, spark: SparkSession) -> Workspace:
    """A lake of its own with compiled rules."""
    texts = workload.ranges(variant.rules, 0).texts()
    stream: dict[str, Any] = {"source": str(source)}
    if variant.work != "tag":
        stream |= {"key": ["event_id"], "event_time": "at", "checks": {"known": "event_id >= 0"}}
    root = folder / f"lake_{variant.rules}_{variant.id_type}_{variant.work}"
    return lakes.lake(root, spark, "events", texts, variant.id_type, streams={"events": stream})


def _check(workspace: Workspace, variant: Variant, rows: int) -> int:
    """Tags once (which also warms up), compares a sample of the rules with brute force, and counts the matches."""
    from pyspark.sql import functions

    _do(workspace, variant)
    tagged = workspace.spark.read.format("delta").load(workspace.lake.uri("events_tagged"))
    counts = tagged.select(functions.explode("rule_ids").alias("id")).groupBy("id").count().collect()
    found = {row["id"]: row["count"] for row in counts}
    if tagged.count() != rows:
        raise SystemExit(f"{tagged.count()} rows were tagged, not {rows}.")
    whole = workload.ranges(variant.rules, rows)
    chosen = np.random.default_rng(1).choice(variant.rules, min(SAMPLE, variant.rules), replace=False)
    sample = workload.Workload("", whole.rows, whole.attributes[chosen], whole.low[chosen], whole.high[chosen])
    for rule, count in zip(chosen.tolist(), workload.brute_force(sample).tolist(), strict=True):
        name = f"rule_{rule:06d}" if variant.id_type == "string" else rule
        if found.get(name, 0) != count:
            raise SystemExit(f"Rule {rule} has {found.get(name, 0)} matches, and {count} by brute force.")
    return sum(found.values())


def _copy(spark: SparkSession, source: Path, target: Path) -> float:
    shutil.rmtree(target, ignore_errors=True)
    frame = spark.read.format("delta").load(str(source))
    return timed(lambda: frame.write.format("delta").save(str(target)))


def _do(workspace: Workspace, variant: Variant) -> float:
    """Seconds of the verb over the whole source, into empty tables."""
    from pipelines.run import run_due
    from pipelines.tag import tag_stream
    from quality.gates import QualityGates

    lake = workspace.lake
    for table in ("runs", "events_tagged", "events_matches", "quarantine_events"):
        shutil.rmtree(Path(lake.uri(table)), ignore_errors=True)
    lake.create("runs", lake.rule_id_type())
    if variant.work != "run":
        return timed(lambda: tag_stream(workspace, "events"))

    def run() -> None:
        if failures := run_due(workspace, QualityGates()).failures:
            raise SystemExit(str(failures))

    return timed(run)


if __name__ == "__main__":
    main()
