"""Damages stored indexes and matches with them, in a process of its own: a damage may end it.

`python -m tests.unit.damages ENGINE SEED COUNT FILE` writes what it damages to FILE before it tries it, and what came
of all of it, as JSON, to standard output.
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import rules_index as ri
from rules_index.compiling import update
from rules_index.domains.list_edits import edited
from rules_index.index.array_checks import InvalidArraysError
from rules_index.index.compiled import dumps

SCHEMA = pa.schema(
    [("a", pa.int32()), ("b", pa.int32()), ("c", pa.int64()), ("x", pa.float64()), ("s", pa.string()),
     ("d", pa.decimal128(30, 2))]
)  # fmt: skip
MIXED = [
    ("range", "a BETWEEN 3 AND 9 AND x < 2.5"),
    ("set", "a IN (1, 5, 7) AND NOT s = 'b'"),
    ("prefix", "s LIKE 'ab%' OR s IS NULL"),
    ("pattern", "s LIKE '%a%b'"),
    ("computed", "a + 1 < c"),
    ("decimal", "d >= 100.25"),
    ("ors", " AND ".join(f"(a = {i} OR c = {i} OR x > {i})" for i in range(9))),
    ("broken", "a ="),
    *((f"account {i}", f"s = 'account-{i}' AND a > {i % 7}") for i in range(20)),
    *((f"far {i}", f"c >= {i * 10**15}") for i in range(20)),
    ("listed", "s IN LIST('texts') OR c NOT IN LIST('numbers') AND d IN LIST('decimals')"),
]


def _edited(name: str, values: pa.Array, removed: pa.Array, added: pa.Array) -> Iterator[ri.ValueList]:
    """A list after an edit."""
    found = edited(ri.value_list(name, values), removed, added, "")
    assert found is not None
    yield found


LISTS = [
    *_edited("texts", pa.array(["ab", "", "ab", "gone"]), pa.array(["gone"]), pa.array(["none", "account-3"])),
    *_edited("numbers", pa.array([*range(0, 61, 3), 10**12]), pa.array([60]), pa.array([], pa.int64())),
    ri.value_list("decimals", pa.array(range(0, 200, 2)).cast(pa.decimal128(30, 2))),
]
KEYED = [(f"k{i:04}", f"a = {i % 12} AND b = {i % 31} AND c = {i * 7 % 53} AND x > {i % 5}") for i in range(1500)]
PLAIN = [(f"p{i:04}", f"a = {i % 12} AND b = {i // 12}") for i in range(360)]
SPANS = [(f"r{i:04}", f"c BETWEEN {i} AND {i + 40} AND x >= {i % 9} AND a <> {i % 12}") for i in range(400)]
SETS = [(f"s{i:04}", f"b IN ({i % 31}, {i % 17}, {i % 5}) AND (a < {i % 12} OR c > {i % 53})") for i in range(300)]
RULE_SETS = (MIXED, KEYED, PLAIN, SPANS, SETS)


def rows(count: int) -> pa.Table:
    """Rows that meet some of the rules."""
    draw = np.random.default_rng(3)
    texts = ["ab", "b", None, "account-3", "xaxb", ""]
    return pa.table(
        {
            "a": pa.array(draw.integers(0, 12, count), pa.int32()),
            "b": pa.array(draw.integers(0, 31, count), pa.int32()),
            "c": draw.integers(0, 60, count),
            "x": draw.normal(3, 3, count),
            "s": [texts[i] for i in draw.integers(0, len(texts), count)],
            "d": pa.array(draw.integers(0, 200, count)).cast(pa.decimal128(30, 2)),
        },
        SCHEMA,
    )


class Stored:
    """An index's bytes, taken apart."""

    def __init__(self, compiled: ri.CompiledRules) -> None:
        data = dumps(compiled)
        length = int.from_bytes(data[12:16], "little")
        self.prefix, self.header, self.body = data[:12], data[48 : 48 + length], data[48 + length :]

    def with_header(self, header: Any) -> bytes:
        """The file with another header, and a checksum that is right."""
        text = json.dumps(header).encode()
        text += b" " * (-(48 + len(text)) % 64)
        return self._file(text, self.body)

    def with_body(self, body: bytes) -> bytes:
        """The file with other sections, and a checksum that is right."""
        return self._file(self.header, body)

    def _file(self, text: bytes, body: bytes) -> bytes:
        return self.prefix + struct.pack("<I", len(text)) + hashlib.sha256(text + body).digest() + text + body


def sections(header: Any, path: str = "") -> Iterator[tuple[str, list[Any]]]:
    """The references to arrays in a header, by where they stand."""
    if isinstance(header, list) and len(header) == 3 and isinstance(header[0], str) and isinstance(header[2], list):
        yield path, header
        return
    items = header.items() if isinstance(header, dict) else enumerate(header) if isinstance(header, list) else ()
    for key, value in items:
        yield from sections(value, f"{path}/{key}")


