"""A run killed at any moment and started again neither loses nor doubles a row."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(1200)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in /proc")
def test_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    path = Path(__file__).with_name("killing.py")
    specification = importlib.util.spec_from_file_location("killing", path)
    assert specification is not None and specification.loader is not None
    killing = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(killing)
    killing.show(tmp_path, kills=int(os.environ.get("DELTATAG_KILLS", "1")), seed=3)
