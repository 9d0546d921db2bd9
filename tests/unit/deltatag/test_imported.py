"""What a command imports: a small run takes less time than an import of what it does not need."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from deltatag.__main__ import main
from tests.cases import quick_first
from tests.unit.deltatag.small_lake import rules


@pytest.mark.parametrize("verb", quick_first(1, ["run", "status", "retag"]))
def test_what_nothing_is_due_for_imports_little(folder: Path, verb: str) -> None:
    """A scheduled run mostly finds nothing to do; kernels and Pandas take longer to import than that takes to see."""
    rules(("a", "s", "x > 1"))
    assert main(["run"]) == 0
    command = [sys.executable, "-X", "importtime", "-m", "deltatag", verb]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Nothing was due" in loaded.stdout or verb != "run"
    for heavy in ("numba", "pandas.core", "pyspark", "great_expectations", "rules_index.language.analyser"):
        assert f" {heavy}\n" not in loaded.stderr


@pytest.mark.slow
def test_a_run_without_spark_imports_nothing_for_libraries_of_libraries(folder: Path) -> None:
    """Arrow would import pandas, and Numba SciPy, PyYAML and a parser of C: together half a second."""
    rules(("a", "s", "x > 1"))
    command = [sys.executable, "-X", "importtime", "-m", "deltatag", "run"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "1 rule" in loaded.stdout
    assert " numba\n" in loaded.stderr
    for heavy in ("pandas.core", "pyspark", "great_expectations", "scipy.version", "yaml.reader", "cffi.api"):
        assert f" {heavy}\n" not in loaded.stderr


@pytest.mark.slow
def test_a_tag_without_spark_imports_neither_polars_nor_what_compiles(folder: Path) -> None:
    """Polars is a tenth of the time and of the memory of a small tag."""
    rules(("a", "s", "x > 1 AND x < 9"))
    assert main(["compile"]) == 0
    command = [sys.executable, "-X", "importtime", "-m", "deltatag", "tag"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "2 rows, 1 match" in loaded.stdout
    for heavy in ("polars", "rules_index.compiling.compile"):
        assert f" {heavy}\n" not in loaded.stderr


def test_help_is_instant() -> None:
    started = time.perf_counter()
    loaded = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "deltatag", "--help"], capture_output=True, text=True, check=True
    )
    assert time.perf_counter() - started < 5  # of a loaded machine; what matters is what was imported
    for heavy in ("pyspark", "polars", "deltalake", "pyarrow", "numba", "dagster", "great_expectations"):
        assert f" {heavy}\n" not in loaded.stderr
