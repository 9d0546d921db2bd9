"""Events that are expressions, against brute force: a rule is met where, column by column, a value is offered that it
asks for."""

from __future__ import annotations

import itertools
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.index.compiled import dumps
from rules_index.index.registry import ENGINES
from tests.cases import cases

CASES = cases(60, "DELTATAG_EVENTS")
SCHEMA = pa.schema({"i": pa.int32(), "s": pa.string(), "f": pa.float64(), "b": pa.bool_(), "big": pa.int64()})
VALUES = {
    "i": [None, -7, 0, 1, 2, 3, 4, 5, 9, 2**31 - 1],
    "s": [None, "", "a", "a\0", "ab", "b", "ba", "zz"],
    "f": [None, -0.5, 0.0, 0.25, 1.5, 2.0, float("inf"), float("nan")],
    "b": [None, True, False],
    "big": [None, -(10**15), 0, 1, 10**15, 10**15 + 1],
}
"""Values of every region that the parts below cut a column into."""
PARTS = {
    "i": ["i = 3", "i <> 3", "i IN (1, 2, 9)", "i NOT IN (0, 3)", "i > 2", "i BETWEEN 0 AND 4", "i IS NULL", "i <=> 5",
          "i IS NOT NULL", "NOT (i < 1 OR i = 4)", "i > 1 AND i <> 2"],
    "s": ["s = 'a'", "s <> 'a'", "s IN ('', 'ab')", "s NOT IN ('a', 'b')", "s > 'a'", "s LIKE 'a%'", "s IS NULL",
          "s BETWEEN 'ab' AND 'b'", "s < 'a' OR s = 'zz'"],
    "f": ["f > 0.25", "f = 1.5", "f <> 2.0", "f IS NULL", "isnan(f)", "f BETWEEN 0 AND 2"],
    "b": ["b", "NOT b", "b IS NULL", "b IS NOT TRUE"],
    "big": ["big = 1000000000000000", "big > 1", "big NOT IN (0, 1)", "big IS NULL"],
}  # fmt: skip


def truth_of(part: str, column: str) -> set[int]:
    """The places of the column's values on which a part is TRUE, as `match` says."""
    table = pa.table({column: pa.array(VALUES[column], SCHEMA.field(column).type)})
    found = ri.compile_rules([(0, part)], SCHEMA, engine="scan").match(table)
    return {place for place, ids in enumerate(found.to_pylist()) if ids}


TRUTHS = {part: truth_of(part, column) for column, parts in PARTS.items() for part in parts}


def draw_parts(draw: random.Random, most: int) -> dict[str, str]:
    columns = draw.sample([*PARTS], draw.randint(1, most))
    return {column: draw.choice(PARTS[column]) for column in columns}


def meets(event: dict[str, str], rule: dict[str, str]) -> bool:
    return all(column in event and TRUTHS[part] & TRUTHS[event[column]] for column, part in rule.items())


@pytest.mark.parametrize("engine", ENGINES)
def test_events_against_brute_force(engine: str) -> None:
    draw = random.Random(engine)
    rules = [draw_parts(draw, 3) for _ in range(300)]
    texts = [" AND ".join(f"({part})" for part in rule.values()) for rule in rules]
    either = [(draw_parts(draw, 2), draw_parts(draw, 2)) for _ in range(60)]
    texts += [" OR ".join("(" + " AND ".join(f"({p})" for p in r.values()) + ")" for r in pair) for pair in either]
    compiled = ri.compile_rules(list(enumerate(texts)), SCHEMA, engine=engine)
    assert compiled.rejects.num_rows == 0 and compiled.engine == engine
    events = [draw_parts(draw, 5) for _ in range(CASES if engine != "scan" else CASES // 10 + 1)]
    asked = [" AND ".join(f"({part})" for part in event.values()) + " AND colour = 'red'" for event in events]
    expected = [
        [number for number, rule in enumerate(rules) if meets(event, rule)]
        + [len(rules) + number for number, pair in enumerate(either) if any(meets(event, rule) for rule in pair)]
        for event in events
    ]
    # an OR on one column is one set, of which brute force by parts knows no less
    loaded = ri.loads(dumps(compiled))
    assert [compiled.match_event(event) for event in asked] == expected
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(loaded.match_event, asked)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "i = 3 OR s = 'a'", "i + 1 = 3", "i = big", "i =", "length(s) = 2", "i = 'x'", "unix_seconds(i) = 3",
        "s = '\ud800'", "s > '\udfff' AND i > 2", None, 5,
    ],
)  # fmt: skip
def test_what_is_no_event_is_refused(text: Any) -> None:
    compiled = ri.compile_rules([(1, "i > 3 AND s <> 'q' AND big > 2")], SCHEMA)
    with pytest.raises(ri.RuleError):
        compiled.match_event(text)


def test_events_that_say_little() -> None:
    compiled = ri.compile_rules([(1, "i > 3"), (2, "TRUE"), (3, "i IS NULL")], SCHEMA)
    assert compiled.match_event("TRUE") == [2]
    assert compiled.match_event("colour = 'red'") == [2]
    assert compiled.match_event("i = 4") == [1, 2]
    assert compiled.match_event("i IS NULL") == [2, 3]
    assert compiled.match_event("i > 3 AND i < 2") == compiled.match_event("FALSE") == []
    assert compiled.match_event("i > 1 AND i < 5") == [1, 2]


def test_every_pair_of_parts_alone() -> None:
    for column, parts in PARTS.items():
        compiled = ri.compile_rules(list(enumerate(parts)), SCHEMA)
        for event, (number, rule) in itertools.product(parts, enumerate(parts)):
            met = bool(TRUTHS[event] & TRUTHS[rule])
            assert (number in compiled.match_event(event)) == met, (column, event, rule)


def test_plain_parts_are_read_as_the_whole_text_is() -> None:
    """Comparisons with plain literals are remembered part by part, whatever stands between and beside them."""
    rules = [(1, "i > 3"), (2, "s = 'a'"), (3, "s = 'x AND i = 4'"), (4, "i = 4 AND s <> 'q'"), (5, "big IS NULL")]
    compiled = ri.compile_rules(rules, SCHEMA)
    for _ in range(2):
        assert compiled.match_event("i = 4 AND s = 'a'") == compiled.match_event("I=4 and s = 'a' ") == [1, 2, 4]
        assert compiled.match_event("s = 'x AND i = 4'") == [3]
        assert compiled.match_event("i > 3 AND s = 'x AND i = 4' AND colour = 'red'") == [1, 3, 4]
        assert compiled.match_event("i > 3 AND i < 5") == [1]
        assert compiled.match_event("i > 3 AND I < 2") == []
        assert compiled.match_event("i > 99999999999 AND s = 'a'") == compiled.match_event("big = 1") == []
        assert compiled.match_event("big <=> NULL AND i = 0") == [5]
        for wrong in (
            "i = 4 AND",
            "AND i = 4",
            "i = 4 s = 'a'",
            "i = 4AND s = 'a' AND AND",
            "i = 'q' AND s = 'a'",
            "",
            " ",
        ):
            with pytest.raises(ri.RuleError):
                compiled.match_event(wrong)