def damaged_array(stored: Stored, draw: random.Random) -> tuple[str, bytes]:
    """One or some elements of one array have other values."""
    path, (dtype, position, shape) = draw.choice(list(sections(json.loads(stored.header))))
    body = bytearray(stored.body)
    array = np.frombuffer(body, dtype, int(np.prod(shape)), position)
    if not len(array):
        return damaged_header(stored, draw)
    at = draw.randrange(len(array))
    kind = draw.randrange(5)
    if kind == 0 and len(array) > 1:
        other = draw.randrange(len(array))
        array[[at, other]] = array[[other, at]]
        return f"{path}: [{at}] and [{other}] swapped", stored.with_body(bytes(body))
    if kind == 1:
        last = min(len(array), at + draw.choice([2, 3, 8, 64]))
        array[at:last] = array[at:last][::-1].copy()
        return f"{path}: [{at}:{last}] turned round", stored.with_body(bytes(body))
    if array.dtype.kind == "f":
        array[at] = draw.choice([0.0, -1.0, 1e308, np.nan, np.inf, -np.inf, float(array[at]) + 1])
        return f"{path}: [{at}] {array[at]}", stored.with_body(bytes(body))
    limits = np.iinfo(array.dtype)
    value = int(array[at])
    value = draw.choice(
        [0, 1, -1, 3, value + 1, value - 1, value + 2, -value, value * 2, 254, 255, 256, 2**16, len(array),
         len(array) + 1, limits.min, limits.max, limits.max // 2, int(array[draw.randrange(len(array))]),
         draw.randrange(100), value ^ (1 << draw.randrange(31))]
    )  # fmt: skip
    value = min(max(value, limits.min), limits.max)
    array[at : at + draw.choice([1, 1, 1, 2, 16])] = value
    return f"{path}: [{at}] {value}", stored.with_body(bytes(body))


def places(value: Any, path: str = "") -> Iterator[tuple[str, Callable[[Any], None], Any]]:
    """What stands in a header, and how it is put into it."""
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    for key, each in items:
        yield f"{path}/{key}", lambda new, key=key: value.__setitem__(key, new), each
        if isinstance(each, dict | list):
            yield from places(each, f"{path}/{key}")


def damaged_header(stored: Stored, draw: random.Random) -> tuple[str, bytes]:
    """Something else stands somewhere in the header."""
    header = json.loads(stored.header)
    all_places = list(places(header))
    path, put, before = draw.choice(all_places)
    if draw.randrange(3) == 0:
        path, put, before = draw.choice([place for place in all_places if "/attributes" in place[0]])
    others = [None, True, 0, 1, -1, 2**31, 2**70, 0.5, "", "a", "é" * 9, [], {}, [[]], draw.choice(all_places)[2]]
    if isinstance(before, int) and not isinstance(before, bool):
        others += [before + 1, before - 1, before + 64, before - 64, before * 2] * 3
    if isinstance(before, str):
        others += [draw.choice([text for _, _, text in all_places if isinstance(text, str)])] * 8
    if isinstance(before, list):
        others += [before[1:], before[::-1], before * 2, before[:-1]] * 3
    value = draw.choice(others)
    put(copy.deepcopy(value))  # a list that held itself would be no JSON
    if isinstance(before, dict) and before and draw.randrange(2):
        value = {key: each for key, each in before.items() if key != draw.choice(list(before))}
        put(value)
    return f"{path}: {str(value)[:60]}", stored.with_header(header)


def unsound(compiled: ri.CompiledRules, answer: tuple[np.ndarray, np.ndarray], count: int) -> str | None:
    """What is wrong with lists of ordinals, whatever rules they are of."""
    offsets, ordinals = answer
    if len(offsets) != count + 1 or offsets[0] != 0 or offsets[-1] != len(ordinals) or (np.diff(offsets) < 0).any():
        return "the offsets are none"
    if len(ordinals) and (ordinals.min() < 0 or ordinals.max() >= len(compiled)):
        return "a rule that there is not"
    first = np.zeros(len(ordinals) + 1, bool)
    first[offsets] = True
    if not (first[1:-1] | (ordinals[1:] > ordinals[:-1])).all():
        return "a list that does not ascend"
    return None


def tried(data: bytes, table: pa.Table, expected: tuple[np.ndarray, np.ndarray]) -> str:
    """What came of a damaged index; whatever else is raised is a fault."""
    try:
        compiled = ri.loads(data)
        *answer, _ = compiled.match_ordinals(table)
    except (ri.ArtifactError, ri.SchemaError):
        return "refused"
    wrong = unsound(compiled, (answer[0], answer[1]), table.num_rows)
    if wrong is not None:
        return wrong
    codes, _ = compiled.codes(table)
    for row in range(0, table.num_rows, 16):
        try:
            found, _ = compiled.index.search(np.ascontiguousarray(codes[:, row]))
        except InvalidArraysError:
            return "refused"
        wrong = unsound(compiled, (np.array([0, len(found)]), found), 1)
        if wrong is not None:
            return f"search: {wrong}"
    same = all(np.array_equal(a, b) for a, b in zip(answer, expected, strict=True))
    return "same answers" if same else "other answers"


def main(engine: str, seed: str, count: str, path: str) -> None:
    """Damage indexes of one engine over each rule set in turn, as compiled and as updated."""
    draw, table, found, faults = random.Random(int(seed)), rows(130), Counter[str](), []
    kept = []
    update.FEW_RULES = 0
    for rules in RULE_SETS:
        full = ri.compile_rules(rules, SCHEMA, engine=engine, lists=LISTS)
        updated = full.update([(rules[0][0], None), (rules[1][0], rules[2][1]), ("new", rules[3][1])])
        for compiled in (full, updated):
            offsets, ordinals, _ = compiled.match_ordinals(table)
            kept.append((Stored(compiled), (offsets, ordinals)))
    with open(path, "w") as log:
        for number in range(int(count)):
            which = number % len(kept)
            stored, expected = kept[which]
            damage = damaged_header if draw.randrange(4) == 0 else damaged_array
            what, data = damage(stored, draw)
            print(f"{engine}, seed {seed}, number {number}, rule set {which}: {what}", file=log, flush=True)
            try:
                result = tried(data, table, expected)
            except Exception as error:
                result = f"{type(error).__name__}: {error}"
            found[result] += 1
            if result not in ("refused", "same answers", "other answers"):
                faults.append(f"number {number}, rule set {which}: {what}: {result}")
                Path(f"{path}.{number}").write_bytes(data)
    print(json.dumps({"found": found, "faults": faults[:20]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
