"""`tag` beside a plain copy of the same Delta table: how much dearer are tagged rows than rows alone?

    python -m benchmarks.tag [--rows 2000000] [--rules 1000 10000] [--ids string bigint] [--repeat 5] [--plots FOLDER]

Copy and tag run in turn in one Spark session. The numbers of matches are compared with brute force on a sample of
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


@dataclass(frozen=True)
class Variant:
    """One rule set with one type of ids."""

    rules: int
    id_type: str

    @property
    def name(self) -> str:
        """As the tables call it."""
        return f"{self.rules:,} rules, {self.id_type} ids"


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rules", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--ids", nargs="+", default=["string", "bigint"], choices=["string", "bigint"])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--plots", type=Path, help="folder for tag.png")
    options = parser.parse_args(arguments)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    print(f"tag beside a copy: {options.rows:,} rows x {workload.COLUMNS + 2} columns; {machine()}")
    variants = [Variant(rules, ids) for rules in options.rules for ids in options.ids]
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
        tasks[variant.name] = partial(_tag, workspaces[variant])
    seconds = interleaved(options.repeat, tasks)
    copy = seconds["copy"]
    rows = []
    ratios: dict[str, list[float]] = {}
    for variant in variants:
        tagged = seconds[variant.name]
        ratio = median(tagged) / median(copy)
        ratios.setdefault(f"{variant.id_type} ids", []).append(ratio)
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
    root = folder / f"lake_{variant.rules}_{variant.id_type}"
    return lakes.lake(root, spark, "events", texts, variant.id_type, streams={"events": {"source": str(source)}})


def _check(workspace: Workspace, variant: Variant, rows: int) -> int:
    """Tags once (which also warms up), compares a sample of the rules with brute force, and counts the matches."""
    from pyspark.sql import functions

    _tag(workspace)
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


def _tag(workspace: Workspace) -> float:
    """One run of the verb over the whole source, into empty tables."""
    from pipelines.tag import tag_stream

    lake = workspace.lake
    shutil.rmtree(Path(lake.uri("runs")), ignore_errors=True)
    shutil.rmtree(Path(lake.uri("events_tagged")), ignore_errors=True)
    lake.create("runs", lake.rule_id_type())
    return timed(lambda: tag_stream(workspace, "events"))


if __name__ == "__main__":
    main()
