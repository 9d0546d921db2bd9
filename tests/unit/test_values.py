"""Value sets: one boundary algebra for every type."""

from hypothesis import given
from hypothesis import strategies as st

from rules_index.domains.values import ValueSet, float_key, interval, points, successor, union


@st.composite
def value_sets(draw: st.DrawFn) -> ValueSet:
    return ValueSet(draw(st.booleans()), tuple(sorted(draw(st.sets(st.integers(-6, 6), max_size=5)))))


@given(st.lists(value_sets(), min_size=1, max_size=5))
def test_union_holds_what_a_member_holds(sets: list[ValueSet]) -> None:
    joined = union(sets)
    assert all((key in joined) == any(key in s for s in sets) for key in range(-9, 9))


@given(value_sets(), value_sets())
def test_and_or_not_agree_with_membership(a: ValueSet, b: ValueSet) -> None:
    for key in range(-9, 9):
        assert (key in a & b) == (key in a and key in b)
        assert (key in a | b) == (key in a or key in b)
        assert (key in ~a) == (key not in a)


@given(st.sets(st.integers(-6, 6), max_size=6))
def test_points_hold_exactly_their_keys(members: set[int]) -> None:
    assert {key for key in range(-9, 9) if key in points(members)} == members


@given(st.one_of(st.none(), st.binary(max_size=3)), st.one_of(st.none(), st.binary(max_size=3)), st.binary(max_size=4))
def test_intervals_are_half_open(low: bytes | None, high: bytes | None, key: bytes) -> None:
    assert (key in interval(low, high)) == ((low is None or low <= key) and (high is None or key < high))


@given(st.binary(max_size=3), st.binary(max_size=4))
def test_nothing_lies_between_a_key_and_its_successor(key: bytes, other: bytes) -> None:
    assert not key < other < successor(key)


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_float_keys_keep_the_order_of_spark(a: float, b: float) -> None:
    assert (float_key(a) < float_key(b)) == (a < b)
    assert float_key(a) < float_key(float("nan"))
    assert float_key(-0.0) == float_key(0.0)
