"""All experiments of the papers that have not been run yet, and then docs/papers.md.

python -m benchmarks.papers [--size full] [--to build/papers] [--document docs/papers.md]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.papers.command import add_options
from benchmarks.papers.document import write
from benchmarks.papers.papers import PAPERS


def main() -> int:
    """Runs each paper in a process of its own, so that what one keeps in memory burdens no other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    parser.add_argument("--document", type=Path, default=Path("docs/papers.md"))
    parser.add_argument("--write-only", action="store_true", help="run nothing")
    options = parser.parse_args()
    failed = 0
    for paper in PAPERS if not options.write_only else ():
        only = ["--only", *options.only] if options.only else []
        run = [sys.executable, "-m", f"benchmarks.papers.{paper.key}", "--size", options.size, "--to", str(options.to)]
        failed |= subprocess.run([*run, *only], check=False).returncode
    write(PAPERS, options.to, options.document)
    print(f"written: {options.document}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
