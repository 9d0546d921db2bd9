"""Whether compiled kernels are there already."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.kernel_cache import is_cold


def test_a_cache_without_the_kernel_that_matches_is_cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert is_cold()
    (tmp_path / "kernels_1").mkdir()
    (tmp_path / "kernels_1" / "match.match_rows-349.py311.nbi").touch()
    assert not is_cold()


def test_a_cache_is_not_cold_after_a_match() -> None:
    rows = pa.table({"x": [1, 2]})
    assert ri.compile_rules([("r", "x > 1")], rows.schema).match(rows).to_pylist() == [[], ["r"]]
    assert not is_cold()


KERNELS = """
import numpy as np
from rules_index.kernels.jit import inner, jit

@inner
def divided(a, b):
    if b == 0:
        raise ZeroDivisionError("there is no quotient")
    return a // b

@jit
def called(a, b):
    return divided(a, b) + 1

@jit
def calling(a, b):
    return called(a, b) + divided(a, 2)

@jit
def filled(size):
    array = np.empty(size, np.int64)
    for place in range(size):
        array[place] = divided(place, 2)
    return array
"""
LOADED = """
import sys
from numba.core.runtime import rtsys
from kernels_of_test import called, filled
assert called(9, 2) == 5 and called.stats.cache_hits
assert filled(5).tolist() == [0, 0, 1, 1, 2] and filled.stats.cache_hits
assert "numba.np.npyimpl" not in sys.modules, "Numba has registered what kernels may call"
assert "numba.np.arrayobj" not in sys.modules, "Numba has imported what a kernel has called"
assert not rtsys._init, "Numba has compiled its runtime"
try:
    called(1, 0)
except ZeroDivisionError as error:
    print(error)
"""
COMPILED = """
from kernels_of_test import called, calling, filled
print({}, len(calling.stats.cache_hits), filled(4).sum())
"""


@pytest.mark.slow
def test_a_kernel_from_the_cache_is_called_and_raises_and_becomes_a_part_of_another_kernel(tmp_path: Path) -> None:
    (tmp_path / "kernels_of_test.py").write_text(KERNELS)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": path}

    def printed(program: str) -> str:
        run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        return run.stdout.strip()

    assert printed("from kernels_of_test import called, filled; print(called(9, 2), *filled(3))") == "5 0 0 1"
    assert printed(LOADED) == "there is no quotient"
    assert printed(COMPILED.format("called(9, 2), calling(9, 2)")) == "5 9 0 2"
    assert printed(COMPILED.format("calling(9, 2), called(9, 2)")) == "9 5 1 2"
