"""StringPool are cut at their connectives, literals are told from the rest, and what is not understood is left
alone."""

from __future__ import annotations

import pyarrow as pa
import pytest

from rules_index.compiling.templates.clauses import LONGEST, StringPool, grouped_by_shape, split_clauses
from rules_index.kernels.rule_texts import DECIMAL, DOUBLE, INTEGER, TEXT

CUTS = [
    ("a = 1", "#", ["a = 1"]),
    ("  a=1\n", "#", ["a=1"]),
    ("a > 1 AND b < 2", "#&#", ["a > 1", "b < 2"]),
    ("a>1 and b<2 Or c", "#&#|#", ["a>1", "b<2", "c"]),
    ("NOT (a = 1 OR NOT b) AND c", "!(#|!#)&#", ["a = 1", "b", "c"]),
    ("((a))", "((#))", ["a"]),
    ("a BETWEEN 1 AND 2 AND b", "#&#", ["a BETWEEN 1 AND 2", "b"]),
    ("a NOT IN (1, 2) AND f(b AND c, (d OR e)) = 1", "#&#", ["a NOT IN (1, 2)", "f(b AND c, (d OR e)) = 1"]),
    ("a = 'x AND y' AND b = 'it''s'", "#&#", ["a = 'x AND y'", "b = 'it''s'"]),
    ("a = 'x'AND b", "#&#", ["a = 'x'", "b"]),
    ("`a AND b` = 1 OR `c` = 'é'", "#|#", ["`a AND b` = 1", "`c` = 'é'"]),
    ("android = 1 AND x_or = 2", "#&#", ["android = 1", "x_or = 2"]),
    ("a[1] = 2 AND exists(b, x -> x > 1 AND x < 2)", "#&#", ["a[1] = 2", "exists(b, x -> x > 1 AND x < 2)"]),
    ("1.AND > a", None, []),
    ("a = 1.AND b", None, []),
    ("a = 1AND b", "#", ["a = 1AND b"]),
    ("a AND", None, []),
    ("AND a", None, []),
    ("(a", None, []),
    ("a)", None, []),
    ("(a) = 1", None, []),
    ("(a, b) = (1, 2)", None, []),
    ("a = not AND b", None, []),
    ("NOT = 1", None, []),
    ("NOT +1 > a", None, []),
    ("a = 1 -- b", None, []),
    ("a = /* b */ 1", None, []),
    ('a = "x"', None, []),
    (r"a = '\n'", None, []),
    ("a = r'x'", None, []),
    ("a = 'x", None, []),
    ("CASE WHEN a AND b THEN c END", None, []),
    ("(SELECT 1) AND a", None, []),
    ("a = x -> b AND c", None, []),
    ("a BETWEEN 1 OR 2", None, []),
    ("é = 1", None, []),
    ("a = 1;", None, []),
    ("", None, []),
    ("(" * 41 + "a" + ")" * 41, None, []),
    ("NOT " * 41 + "a", None, []),
]


def cut_text(text: str) -> tuple[str | None, list[str]]:
    found = split_clauses(pa.array([text], pa.large_string()))
    skeleton = int(found.skeleton[0])
    return (None if skeleton < 0 else found.skeletons[skeleton].decode()), [
        found.clauses[clause].decode() for clause in found.clause.tolist()
    ]


@pytest.mark.parametrize(("text", "skeleton", "clauses"), CUTS)
def test_a_text_is_cut_at_its_connectives(text: str, skeleton: str | None, clauses: list[str]) -> None:
    assert cut_text(text) == (skeleton, clauses)


def test_equal_clauses_and_frames_are_one() -> None:
    texts = [f"a = {i % 7} AND b = {i % 5}" for i in range(1000)] + ["x", "a = 3"]
    sliced = pa.array(["AND", *texts, "(("], pa.large_string())[1:-1]
    found = split_clauses(sliced)
    assert [found.skeletons[i] for i in range(len(found.skeletons))] == [b"#&#", b"#"]
    assert len(found.clauses) == 7 + 5 + 1
    for rule, text in enumerate(texts):
        clauses = found.clause[found.start[rule] : found.start[rule + 1]].tolist()
        assert " AND ".join(found.clauses[clause].decode() for clause in clauses) == text


