"""What the verb compile takes: from the rules in a Delta table to the index in another, time and memory.

    python -m benchmarks.compile [--kinds ranges accounts] [--rules 1000000] [--timeout 900]

Each rule set (`kinds.py`, one match a row, or as near as can be had) gets a lake of its own, with a source of
`ROWS` rows, and is compiled in a process of its own, where some rules were compiled before, so that libraries and
kernels are there. Linux only.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from deltalake import write_deltalake

from benchmarks import lakes
from benchmarks.engines import SEED
from benchmarks.kinds import KINDS
from benchmarks.memory import cost, cost_cells
from benchmarks.report import machine, print_table

ROWS = 1 << 18
WARM_RULES = 1_000
SCOPE = "events"


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", nargs="+", default=["ranges", "accounts"], choices=list(KINDS), metavar="KIND")
    parser.add_argument("--rules", type=int, default=1_000_000)
    parser.add_argument("--timeout", type=float, default=900, help="seconds for each rule set")
    parser.add_argument("--measure", type=Path, nargs=2, metavar="LAKE", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        print(json.dumps(_measure(*options.measure)))
        return
    rows = []
    for kind in options.kinds:
        print(f"{kind}, {options.rules:,} rules", file=sys.stderr, flush=True)
        rows.append((kind, *_compiled(kind, options.rules, options.timeout)))
    header = ("kind", "CPU seconds", "MiB stored", "MiB more at most")
    print_table(f"compile of {options.rules:,} rules from a Delta table; {machine()}", header, rows)


def _compiled(kind: str, rules: int, timeout: float) -> Sequence[str]:
    """CPU seconds, MiB stored and MiB at most, or why they are not known."""
    with tempfile.TemporaryDirectory(prefix="deltatag-bench-") as folder:
        places = [Path(folder) / name for name in ("warm", "measured")]
        for place, count in zip(places, (WARM_RULES, rules), strict=True):
            _write(place, kind, count)
        return cost_cells("benchmarks.compile", ("--measure", *map(str, places)), timeout)


def _write(folder: Path, kind: str, rules: int) -> None:
    """A source, and a lake with rules."""
    given = KINDS[kind].make(rules, KINDS[kind].rate(rules, 1), ROWS, SEED)
    write_deltalake(str(folder / "source"), given.table())
    lakes.uncompiled(folder / "lake", None, SCOPE, given.texts(), "bigint", streams=_streams(folder))


def _streams(folder: Path) -> dict[str, dict[str, str]]:
    return {SCOPE: {"source": str(folder / "source")}}


def _measure(warm: Path, folder: Path) -> tuple[float, int, int]:
    """CPU seconds, bytes of the index, and bytes of memory at most above what there was before."""
    warm_up, workspace = (lakes.opened(each / "lake", None, streams=_streams(each)) for each in (warm, folder))
    lakes.compile_rules(warm_up, SCOPE)
    result, seconds, most = cost(lambda: lakes.compile_rules(workspace, SCOPE))
    return seconds, result.bytes, most


if __name__ == "__main__":
    main()
