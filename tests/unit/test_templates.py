"""Rules compiled together are what they are one by one: the same conjunctions, regions, rejects and errors."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rules_index.compiling.builder import FlattenedRules
from rules_index.compiling.compile import flatten
from rules_index.compiling.conjunctions import Expansion
from rules_index.compiling.rule_columns import Rejects, read_rules
from rules_index.compiling.templates.skeletons import Skeleton
from rules_index.language.compiler import Compiler
from rules_index.language.formula import Formula
from rules_index.language.scope import Scope
from rules_index.language.typed import Leaf
from tests.cases import cases
from tests.unit.language.schemas import SCHEMA

INTEGERS = [*range(-3, 6), 127, 128, -128, -129, 32767, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 10**18 - 1, 10**18, 10**37]
DECIMALS = [
    "0.5",
    "1.5",
    "-0.01",
    "2.00",
    "2.005",
    "0.000000000000000001",
    "12345678901234567.8",
    "99999999.99",
    "-0.0",
]
DOUBLES = ["1e2", "2.5E-1", "3D", "1e308", "1e309", "1.7976931348623158E308", "0.1", "1e-400", "12345678901234567890.5"]
STRINGS = ["'a'", "'ab'", "'b'", "''", "'é'", "'x y'", "'it''s'", "'a\0'", r"'\n'", "'a%'", "' AND '", "'a' 'b'"]
DATES = [
    "2024-02-29",
    "2023-02-29",
    "1969-12-31",
    "0001-01-01",
    "2024-1-1",
    "2024",
    "today",
    "9999-12-31",
    "2024-13-01",
]
TIMES = ["", " 00:00:00", "T23:59:59", " 02:30:00", " 12:34:56.7", " 12:34:56.1234567", " 24:00:00", " 01:00:00Z", "x"]


def integer() -> str:
    return str(
        random.choice([*INTEGERS, *(-value for value in INTEGERS), random.randrange(100), f"{random.randrange(9)}L"])
    )


def number() -> str:
    return random.choice([integer(), random.choice(DECIMALS), random.choice(DOUBLES), f"{random.uniform(-5, 5):.3f}"])


def string() -> str:
    return random.choice([*STRINGS, f"'{random.randrange(50)}'"])


def day() -> str:
    usual = f"2024-0{random.randint(1, 9)}-{random.randint(1, 28):02d}"
    return random.choice(["DATE ", "date", ""]) + f"'{random.choice([usual, usual, random.choice(DATES)])}'"


def instant() -> str:
    text = f"2024-{random.choice(['03-31', '10-27', '06-15', '02-30'])}{random.choice(TIMES)}"
    return random.choice(["TIMESTAMP ", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ ", "", "DATE "]) + f"'{text}'"


COLUMNS: dict[str, Callable[[], str]] = {
    "i": integer, "I": integer, "l": integer, "t": integer, "h": number, "d": number, "w": number, "f": number,
    "x": number, "s": string, "u": string, "bin": string, "dt": day, "ts": instant, "n": instant, "st.p": integer,
    "`st`.Q": string, "`Dep.Delay`": integer, "arr[0]": integer, "b": lambda: "TRUE", "missing": integer,
}  # fmt: skip


def shape() -> Callable[[], str]:
    """Makes clauses that are made alike."""
    column = random.choice(list(COLUMNS))
    literal, space, negated = COLUMNS[column], random.choice([" ", "", "  "]), random.choice(["", " NOT"])
    operator = random.choice(["=", "<", "<=", ">", ">=", "<>", "!=", "==", "<=>"])
    count = random.randint(1, 4)
    return random.choice(
        [
            lambda: f"{column}{space}{operator}{space}{literal()}",
            lambda: f"{column} {operator} {literal()}",
            lambda: f"{literal()} {operator} {column}",
            lambda: f"{column}{negated} BETWEEN {literal()} AND {literal()}",
            lambda: f"{column}{negated} IN ({', '.join(literal() for _ in range(count))})",
            lambda: f"{column}{negated} in({literal()},{space}{literal()})",
            lambda: f"{column} IS{negated} NULL",
            lambda: f"s{negated} LIKE {string()}",
            lambda: random.choice(["b", "TRUE", "i + 1 > l", f"sqrt(x) > {random.randint(0, 3)}", "i = NULL", "s"]),
            lambda: f"(i, s) IN (({integer()}, {string()}), (1, 'a'))",
            lambda: f"coalesce(i, {integer()}) = 1 OR i",
        ]
    )


def skeleton(depth: int) -> str:
    kind = random.random()
    if depth == 0 or kind < 0.35:
        return "#"
    if kind < 0.5:
        return f"NOT ({skeleton(depth - 1)})"
    parts = [random.choice(["{}", "({})"]).format(skeleton(depth - 1)) for _ in range(random.randint(2, 4))]
    return random.choice([" AND ", " and ", " OR "]).join(parts)


def expressions(rules: int) -> list[str]:
    """Random rules of few shapes and frames, some of them damaged."""
    shapes = [shape() for _ in range(random.choice([2, 5, 20]))]
    skeletons = [skeleton(random.randint(0, 3)) for _ in range(random.choice([2, 8]))]
    skeletons.append(" AND ".join(["(# OR #)"] * random.choice([2, 7])))
    texts = []
    for _ in range(rules):
        text = "".join(random.choice(shapes)() if c == "#" else c for c in random.choice(skeletons))
        if random.random() < 0.05:
            at = random.randrange(len(text))
            text = (
                text[:at]
                + random.choice(["", "'", "(", ")", " AND ", "NOT ", "--", "é", ".", "-", " not"])
                + text[at + 1 :]
            )
        texts.append(text)
    return texts


def bounds(rules: int) -> pa.Array:
    start = datetime(2024, 3, 30, tzinfo=UTC)
    at = [None if random.random() < 0.5 else start + timedelta(hours=random.randrange(48)) for _ in range(rules)]
    return pa.array(at, pa.timestamp("us", tz="UTC"))


def refusing(leaves: Sequence[Leaf]) -> list[str | None]:
    return ["No." if int(leaf.name[-1], 16) % 2 else None for leaf in leaves]


def outcome(rules: pa.Table, together: bool, zone: str, event_time: str | None, refuse: bool) -> tuple[Any, ...]:
    columns, _ = read_rules(rules, zone)
    rejects = Rejects()
    builder = flatten(columns, Scope(SCHEMA, zone), event_time, rejects, together)
    if refuse:
        builder.refuse(refusing, rejects)
    return sorted(rejects.rows), builder.kept.tolist(), builder.finish()


def check_equal(one: FlattenedRules, other: FlattenedRules) -> None:
    assert one.attributes == other.attributes
    for name in ("sizes", "set_start", "intervals", "start", "terms", "target", "disjunction_start"):
        first, second = getattr(one.conjunctions, name), getattr(other.conjunctions, name)
        assert first.dtype == second.dtype and np.array_equal(first, second), name
    for region, twin in zip(one.regions, other.regions, strict=True):
        assert (region.type, region.count, set(region.arrays)) == (twin.type, twin.count, set(twin.arrays))
        assert all(np.array_equal(array, twin.arrays[name]) for name, array in region.arrays.items())
    assert all(np.array_equal(*pair) for pair in zip(one.raising, other.raising, strict=True))


@pytest.mark.parametrize("seed", range(cases(80)))
def test_together_is_one_by_one(seed: int) -> None:
    random.seed(seed)
    count = random.choice([3, 30, 200])
    rules = pa.table({"rule_id": [f"r{i:03d}" for i in range(count)], "expression": expressions(count)})
    zone = random.choice(["UTC", "Europe/Berlin", "+02:00"])
    event_time = random.choice([None, "ts", "n", "dt"])
    if event_time is not None and zone != "+02:00":
        rules = rules.append_column("valid_from", bounds(count)).append_column("valid_to", bounds(count))
    refuse = random.random() < 0.3
    together, one_by_one = (outcome(rules, each, zone, event_time, refuse) for each in (True, False))
    assert together[:2] == one_by_one[:2]
    check_equal(together[2], one_by_one[2])


def test_bounds_without_an_event_time_are_refused_together_too() -> None:
    rules = pa.table({"rule_id": [f"r{i:02d}" for i in range(20)], "expression": [f"i = {i}" for i in range(20)]})
    rules = rules.append_column("valid_from", bounds(20))
    rows, kept, _ = outcome(rules, True, "UTC", None, False)
    assert {row[1] for row in rows} == {"NO_EVENT_TIME"}
    assert kept == [value is None for value in rules["valid_from"].to_pylist()]


def test_rules_made_alike_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(real: Callable[[Compiler, str], Formula | None]) -> Callable[[Compiler, str], Formula | None]:
        def compile_counted(self: Compiler, text: str) -> Formula | None:
            calls.append(text)
            return real(self, text)

        return compile_counted

    for name in ("compile", "compile_clause"):
        monkeypatch.setattr(Compiler, name, counted(getattr(Compiler, name)))
    texts = [
        f"s = 'A{i}' AND l > {i} AND d BETWEEN {i}.5 AND {i + 1}.25 AND i >= {i} AND i < {2 * i + 1} "
        f"AND NOT (dt = DATE '2024-01-{1 + i % 28:02d}' OR ts < TIMESTAMP '2024-01-01 00:00:{i % 60:02d}') "
        f"AND x <= {i / 7!r} AND h IN ({i}, {i + 1})"
        for i in range(2000)
    ]
    rules = pa.table({"rule_id": list(range(2000)), "expression": texts})
    _, kept, flattened = outcome(rules, True, "UTC", None, False)
    assert all(kept)
    assert len(flattened.conjunctions.target) == 2000
    assert len(calls) < 40


def check_skeleton(seed: int) -> None:
    """A random text's skeleton gives the conjunctions that the parser's formula gives."""
    random.seed(seed)
    marks = skeleton(4)
    columns = iter(range(1000))
    text = "".join(f"c{next(columns)} = 1" if c == "#" else c for c in marks)
    scope = Scope(pa.schema([(f"c{i}", pa.int32()) for i in range(next(columns))]))
    formula = Compiler(scope).compile(text)
    whole = Expansion()
    expected = whole.conjunctions_of(formula)
    parts = Expansion()
    clauses = [Compiler(scope).compile(f"c{i} = 1") for i in range(marks.count("#"))]
    squeezed = marks.upper().replace("AND", "&").replace("OR", "|").replace("NOT", "!").replace(" ", "")
    found = Skeleton(squeezed.encode()).conjunctions(parts, lambda i, wanted: parts.conjunctions_of(clauses[i], wanted))
    assert found == expected, seed
    assert parts.attributes == whole.attributes, seed
    assert parts.disjunctions == whole.disjunctions, seed


def test_a_frame_reads_as_the_parser_reads_it() -> None:
    for seed in range(cases(800)):
        check_skeleton(seed)
