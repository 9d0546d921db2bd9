"""Whether compiled kernels are there already."""

from __future__ import annotations

import os
import shutil
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


SMALL = """
from rules_index.kernels.jit import jit

@jit
def doubled(number):
    return number * 2
"""
CALL = """
from rules_index.kernels.small import doubled
print(doubled(21), "from the cache" if doubled.stats.cache_hits else "compiled")
"""


def called(package: Path, **environment: str) -> str:
    """What a process prints that calls a kernel of a package in a folder or an archive."""
    environment = {**os.environ, "PYTHONPATH": package.name, **environment}
    run = subprocess.run(
        [sys.executable, "-c", CALL], env=environment, cwd=package.parent, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package in a folder, with a small kernel."""
    folder = tmp_path / "package"
    shutil.copytree(Path(ri.__file__).parent, folder / "rules_index", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "rules_index" / "kernels" / "small.py").write_text(SMALL)
    return folder


@pytest.mark.slow
def test_kernels_of_an_archive_are_compiled_once_wherever_it_is(package: Path, tmp_path: Path) -> None:
    archive = Path(shutil.make_archive(str(tmp_path / "rules_index"), "zip", package))
    for variable in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        folders = {"NUMBA_CACHE_DIR": "", variable: str(tmp_path / variable)}
        assert called(archive, **folders) == "42 compiled"
        (tmp_path / variable / "application").mkdir()
        moved = Path(shutil.copy(archive, tmp_path / variable / "application"))
        os.utime(moved, (1, 1))
        assert called(moved, **folders) == "42 from the cache"


@pytest.mark.slow
def test_a_process_without_a_writable_folder_for_the_cache_compiles_its_kernels(package: Path, tmp_path: Path) -> None:
    archive = Path(shutil.make_archive(str(tmp_path / "rules_index"), "zip", package))
    folders = {"NUMBA_CACHE_DIR": "", "XDG_CACHE_HOME": "/dev/null/cache"}
    assert called(archive, **folders) == "42 compiled"
    # as if the package's own folder could not be written: the root user, too, may run this test
    assert called(package, **folders, NUMBA_CACHE_LOCATOR_CLASSES="UserWideCacheLocator") == "42 compiled"


@pytest.mark.slow
def test_data_of_an_earlier_text_are_not_taken_for_those_of_a_later_one(package: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    kernel = package / "rules_index" / "kernels" / "small.py"
    calling = SMALL.replace(
        "@jit", "from rules_index.kernels.jit import inner\n\n@inner\ndef factor():\n    return 2\n\n@jit"
    )
    calling = calling.replace("number * 2", "number * factor()")
    kernel.write_text(calling)
    assert called(package, NUMBA_CACHE_DIR=str(cache)) == "42 compiled"
    (early,) = cache.rglob("small.doubled*.nbc")
    content = early.read_bytes()
    kernel.write_text(calling.replace("return 2", "return 3"))
    assert called(package, NUMBA_CACHE_DIR=str(cache)) == "63 compiled"
    # a process that was killed after it had written its index, and before the data
    (late,) = cache.rglob("small.doubled*.nbc")
    late.unlink()
    early.write_bytes(content)
    assert called(package, NUMBA_CACHE_DIR=str(cache)) == "63 compiled"
