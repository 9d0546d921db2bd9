"""What a Spark worker makes of one partition: the same joined rows by both methods, however the partition is cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.join.index import JoinIndex, Method
from rules_index.join.window_partners import Side
from rules_index.join.worker import KEY, NEW, OWNED, STREAM, TIME, JoinTask, join_partition, own_column
from tests.cases import cases, quick_first
from tests.unit.join.random_joins import COLUMNS, Draw, Joined, brute_force

CASES = max(8, cases(8, "DELTATAG_JOIN_CASES"))
"""Random partitions for each number of streams and each method."""
SHAPES = {2: (40, 2, 12), 3: (14, 2, 6), 6: (5, 1, 2)}
"""For each number of streams, the bound of a side's rows, keys, and the span of their times."""
NAMES = (*(name for name, _ in COLUMNS), "row")


def partition(draw: Draw, sides: Sequence[Side]) -> pa.Table:
    """The rows of all sides as Spark hands them over: by time, columns of other streams NULL, each with its number."""
    parts = []
    for number, (stream, side) in enumerate(zip(draw.streams, sides, strict=True)):
        count = side.rows.num_rows
        null = side.keys < 0
        columns = {
            STREAM: pa.array(np.full(count, number), pa.int8()),
            TIME: pa.array(side.times, pa.int64()),
            NEW: pa.array(side.new),
            OWNED: pa.array(side.owned),
            # the key is two columns, a NULL in either of which joins nothing
            f"{KEY}0": pa.array(side.keys % 2, pa.int32(), mask=null & (side.times % 2 == 0)),
            f"{KEY}1": pa.array([str(key // 2) for key in side.keys.tolist()], mask=null & (side.times % 2 != 0)),
            own_column(stream, "row"): pa.array(np.arange(count)),
            **{own_column(stream, name): side.rows[name] for name, _ in COLUMNS},
        }
        parts.append(pa.table(columns))
    rows = pa.concat_tables(parts, promote_options="default")
    # rows of one time come in any order
    shuffled = rows.take(pa.array(draw.random.permutation(rows.num_rows)))
    return shuffled.take(pa.array(np.argsort(shuffled[TIME].to_numpy(), kind="stable")))


def batches_of(rows: pa.Table, size: int) -> Iterator[pa.RecordBatch]:
    """A partition in batches, some of which are empty."""
    for batch in rows.combine_chunks().to_batches(max_chunksize=size):
        yield batch.slice(0, 0)
        yield batch


def joined_by(batches: Iterator[pa.RecordBatch], streams: Sequence[str]) -> Joined:
    """Joined rows by the numbers of their rows, none of which stands twice."""
    found: Joined = {}
    for batch in batches:
        numbers = [batch.column(stream).field("row").to_pylist() for stream in streams]
        for rows, rules in zip(zip(*numbers, strict=True), batch["rule_ids"].to_pylist(), strict=True):
            assert rows not in found
            found[rows] = rules
    return found


@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("method", ["batch", "pdfa"])
@pytest.mark.parametrize("streams", quick_first(1, SHAPES, 2))
@pytest.mark.slow
def test_a_partition_gives_every_joined_row_once(streams: int, method: Method) -> None:
    bound, keys, span = SHAPES[streams]
    total = old = 0
    for seed in range(CASES):
        draw = Draw(7_000 * streams + seed, streams)
        rules = [(number, draw.rule()) for number in range(draw.random.integers(1, 25))]
        compiled = ri.compile_rules(rules, draw.schema)
        sides = [draw.side(int(draw.random.integers(1, bound)), keys, span) for _ in draw.streams]
        windows = draw.random.choice([0, 1, 3, 100], streams, p=[0.1, 0.2, 0.3, 0.4]).tolist()
        task = JoinTask(draw.streams, (NAMES,) * streams, tuple(windows), 2, pa.int64(), method)
        rows = partition(draw, sides)
        index = JoinIndex.of(compiled, draw.streams)
        expected = brute_force(compiled, draw.streams, sides, windows)
        for chunk_rows, size in ((1 << 19, 1000), (int(draw.random.integers(1, 8)), int(draw.random.integers(1, 5)))):
            found = joined_by(join_partition(index, task, batches_of(rows, size), chunk_rows), draw.streams)
            assert found == expected, (seed, chunk_rows, size)
        total += len(expected)
        old += sum(not side.new[row] for each in expected for side, row in zip(sides, each, strict=True))
    assert total > 3 * CASES and old > 0


def test_both_methods_write_equal_columns() -> None:
    draw = Draw(11, 2)
    compiled = ri.compile_rules([(1, "true"), (2, "alpha.x > 0 AND beta.y > 1")], draw.schema)
    rows = partition(draw, [draw.side(30, 2, 12) for _ in draw.streams])
    index = JoinIndex.of(compiled, draw.streams)
    tables = []
    methods: tuple[Method, ...] = ("batch", "pdfa")
    for method in methods:
        task = JoinTask(draw.streams, (NAMES,) * 2, (4, 4), 2, pa.string(), method)
        found = pa.Table.from_batches(join_partition(index, task, batches_of(rows, 7)))
        tables.append(found.schema)
        texts = sorted(map(str, found.to_pylist()))
        assert len(texts) > 10
        tables.append(texts)
    assert tables[:2] == tables[2:]
