"""Edits of lists in the library: each version equals a list of all its values, in memory and in files that share."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.domains import value_lists
from rules_index.domains.list_edits import edited
from rules_index.index import artifact, shared_files
from rules_index.index.checksum_cache import sha256_once
from rules_index.index.compiled import dumps
from tests.cases import cases
from tests.unit.damages import Stored
from tests.unit.index_files import require_refused, saved
from tests.unit.test_value_lists import LEAST, MOST, VALUES, fits

PEOPLE = pa.schema([("who", pa.string())])
RULES = [("listed", "who IN LIST('bad')"), ("others", "who NOT IN LIST('bad')")]


def picks(made: random.Random, name: str, kind: pa.DataType) -> list[Any]:
    """The values that a history is about: those of the type that are hard, and many others."""
    values = [each for each in VALUES[name][2] if fits(each, kind)]
    if pa.types.is_int64(kind):
        values += [*range(-20, 20), *(MOST - 3, LEAST + 3), *(made.randrange(LEAST, MOST) for _ in range(30))]
    if pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        texts = ["".join(made.choices("ab\0é", k=made.randint(0, 4))) for _ in range(60)]
        values += texts if pa.types.is_large_string(kind) else [each.encode() for each in texts]
    return list(dict.fromkeys(values))


@pytest.mark.parametrize("seed", range(cases(60)))
def test_a_history_of_edits_gives_the_list_of_all_values(seed: int) -> None:
    made = random.Random(seed)
    name = made.choice(list(VALUES))
    kind = VALUES[name][1]
    values = picks(made, name, kind)
    held = made.choices([*values, None], k=made.randint(0, 2 * len(values)))
    now = ri.value_list(name, pa.array(held, kind), "0")
    for step in range(8):
        # some of the rows that go come again, as when a file is written anew
        gone = made.sample(held, made.randint(0, len(held)))
        come = made.choices([*values, None], k=made.randint(0, 9)) + made.sample(gone, made.randint(0, len(gone)))
        left = Counter(map(repr, gone))
        kept = []
        for each in held:
            if left[repr(each)]:
                left[repr(each)] -= 1
            else:
                kept.append(each)
        held = kept + come
        found = edited(now, pa.array(gone, kind), pa.chunked_array([pa.array(come, kind)]), str(step))
        whole = ri.value_list(name, pa.array(held, kind))
        assert found is not None
        assert (found.count, found.digest, found.rows, found.stamp) == (whole.count, whole.digest, len(held), str(step))
        asked = pa.array([*values, None], kind).cast(whole.type)
        assert found.contains(asked).tolist() == whole.contains(asked).tolist()
        schema = pa.schema([("v", whole.type)])
        loaded = ri.loads(dumps(ri.compile_rules([(1, f"v IN LIST('{name}')")], schema, lists=[found]))).lists[name]
        assert loaded.contains(asked).tolist() == whole.contains(asked).tolist() and loaded.digest == whole.digest
        now = made.choice([found, loaded])


def test_a_value_leaves_a_list_with_its_last_row() -> None:
    now = ri.value_list("bad", pa.array(["a", "a", "b"]))
    for removed, added, members in (("a", "b", "ab"), ("b", "", "ab"), ("a", "", "b"), ("b", "", ""), ("", "a", "a")):
        found = edited(now, pa.array([*removed], pa.string()), pa.array([*added], pa.string()), "")
        assert found is not None
        now = found
        assert "".join(each for each in "ab" if now.contains(pa.array([each]))[0]) == members


def test_what_cannot_be_told_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    held = ri.value_list("bad", pa.array(["a", "a", "b"]))
    none, text = pa.array([], pa.string()), pa.array(["c"])
    assert edited(held, text, none, "") is None, "a row that the list does not have"
    assert edited(held, pa.array(["b", "b"]), none, "") is None
    assert edited(held, none, pa.array([1]), "") is None and edited(held, pa.array([b""]), text, "") is None
    many = pa.array([str(each) for each in range(value_lists.most_counted(3) + 1)])
    assert edited(held, none, many, "") is None, "as much as reading the list"
    assert ri.value_list("bad", pa.concat_arrays([many, many])).counts is None
    assert edited(ri.value_list("bad", pa.concat_arrays([many, many])), none, text, "") is None
    monkeypatch.setattr(value_lists, "_LEAST_COUNTED", 1)
    first = edited(held, none, text, "")
    assert first is None, "two values differ from the base"


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The file of an index, and that of its next version, in which a list has been edited."""
    monkeypatch.setattr(shared_files, "SHARED_BYTES", 0)
    values = pa.array([f"person {number}" for number in range(5_000)])
    first = saved(ri.compile_rules(RULES, PEOPLE, lists=[ri.value_list("bad", values)]), tmp_path)
    before = ri.load(first)
    now = edited(before.lists["bad"], values[7:8], pa.array(["new"]), "later")
    assert now is not None
    return first, saved(before.update([], lists=[now]), tmp_path)


