"""Each region has a value, unless no value of the type lies in it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.implication.representatives import least_text, representatives
from tests.random_rows import ARROW, VALUES, WHOLE

CASES: list[tuple[pa.DataType, list[str], list[Any]]] = [
    (pa.int32(), ["c > 3", "c < 4"], [3, 4]),
    (pa.int32(), ["c > 3", "c < 5", "c = 9"], [3, 4, 5, 9]),
    (pa.int8(), ["c >= 127", "c > -128"], [-128, -127, 127]),
    (pa.int64(), ["c > 9223372036854775806", "c < -9223372036854775807"], [-(1 << 63), -(1 << 63) + 1, (1 << 63) - 1]),
    (pa.bool_(), ["c"], [False, True]),
    (pa.float64(), ["c > double('Infinity')", "c = double('NaN')", "c >= 0.5"], [0.0, 1.0, None, float("nan")]),
    (pa.float32(), ["c > 0.1", "c < 0.100000001"], [0.0, None, 1.0]),
    (pa.string(), ["c LIKE 'ÿ%'", "c >= 'Ā'"], ["", "ÿ", None, "Ā"]),
    (pa.string(), ["c = 'a'", "c = 'a\\0'", "c > 'a'"], ["", "a", "a\0", "a\0\0"]),
    (pa.string(), ["c < 'a\\0'", "c > 'a'", "c = ''"], ["", "\0", "a\0"]),
    (pa.binary(), ["c = X''", "c > X'ff'"], [b"", b"\0", b"\xff\0"]),
]


@pytest.mark.parametrize(("data_type", "rules", "expected"), CASES)
def test_regions_and_their_values(data_type: pa.DataType, rules: list[str], expected: list[Any]) -> None:
    compiled = ri.compile_rules(list(enumerate(rules)), pa.schema([("c", data_type)]))
    assert compiled.rejects.num_rows == 0
    found = representatives(compiled.regions[0]).to_pylist()
    # a region of points and what lies around them has the place of what lies around
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in VALUES if name not in ("boolean", "timestamp", "timestamp_ntz")])
def test_a_value_lies_in_its_region_and_a_region_without_a_value_holds_none(name: str) -> None:
    values = sorted({value for value in VALUES[name] if value == value and abs_below(value)})
    column = pa.array([*values, *neighbours(values, name)], ARROW[name])
    for first, second in itertools.pairwise(values):
        rules = [(0, f"c > {text(first, name)}"), (1, f"c < {text(second, name)}"), (2, f"c = {text(values[0], name)}")]
        compiled = ri.compile_rules(rules, pa.schema([("c", ARROW[name])]))
        assert compiled.rejects.num_rows == 0, compiled.rejects.to_pylist()
        (regions,) = compiled.regions
        known = representatives(regions)
        codes = np.empty(len(known), np.int32)
        regions.encode(known, None, codes)
        held = np.asarray(known.is_valid())
        assert np.array_equal(codes[held], np.flatnonzero(held)), rules
        met = np.empty(len(column), np.int32)
        regions.encode(column, None, met)
        assert held[met].all(), rules


def test_the_least_text_is_the_least() -> None:
    letters = [0x00, 0x61, 0x7F, 0x80, 0xBF, 0xC2, 0xC3, 0xE0, 0xED, 0x9F, 0xA0, 0xEF, 0xF4, 0x8F, 0x90, 0xFF]
    texts = sorted(
        bytes(each) for n in range(4) for each in itertools.product(letters, repeat=n) if is_text(bytes(each))
    )
    for n in range(3):
        for low in map(bytes, itertools.product(letters, repeat=n)):
            found = least_text(low)
            least = next((each for each in texts if each >= low), None)
            assert found is None or (found >= low and is_text(found))
            assert found is not None or least is None
            assert least is None or (found is not None and found <= least)


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def abs_below(value: Any) -> bool:
    """Whether a literal of a value can be written."""
    return not isinstance(value, float) or abs(value) < 1e300


def text(value: Any, name: str) -> str:
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if name == "date":
        return f"DATE'{value.isoformat()}'"
    if name in WHOLE or name.startswith("decimal"):
        return f"{value:f}" if name.startswith("decimal") else f"{value}L" if abs(value) < 2**63 else f"{value}"
    return f"{value!r}D"


def neighbours(values: list[Any], name: str) -> list[Any]:
    """Values right above those of a type."""
    if name in ("string", "binary"):
        return [value + ("\0" if name == "string" else b"\0") for value in values]
    if name in WHOLE:
        return [value + 1 for value in values[:-1]]
    kind = {"float": np.float32, "double": np.float64}.get(name)
    return [float(np.nextafter(kind(value), kind(np.inf))) for value in values if abs(value) < 1e38] if kind else []