def test_a_text_that_is_too_long_is_left_alone_and_others_are_not() -> None:
    long = "a = '" + "x" * LONGEST + "'"
    found = split_clauses(pa.array(["a = 1", long, long, "b = 2", long], pa.large_string()))
    assert (found.skeleton >= 0).tolist() == [True, False, False, True, False]
    assert [found.clauses[i] for i in found.clause.tolist()] == [b"a = 1", b"b = 2"]


SHAPES = [
    ("a = 1", b"a = \x01", [(INTEGER, "1", 1, 0)]),
    ("a =-12", b"a =\x01", [(INTEGER, "-12", -12, 0)]),
    ("a > 1.50", b"a > \x02", [(DECIMAL, "1.50", 150, 2)]),
    ("a<-0.5", b"a<\x02", [(DECIMAL, "-0.5", -5, 1)]),
    ("a < 1e5", b"a < \x03", [(DOUBLE, "1e5", 1, 0)]),
    ("a < 1.5E-3", b"a < \x03", [(DOUBLE, "1.5E-3", 15, 1)]),
    ("a < 12D", b"a < \x03", [(DOUBLE, "12", 12, 0)]),
    ("a = 'x'", b"a = \x04", [(TEXT, "x", None, None)]),
    ("d >= DATE '2024-01-01'", b"d >= DATE \x04", [(TEXT, "2024-01-01", None, None)]),
    ("a BETWEEN -1 AND -2", b"a BETWEEN \x01 AND \x01", [(INTEGER, "-1", -1, 0), (INTEGER, "-2", -2, 0)]),
    ("a IN (1,2, 3,\n4)", b"a IN (\x01)", [(INTEGER, str(i), i, 0) for i in (1, 2, 3, 4)]),
    ("a IN (1, 'x')", b"a IN (\x01, \x04)", [(INTEGER, "1", 1, 0), (TEXT, "x", None, None)]),
    ("a  =\n 1", b"a = \x01", [(INTEGER, "1", 1, 0)]),
    ("a = 999999999999999999", b"a = \x01", [(INTEGER, "9" * 18, 10**18 - 1, 0)]),
    # what has too many digits, a suffix, or a sign that is none, is no literal, or not one of known value
    ("a = 1000000000000000000", b"a = \x01", [(INTEGER, "1" + "0" * 18, None, -1)]),
    ("a = 5L", b"a = 5L", []),
    ("a = 5AND", b"a = 5AND", []),
    ("a = 5.", b"a = 5.", []),
    ("a = .5", b"a = .\x01", [(INTEGER, "5", 5, 0)]),
    ("a - 5 > 1", b"a - \x01 > \x01", [(INTEGER, "5", 5, 0), (INTEGER, "1", 1, 0)]),
    ("a = - 5", b"a = - \x01", [(INTEGER, "5", 5, 0)]),
    ("a = 1e", b"a = 1e", []),
    ("a = 'it''s'", b"a = 'it'\x04", [(TEXT, "s", None, None)]),
    ("`a 1` = 1", b"`a 1` = \x01", [(INTEGER, "1", 1, 0)]),
]


@pytest.mark.parametrize(("text", "shape", "literals"), SHAPES)
def test_literals_are_told_from_the_rest(text: str, shape: bytes, literals: list[tuple[object, ...]]) -> None:
    clauses = StringPool()
    data = text.encode()
    pool = clauses.reserve(1, len(data))
    pool.data[: len(data)] = list(data)
    pool.offsets[1], pool.used[0] = len(data), 1
    (found,) = grouped_by_shape(clauses)
    assert found.shape == shape
    assert found.literals.texts().to_pylist() == [str(spelling).encode() for _, spelling, _, _ in literals]
    for i, (kind, _, value, scale) in enumerate(literals):
        assert found.literals.kinds[i] == kind
        if kind not in (DOUBLE, TEXT):
            assert found.literals.scales[i] == scale
            assert value is None or found.literals.values[i] == value


def test_clauses_made_alike_come_together() -> None:
    found = split_clauses(pa.array([f"a = {i} AND b > 'x{i}'" for i in range(300)], pa.large_string()))
    by_shape = {each.shape: each for each in grouped_by_shape(found.clauses)}
    assert set(by_shape) == {b"a = \x01", b"b > \x04"}
    integers = by_shape[b"a = \x01"]
    assert integers.literals.values.tolist() == list(range(300))
    assert [found.clauses[clause] for clause in integers.clauses.tolist()] == [b"a = %d" % i for i in range(300)]
    assert by_shape[b"b > \x04"].literals.texts().to_pylist() == [b"x%d" % i for i in range(300)]