def test_versions_of_an_index_share_a_list(shared: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = shared
    assert second.stat().st_size < first.stat().st_size / 10
    compiled = ri.load(second)
    assert compiled.list_files == [first.name] and ri.load(first).list_files == [first.name]
    table = pa.table({"who": ["person 7", "person 8", "new", None]})
    wanted = [["others"], ["listed"], ["listed"], []]
    assert compiled.match(table).to_pylist() == wanted
    whole = ri.value_list("bad", pa.array(["new", *(f"person {number}" for number in range(5_000) if number != 7)]))
    assert compiled.fingerprint == ri.compile_rules(RULES, PEOPLE, lists=[whole]).fingerprint
    # the next version again shares the first file, and bytes for elsewhere hold all
    found = edited(compiled.lists["bad"], pa.array(["new"]), pa.array(["person 7"]), "")
    assert found is not None
    third = ri.load(saved(compiled.update([], lists=[found]), tmp_path))
    assert third.list_files == [first.name] and third.fingerprint == ri.load(first).fingerprint
    assert ri.loads(dumps(compiled)).match(table).to_pylist() == wanted


def test_an_index_without_the_file_of_its_lists_is_refused(shared: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = shared
    require_refused(second, first, ri.compile_rules(RULES, PEOPLE, lists=[ri.value_list("bad", pa.array(["x"]))]))


@pytest.mark.parametrize(
    ("key", "value"),
    [("file", "../x.index"), ("file", 3), ("checksum", "00"), ("base", "00"), ("name", "worse"), ("counts", [0, 0]),
     ("rows", "1"), ("stamp", None), ("values", None)],
)  # fmt: skip
def test_a_forged_reference_is_refused(shared: tuple[Path, Path], key: str, value: Any) -> None:
    first, second = shared
    stored = Stored(ri.load(second))
    data = second.read_bytes()
    length = int.from_bytes(data[12:16], "little")
    header = json.loads(data[48 : 48 + length])
    stored.body = data[48 + length :]
    header["lists"][0][key] = value
    forged = second.with_name("forged.index")
    forged.write_bytes(stored.with_header(header))
    with pytest.raises(ri.ArtifactError):
        ri.load(forged)
    assert ri.load(first)


def test_a_file_is_read_through_again_once_it_has_changed(
    shared: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = shared
    os.utime(first, (0, 0))
    time.sleep(0.1)
    assert sha256_once(first) == first.stem and ri.load(second).lists
    monkeypatch.setattr(artifact.hashlib, "sha256", None)
    assert ri.load(first).lists, "its bytes are not read through again"
    monkeypatch.undo()
    data = bytearray(first.read_bytes())
    data[-100] ^= 1
    with first.open("r+b") as file:
        file.write(data)
    assert sha256_once(first) != first.stem
    for path in (first, second):
        with pytest.raises(ri.ArtifactError):
            ri.load(path)
