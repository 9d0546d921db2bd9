"""Regions: equal codes exactly where no rule can tell values apart, for every type."""

import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rules_index.compiling.literal_sets import SetColumn
from rules_index.domains import region_codes
from rules_index.domains.value_sets import SetArrays
from rules_index.domains.values import NOTHING, Key, ValueSet, float_key, interval, points, successor
from rules_index.language.constants import clamp
from tests.cases import cases, quick_first

EXTREMES = [-(1 << 63), (1 << 63) - 1, -1, 0, 1, 2, 3, 1 << 40]
STRINGS = ["", "a", "b", "ab", "ab\0", "zé", "zz", "a" * 20, "😀"]
FLOATS = [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1.5, 2.5, -3.25, 1e-300]

KINDS: dict[str, tuple[pa.DataType, Callable[[], Any], Callable[[Any], Key]]] = {
    "small": (pa.int8(), lambda: random.randint(-20, 20), int),
    "wide": (pa.int64(), lambda: random.choice([*EXTREMES, random.getrandbits(62) - (1 << 61)]), int),
    "date": (pa.date32(), lambda: random.randint(-9, 9), int),
    "string": (pa.string(), lambda: random.choice(STRINGS), lambda v: v.encode()),
    "binary": (pa.binary(), lambda: random.choice(STRINGS).encode(), lambda v: v),
    "float": (pa.float32(), lambda: random.choice(FLOATS[:-1]), float_key),
    "double": (pa.float64(), lambda: random.choice(FLOATS), float_key),
    "boolean": (pa.bool_(), lambda: random.random() < 0.5, int),
    "decimal": (pa.decimal128(12, 0), lambda: Decimal(random.randint(-20, 20)), int),
    "wide decimal": (pa.decimal128(38, 0), lambda: Decimal(random.choice([-(10**37), -1, 0, 7, 10**37])), int),
}


def random_set(value: Callable[[], Any], key: Callable[[Any], Key]) -> ValueSet:
    one, other = key(value()), key(value())
    return random.choice(
        [
            points([key(value()) for _ in range(random.randint(0, 4))]),
            interval(one, None),
            interval(None, successor(one)),
            ~points([one]),
            interval(one, other) | points([key(value())]),
            NOTHING,
        ]
    )


def laid_out(
    sets: list[ValueSet], data_type: pa.DataType
) -> tuple[region_codes.RegionLayout, region_codes.Regions, SetArrays]:
    column = SetColumn(data_type)
    for values in sets:
        column.add(values, False)
    arrays = column.settle()
    layout = region_codes.lay_out(arrays)
    return layout, region_codes.build(layout, column.keys, data_type), arrays


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("many", [False, True])
def test_a_code_is_in_a_sets_intervals_where_the_value_is_in_the_set(kind: str, many: bool) -> None:
    data_type, value, key = KINDS[kind]
    for seed in range(cases(40)):
        random.seed(seed)
        count = random.randint(20, 60) if many else random.randint(0, 4)
        sets = [clamp(random_set(value, key), data_type) for _ in range(count)]
        layout, built, arrays = laid_out(sets, data_type)
        starts, found_codes = region_codes.intervals(layout, arrays)
        values = [value() if random.random() > 0.1 else None for _ in range(80)]
        array = pa.array(values, data_type).slice(3)
        codes = np.empty(len(array), np.int32)
        built.encode(array, None, codes)
        for found, code in zip(values[3:], codes, strict=True):
            if found is None:
                assert code == layout.count
                continue
            for tested, first, last in zip(sets, starts[:-1], starts[1:], strict=True):
                inside = any(low <= code <= high for low, high in found_codes[first:last])
                assert inside == (key(found) in tested), (kind, seed, found, tested)


def test_raised_rows_have_a_code_of_their_own() -> None:
    _, built, _ = laid_out([points([1])], pa.int32())
    codes = np.empty(3, np.int32)
    built.encode(pa.array([1, None, 1], pa.int32()), np.array([False, False, True]), codes)
    assert codes[1] == built.count and codes[2] == built.count + 1 and codes[0] < built.count


@pytest.mark.parametrize("constants", [1, 50, 5_000])
def test_points_need_one_code_each(constants: int) -> None:
    strings = [f"account-{i}".encode() for i in range(constants)]
    layout, built, _ = laid_out([points([s]) for s in strings], pa.string())
    assert layout.count <= constants + 2
    codes = np.empty(constants, np.int32)
    built.encode(pa.array([s.decode() for s in strings]), None, codes)
    assert len(set(codes.tolist())) == constants


@pytest.mark.parametrize("constants", quick_first(1, [10, 3_000]))
def test_far_apart_integers_are_found_by_bisection(constants: int) -> None:
    random.seed(constants)
    cuts = sorted({random.getrandbits(60) - (1 << 59) for _ in range(constants)})
    sets = [interval(cut, None) for cut in cuts]
    _, built, _ = laid_out(sets, pa.int64())
    values = [cut + step for cut in cuts for step in (-1, 0, 1)] + [-(1 << 63), (1 << 63) - 1]
    codes = np.empty(len(values), np.int32)
    built.encode(pa.array(values, pa.int64()), None, codes)
    assert codes.tolist() == [sum(cut <= value for cut in cuts) for value in values]


@pytest.mark.parametrize(
    "given",
    [
        pa.array(["a", "b", None]).dictionary_encode(),
        pa.array(["a", "b", None], pa.large_string()),
        pa.array(["a", "b", None], pa.string_view()),
        pa.chunked_array([["a"], ["b", None]]),
    ],
)
def test_variants_of_a_type_become_the_type(given: pa.Array) -> None:
    assert region_codes.plain(given, pa.string()).to_pylist() == ["a", "b", None]
