"""What an edit of a few rules among many takes: in the library, and from the `rules` table to `rule_index`.

    python -m benchmarks.update [--kinds ranges accounts] [--rules 1000000] [--edits 100] [--engine auto] [--no-lake]

The updated index must match as a full compile of the edited rules does, and have its fingerprint, before anything is
timed. Of the lake, `deltatag compile` is a process of its own, imports included; its CPU seconds are those of all its
threads. Linux only.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

import rules_index as ri
from benchmarks import lakes
from benchmarks.engines import SEED
from benchmarks.kinds import KINDS
from benchmarks.report import machine, print_table

ROWS = 1 << 16
REPEAT = 5
SCOPE = "events"


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", nargs="+", default=["ranges", "accounts"], choices=list(KINDS), metavar="KIND")
    parser.add_argument("--rules", type=int, default=1_000_000)
    parser.add_argument("--edits", type=int, default=100)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--no-lake", action="store_true", help="only the library")
    options = parser.parse_args(arguments)
    rows = []
    for kind in options.kinds:
        print(f"{kind}, {options.rules:,} rules", file=sys.stderr, flush=True)
        library = _library(kind, options.rules, options.edits, options.engine)
        lake = ["-"] * 4 if options.no_lake else _lake(kind, options.rules, options.edits)
        rows.append((kind, *library, *lake))
    header = (
        "kind", "full compile, s", "update, s", "load, s", "rows/s after a full compile", "rows/s after the update",
        "full `deltatag compile`, s", "CPU s", "of the edit, s", "CPU s",
    )  # fmt: skip
    print_table(f"{options.edits} edits among {options.rules:,} rules; {machine()}", header, rows)


def _edits(texts: Sequence[str], edits: int) -> dict[int, str]:
    """Rules by their number: each has the text of another."""
    draw = np.random.default_rng(SEED)
    chosen = draw.choice(len(texts), 2 * edits, replace=False)
    return {int(one): texts[int(other)] for one, other in zip(chosen[:edits], chosen[edits:], strict=True)}


def _library(kind: str, rules: int, edits: int, engine: str) -> list[str]:
    given = KINDS[kind].make(rules, KINDS[kind].rate(rules, 1), ROWS, SEED)
    table, texts = given.table(), list(given.texts())
    changes = list(_edits(texts, edits).items())
    before, compile_seconds = _timed(lambda: ri.compile_rules(enumerate(texts), table.schema, engine))
    with tempfile.TemporaryDirectory(prefix="deltatag-bench-") as folder:
        path = Path(folder) / "index"
        before.save(path)
        loaded, load_seconds = _timed(lambda: ri.load(path))
        del before
        updated = loaded.update(changes)
        for number, text in changes:
            texts[number] = text
        full = ri.compile_rules(enumerate(texts), table.schema, engine)
        if updated.fingerprint != full.fingerprint or not updated.match(table).equals(full.match(table)):
            raise SystemExit(f"The update of {kind} is not what a full compile gives.")
        seconds = [_timed(lambda: loaded.update(changes))[1] for _ in range(REPEAT)]
        speeds: dict[str, list[float]] = {"full": [], "updated": []}
        for _ in range(REPEAT):
            for name, compiled in (("full", full), ("updated", updated)):
                speeds[name].append(table.num_rows / _timed(lambda each=compiled: each.match(table))[1])
    found = [compile_seconds, statistics.median(seconds), load_seconds]
    return [*(f"{each:.3g}" for each in found), *(f"{statistics.median(each):,.0f}" for each in speeds.values())]


def _lake(kind: str, rules: int, edits: int) -> list[str]:
    """Seconds and CPU seconds of `deltatag compile`, of all rules and of the edit."""
    given = KINDS[kind].make(rules, KINDS[kind].rate(rules, 1), ROWS, SEED)
    texts = list(given.texts())
    with tempfile.TemporaryDirectory(prefix="deltatag-bench-") as name:
        folder = Path(name)
        write_deltalake(str(folder / "source"), given.table())
        streams = {SCOPE: {"source": str(folder / "source")}}
        workspace = lakes.uncompiled(folder / "lake", None, SCOPE, texts, "bigint", streams=streams)
        configuration = f'[lake]\nroot = "lake"\n[streams.{SCOPE}]\nsource = "source"\n'
        (folder / "deltatag.toml").write_text(configuration)
        whole = _command(folder)
        changes = _edits(texts, edits)
        told = pa.table({"id": list(changes), "text": list(changes.values())})
        merged = DeltaTable(workspace.lake.uri("rules")).merge(told, "r.rule_id = t.id", "t", "r")
        merged.when_matched_update({"expression": "t.text"}).execute()
        return [*whole, *_command(folder)]


def _command(folder: Path) -> list[str]:
    before, started = os.times(), time.perf_counter()
    subprocess.run([sys.executable, "-m", "deltatag", "compile"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    seconds, after = time.perf_counter() - started, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return [f"{seconds:.1f}", f"{cpu:.1f}"]


def _timed(task: Callable[[], Any]) -> tuple[Any, float]:
    started = time.perf_counter()
    found = task()
    return found, time.perf_counter() - started


if __name__ == "__main__":
    main()
