"""Whether compiled kernels are there already."""

from __future__ import annotations

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
