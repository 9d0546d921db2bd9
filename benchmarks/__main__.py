"""All benchmarks at a size that ends within ten minutes; their own help says how to run them larger.

python -m benchmarks [--plots FOLDER]
"""

from __future__ import annotations

import argparse
import subprocess
import sys

RUNS = (
    ("benchmarks.kernel", "--repeat", "3", "--seconds", "1", "--accounts", "30000"),
    (
        "benchmarks.engines", "--rules", "1000", "10000", "--matches", "1", "--engines", "asc", "be_tree", "auto",
        "--repeat", "3", "--seconds", "0.2",
    ),
    ("benchmarks.tag", "--rows", "1000000", "--repeat", "3"),
)  # fmt: skip


def main() -> int:
    """Runs each in a process of its own: some keep to one core, one starts a JVM."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--plots", help="folder for the plots")
    options = parser.parse_args()
    plots = ["--plots", options.plots] if options.plots else []
    failed = [run[0] for run in RUNS if subprocess.run([sys.executable, "-m", *run, *plots], check=False).returncode]
    for name in failed:
        print(f"{name} failed; its message stands above.", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
