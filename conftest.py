"""What all tests share that needs no Spark: published data sets, marks by folder, and no word to anybody's server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from pipelines.spark.runtime import numba_cache_folder
from tests.cases import QUICK

ROOT = Path(__file__).resolve().parent
# Marks that follow from where a test stands, so that `-m "not spark"` never depends on somebody's memory.
MARKS = {"spark": ("spark",), "dagster": ("dagster",), "end_to_end": ("spark",)}

os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "yes")
os.environ.setdefault("MPLBACKEND", "Agg")
# A busy machine is no failure, and a run shows what the run before showed.
settings.register_profile("deltatag", deadline=None, derandomize=True, max_examples=25 if QUICK else 100)
settings.load_profile("deltatag")
os.environ["NUMBA_CACHE_DIR"] = str(numba_cache_folder())


def published_data() -> Path:
    """The folder of published data sets: the one that DELTATAG_DATA names, else `shared/data` beside the checkout."""
    return Path(os.environ.get("DELTATAG_DATA") or ROOT.parent / "shared" / "data").absolute()


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of published data sets, for tests with the mark `data`."""
    return published_data()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their folder, and skip those whose data is not on this machine."""
    folder = published_data()
    reason = f"there are no published data sets in {folder}; DELTATAG_DATA can name another folder"
    for item in items:
        for part in item.path.relative_to(ROOT).parts[1:2]:
            for mark in MARKS.get(part, ()):
                item.add_marker(mark)
        if item.get_closest_marker("data") and not folder.is_dir():
            item.add_marker(pytest.mark.skip(reason=reason))
