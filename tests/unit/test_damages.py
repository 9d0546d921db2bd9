"""Whatever of an index is damaged under a right checksum: it is refused, or all lists are sound, and no kernel reads or
writes beside its arrays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rules_index as ri
from pipelines.spark.runtime import numba_cache_folder
from rules_index.index.registry import ENGINES
from tests.cases import SOAK, cases, quick_first
from tests.unit.damages import KEYED, PLAIN, SCHEMA, Stored, sections

DAMAGES = max(40, cases(160, "DELTATAG_DAMAGES"))
"""Damaged indexes of each engine."""
SEED = os.environ.get("DELTATAG_SEED", "1")


@pytest.mark.parametrize(
    "engine",
    quick_first(0, ["auto", "scan", "be_tree", *(name for name in ENGINES if name not in ("scan", "be_tree"))], 3),
)
def test_a_damaged_index_is_refused_or_answers_soundly(engine: str, tmp_path: Path) -> None:
    """In a process of its own, whose end would be told; its kernels check their bounds where `make` has all do so."""
    environment = dict(os.environ)
    if SOAK:
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


@pytest.mark.parametrize("rules", [KEYED, PLAIN], ids=["keyed", "plain"])
@pytest.mark.parametrize(
    ("name", "place", "change"),
    [
        ("key_factors", -1, lambda value: 0),
        ("key_factors", 0, lambda value: value + 1),
        ("scalars", 3, lambda value: 1 - value),
        ("scalars", 4, lambda value: 1 - value),
        ("scalars", 5, lambda value: value + 1),
        ("scalars", 6, lambda value: 1 - value),
        ("slot_at", -1, lambda value: value + 1),
        ("filter_at", 0, lambda value: value + 1),
        ("term_start", -1, lambda value: value + 1),
    ],
)
def test_what_the_kernels_follow_is_told_by_the_rest_of_an_index(rules, name: str, place: int, change) -> None:
    """Each of these had kernels read beside their arrays, or return lists that were not sorted."""
    stored = Stored(ri.compile_rules(rules, SCHEMA, engine="hybrid"))
    found = [each for path, each in sections(json.loads(stored.header)) if path.endswith("kernel_" + name)]
    ((dtype, position, shape),) = found
    body = bytearray(stored.body)
    array = np.frombuffer(body, dtype, int(np.prod(shape)), position)
    assert len(array), name
    array[place] = change(array[place])
    with pytest.raises(ri.ArtifactError):
        ri.loads(stored.with_body(bytes(body)))
    assert ri.loads(stored.with_body(stored.body))


def test_a_header_that_names_other_inputs_is_refused() -> None:
    stored = Stored(ri.compile_rules(PLAIN, SCHEMA))
    for change in (lambda each: each[1:], lambda each: [*each, each[0]], lambda each: each[::-1]):
        header = json.loads(stored.header)
        (holder,) = [each for each in (header, *header.values()) if isinstance(each, dict) and "inputs" in each]
        holder["inputs"] = change(holder["inputs"])
        with pytest.raises(ri.ArtifactError):
            ri.loads(stored.with_header(header))
