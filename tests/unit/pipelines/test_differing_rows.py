"""What rows two columns differ by: `differing` of `pipelines.row_differences` against counts."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from pipelines.row_differences import differing
from tests.cases import cases


@pytest.mark.parametrize("seed", range(cases(150)))
def test_rows_that_are_left_out_stand_in_both(seed: int) -> None:
    made = random.Random(seed)
    kinds = made.choice([3, 1_000])
    one = [made.choice([None, *range(kinds)]) for _ in range(made.randint(0, 400))]
    size = made.choice([5, 20, 100, 1_000])
    blocks = [one[first : first + size] for first in range(0, len(one), size)]
    if made.random() < 0.5:
        half = len(blocks) // 2
        blocks = [each for pair in zip(blocks[half:], blocks, strict=False) for each in pair] + blocks[2 * half :]
    two: list[Any] = []
    for value in [each for block in blocks for each in block]:
        chance = made.random()
        two += [] if chance < 0.02 else [7_000, value] if chance < 0.03 else [8_000] if chance < 0.04 else [value]
    removed, added = differing(pa.array(one, pa.int64()), pa.array(two, pa.int64()))
    wanted, found = Counter(two), Counter(added.to_pylist())
    wanted.subtract(one)
    found.subtract(removed.to_pylist())
    assert {key: count for key, count in wanted.items() if count} == {
        key: count for key, count in found.items() if count
    }


def test_runs_of_rows_are_found_in_any_order() -> None:
    one = pa.array(range(100_000))
    parts = [one[first : first + 8_000] for first in range(0, 100_000, 8_000)]
    turns = [parts[each] for pair in zip(range(6, 13), range(6), strict=False) for each in pair] + [parts[12]]
    two = pa.concat_arrays([pa.array([-1] * 200), *turns]).filter(
        pa.array([row % 9_999 != 5 for row in range(100_200)])
    )
    removed, added = differing(one, two)
    assert len(added) < 1_000 and len(removed) < 1_000
