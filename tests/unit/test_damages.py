"""Whatever of an index is damaged under a right checksum: it is refused, or all lists are sound, and no kernel reads or
writes beside its arrays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.spark.runtime import numba_cache_folder
from rules_index.index.registry import ENGINES

QUICK = "DELTATAG_QUICK" in os.environ
DAMAGES = int(os.environ.get("DELTATAG_DAMAGES", "40" if QUICK else "400"))
"""Damaged indexes of each engine."""
SEED = os.environ.get("DELTATAG_SEED", "1")


@pytest.mark.parametrize("engine", [*ENGINES, "auto"])
def test_a_damaged_index_is_refused_or_answers_soundly(engine: str, tmp_path: Path) -> None:
    """In a process of its own, whose end would be told; where there is time, with kernels that check their bounds."""
    environment = dict(os.environ)
    if not QUICK:
        environment |= {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(numba_cache_folder() / "checked")}
    command = [sys.executable, "-m", "tests.unit.damages", engine, SEED, str(DAMAGES), str(tmp_path / "log")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    log = tmp_path / "log"
    last = log.read_text().splitlines()[-1:] if log.exists() else []
    assert done.returncode == 0, (last, done.stderr[-2000:])
    result = json.loads(done.stdout)
    assert result["faults"] == []
    # most damages would make the kernels do wrong, and some are of what only says which values a rule is about
    assert result["found"]["refused"] > DAMAGES / 3 and result["found"]["same answers"] > 0
