"""Value sets in arrays do what each of them does alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_index.arrays import offsets_of
from rules_index.compiling.literal_sets import SetColumn
from rules_index.domains.interned_constants import keys_of
from rules_index.domains.value_sets import SetArrays, as_arrays, join, ranges, rays
from rules_index.domains.values import Key, ValueSet, interval, points, successor
from rules_index.language.constants import clamp

KEYS = st.integers(-6, 6)


@st.composite
def value_sets(draw: st.DrawFn) -> ValueSet:
    return ValueSet(draw(st.booleans()), tuple(sorted(draw(st.sets(KEYS, max_size=5)))))


NULLABLE = st.tuples(value_sets(), st.booleans())


def arrays(sets: list[tuple[ValueSet, bool]]) -> SetArrays:
    cuts = [cut for values, _ in sets for cut in values.cuts]
    return as_arrays([values for values, _ in sets], [null for _, null in sets], cuts)


def listed(sets: SetArrays) -> list[tuple[ValueSet, bool]]:
    found = []
    for i in range(len(sets)):
        cuts = tuple(sets.cuts[sets.offsets[i] : sets.offsets[i + 1]].tolist())
        found.append((ValueSet(bool(sets.start[i]), cuts), bool(sets.null[i])))
    return found


@pytest.mark.slow
@given(st.lists(NULLABLE, min_size=1, max_size=6), st.data())
def test_sets_are_taken_joined_and_turned_around_one_by_one(
    sets: list[tuple[ValueSet, bool]], data: st.DataObject
) -> None:
    given_sets = arrays(sets)
    chosen = data.draw(st.lists(st.integers(0, len(sets) - 1), max_size=8))
    assert listed(given_sets) == sets
    assert listed(given_sets.take(np.array(chosen, np.int64))) == [sets[i] for i in chosen]
    assert listed(join([given_sets, given_sets])) == sets + sets
    assert listed(given_sets.complements()) == [(~values, False) for values, _ in sets]
    assert given_sets.is_empty.tolist() == [values.is_empty and not null for values, null in sets]
    assert given_sets.is_full.tolist() == [values.is_full and null for values, null in sets]


@pytest.mark.slow
@given(st.lists(NULLABLE, max_size=12))
def test_equal_sets_are_found(sets: list[tuple[ValueSet, bool]]) -> None:
    first, number = arrays(sets).distinct()
    assert [sets[i] for i in first.tolist()] == list(dict.fromkeys(sets))
    assert [sets[first[i]] for i in number.tolist()] == sets


@pytest.mark.slow
@given(st.lists(st.lists(NULLABLE, min_size=1, max_size=4), max_size=5))
def test_a_group_of_sets_is_intersected(groups: list[list[tuple[ValueSet, bool]]]) -> None:
    flat = [each for group in groups for each in group]
    offsets = offsets_of(np.array([len(group) for group in groups], np.int64))
    found = listed(arrays(flat).intersections(np.arange(len(flat)), offsets))
    for group, (values, null) in zip(groups, found, strict=True):
        assert null == all(n for _, n in group)
        assert values.cuts == tuple(sorted(set(values.cuts)))
        assert all((key in values) == all(key in v for v, _ in group) for key in range(-9, 9))


@given(st.lists(st.tuples(KEYS, KEYS), max_size=6), st.lists(st.lists(KEYS, max_size=6), max_size=4))
def test_ranges_rays_and_lists_of_points(bounds: list[tuple[int, int]], lists: list[list[int]]) -> None:
    low, high = (np.array([pair[side] for pair in bounds], np.int64) for side in (0, 1))
    assert [values for values, _ in listed(ranges(low, high))] == [interval(*pair) for pair in bounds]
    assert [values for values, _ in listed(rays(low, True))] == [interval(None, a) for a, _ in bounds]
    assert [values for values, _ in listed(rays(low, False))] == [interval(a, None) for a, _ in bounds]
    flat = np.array([key for keys in lists for key in keys], np.int64)
    offsets = offsets_of(np.array([len(keys) for keys in lists], np.int64))
    assert [values for values, _ in listed(ranges(flat, flat + 1, offsets))] == [points(keys) for keys in lists]


@given(st.lists(NULLABLE, max_size=6))
def test_cuts_outside_of_a_types_values_are_left_out(sets: list[tuple[ValueSet, bool]]) -> None:
    far = [(ValueSet(values.start, tuple(60 * cut for cut in values.cuts)), null) for values, null in sets]
    assert listed(arrays(far).clamped(-128, 127)) == [(clamp(values, pa.int8()), null) for values, null in far]


STRINGS = st.binary(max_size=3).flatmap(lambda text: st.sampled_from([text, text + b"\0", text + b"\0\0"]))
WIDE = st.integers(-(10**30), 10**30).flatmap(lambda key: st.sampled_from([key, key + 1, key + 2]))


def check_positions(data_type: pa.DataType, keys: list[Key]) -> None:
    """Positions ascend as keys do, and a successor has the next one."""
    found = keys_of(data_type)
    references = np.array([found.refer(key) for key in keys], np.int64)
    assert [found.key(reference) for reference in references.tolist()] == keys
    found.settle()
    positions = found.positions(references).tolist()
    for key, at in zip(keys, positions, strict=True):
        for other, there in zip(keys, positions, strict=True):
            assert (at < there) == (key < other)
            assert (at + 1 == there) == (successor(key) == other)
            # the place of the successor, whether it is among the keys or not
            assert (at + 1 < there) == (successor(key) < other)


@given(st.lists(STRINGS, min_size=1, max_size=8))
def test_positions_of_strings(keys: list[bytes]) -> None:
    check_positions(pa.string(), keys)


@given(st.lists(WIDE, min_size=1, max_size=8))
def test_positions_of_wide_decimals(keys: list[int]) -> None:
    check_positions(pa.decimal128(38, 0), keys)


@given(st.lists(st.binary(max_size=3), min_size=1, max_size=8), st.lists(STRINGS, max_size=4))
def test_successors_of_strings_are_referred_to_by_the_strings(texts: list[bytes], others: list[bytes]) -> None:
    column = SetColumn(pa.string())
    for key in others:
        column.add(interval(key, None), False)
    low = 2 * np.arange(len(texts), dtype=np.int64)
    column.extend(column.referring(ranges(low, low + 1), pa.array(texts, pa.large_binary())))
    assert [column[len(others) + i] for i in range(len(texts))] == [(points([text]), False) for text in texts]
    sets = column.settle()
    keys = column.keys.strings(sets.cuts).to_pylist()
    assert keys == others + [key for text in texts for key in (text, text + b"\0")]
