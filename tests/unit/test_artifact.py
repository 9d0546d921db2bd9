"""Whatever the bytes are, loading gives the same index or `ArtifactError`."""

import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.index.compiled import dumps
from rules_index.index.registry import ENGINES

DAMAGES = 400
"""Damaged files of each engine."""
SCHEMA = pa.schema(
    [("a", pa.int32()), ("big", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("d", pa.decimal128(30, 2))]
)
RULES = [
    ("range", "a BETWEEN 3 AND 9 AND x < 2.5"),
    ("set", "a IN (1, 5, 7) AND NOT s = 'b'"),
    ("prefix", "s LIKE 'ab%' OR s IS NULL"),
    ("pattern", "s LIKE '%a%b'"),
    ("computed", "a + 1 < big"),
    ("decimal", "d >= 100.25"),
    ("ors", " AND ".join(f"(a = {i} OR big = {i} OR x > {i})" for i in range(9))),
    ("broken", "a ="),
    *((f"account {i}", f"s = 'account-{i}' AND a > {i % 7}") for i in range(20)),
    *((f"far {i}", f"big >= {i * 10**15}") for i in range(20)),
]


def batch(rows: int = 400) -> pa.Table:
    draw = np.random.default_rng(3)
    strings = ["ab", "b", None, "account-3", "xaxb", ""]
    return pa.table(
        {
            "a": pa.array(draw.integers(0, 12, rows), pa.int32()),
            "big": draw.integers(0, 20, rows) * 10**15 // 7,
            "x": draw.normal(3, 3, rows),
            "s": [strings[i] for i in draw.integers(0, len(strings), rows)],
            "d": pa.array(draw.integers(0, 200, rows)).cast(pa.decimal128(30, 2)),
        }
    )


@pytest.fixture(scope="module", params=[*ENGINES, "auto"])
def compiled(request: pytest.FixtureRequest) -> ri.CompiledRules:
    return ri.compile_rules(RULES, SCHEMA, engine=request.param)


def test_a_saved_index_matches_alike(compiled: ri.CompiledRules, tmp_path: Path) -> None:
    compiled.save(tmp_path / "index")
    loaded = ri.load(tmp_path / "index")
    assert loaded.match(batch()).equals(compiled.match(batch()))
    assert pickle.loads(pickle.dumps(compiled)).match(batch()).equals(compiled.match(batch()))
    assert loaded.errors == compiled.errors
    assert loaded.rejects.equals(compiled.rejects)
    assert (loaded.fingerprint, loaded.engine, loaded.inputs) == (
        compiled.fingerprint,
        compiled.engine,
        compiled.inputs,
    )
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


@pytest.mark.slow
def test_threads_may_save_to_one_path_while_others_load_it(tmp_path: Path) -> None:
    compiled = ri.compile_rules(RULES, SCHEMA)
    path = tmp_path / "index"
    compiled.save(path)
    with ThreadPoolExecutor(4) as pool:
        saves = [pool.submit(compiled.save, path) for _ in range(60)]
        loads = [pool.submit(ri.load, path) for _ in range(60)]
        assert [each.result() for each in saves] == [None] * 60
        assert {each.result().fingerprint for each in loads} == {compiled.fingerprint}
    assert [each.name for each in tmp_path.iterdir()] == ["index"]


def test_a_name_may_be_as_long_as_a_file_name_can(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 127)
    ri.compile_rules(RULES[:1], SCHEMA).save(path)
    assert len(ri.load(path)) == 1


def test_damaged_bytes_are_refused(compiled: ri.CompiledRules) -> None:
    data = dumps(compiled)
    random.seed(1)
    for _ in range(DAMAGES):
        damaged = bytearray(data)
        for _ in range(random.choice([1, 1, 5])):
            damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
        if random.random() < 0.3:
            del damaged[random.randrange(len(damaged)) :]
        if random.random() < 0.1:
            first, second = sorted(random.sample(range(len(damaged)), 2))
            damaged = damaged[second:] + damaged[first:second] + damaged[:first]
        if bytes(damaged) != data:
            with pytest.raises(ri.ArtifactError):
                ri.loads(bytes(damaged))


@pytest.mark.parametrize("content", [b"", b"x", b"PAR1" * 100, b"DELTATAG", b"DELTATAG" + bytes(500)])
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "index"
    path.write_bytes(content)
    with pytest.raises(ri.ArtifactError, match="index"):
        ri.load(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ri.ArtifactError, match="cannot be read"):
        ri.load(tmp_path / "none")
