"""Engines on rule sets that people have: learnt from connections, mined from them, of SQL tests, written by hand.

    python -m benchmarks.real [--sets trees flights] [--engines asc auto] [--repeat 7] [--seconds 0.5] [--json FILE]

Rules go through `compile_rules`, rows are the published data of the tests (`DELTATAG_DATA`), in random order, so that
the first ones stand for all where a system gets no more. Speeds are rows per second of CPU time on one core, from
region codes to rule ordinals, medians of runs in turn; the last column is `auto` from an Arrow table. Each row's
matches are compared before any time.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

import rules_index as ri
from benchmarks.baselines.witness import Witness
from benchmarks.engines import warm_up
from benchmarks.measured import (
    AUTO,
    LEAST_ROWS,
    SPEED_HEADER,
    WITNESS,
    Matcher,
    Measured,
    Task,
    fit_rows,
    match_seconds,
    speed_cells,
    time_in_turn,
)
from benchmarks.report import machine, print_table
from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.index.registry import ENGINES

SEED = 7
ARROW = "auto from Arrow"
KDD99 = ("kdd99_10pct", "kdd99_test_corrected")
LEARNT_ROWS = 50_000
LEAVES = 800
"""Leaves of each decision tree, a rule each."""
ITEM_SHARE = (0.01, 0.6)
"""Rows with a value of a column, for it to be in an association rule."""
RULE_SHARE = (0.002, 0.02)
"""Rows that an association rule matches."""
ASSOCIATIONS = 4_000
CONNECTIONS = 1 << 18
SQL_ROWS = 1 << 14

FLIGHT_RULES = (
    "dep_delay > 60",
    "dep_delay > 180 AND carrier IN ('AA', 'UA', 'DL')",
    "dep_delay BETWEEN 15 AND 30",
    "dep_delay IS NULL",
    "arr_delay IS NULL AND dep_time IS NOT NULL",
    "arr_delay < -20",
    "arr_delay <= 0 AND dep_delay > 20",
    "arr_delay > 120 OR dep_delay > 120",
    "arr_delay > dep_delay + 30",
    "dep_delay - arr_delay > 25 AND distance > 1500",
    "carrier = 'AS'",
    "carrier = 'AS' AND origin = 'SEA' AND dest IN ('ANC', 'FAI', 'JNU', 'KTN', 'SIT')",
    "carrier <> 'AS' AND dest = 'ANC'",
    "carrier IN ('OO', 'VX', 'F9') AND dep_delay > 45",
    "carrier NOT IN ('AS', 'WN', 'OO', 'UA', 'DL')",
    "carrier = 'WN' AND distance < 700",
    "carrier = 'DL' AND dest = 'ATL' AND hour < 8",
    "carrier = 'HA' OR dest IN ('HNL', 'OGG', 'LIH', 'KOA')",
    "origin = 'PDX' AND dest = 'SFO'",
    "origin = 'PDX' AND carrier = 'AS' AND arr_delay > 30",
    "origin = 'SEA' AND dest = 'SFO' AND hour BETWEEN 6 AND 9",
    "origin = 'SEA' AND dest LIKE 'S%'",
    "dest LIKE 'L__' AND air_time > 120",
    "dest IN ('JFK', 'EWR', 'BOS', 'PHL', 'IAD') AND hour >= 21",
    "dest IN ('ORD', 'MDW') AND (dep_delay > 60 OR dep_delay IS NULL)",
    "dest = 'DEN' AND month IN (12, 1, 2) AND dep_delay > 15",
    "distance > 2500",
    "distance >= 1000 AND distance < 1500 AND air_time > 200",
    "distance < 300 AND NOT (air_time < 60)",
    "air_time > 330",
    "air_time IS NULL AND dep_delay IS NOT NULL",
    "distance > 8 * air_time",
    "hour = 0",
    "hour >= 22 OR hour < 5",
    "hour BETWEEN 7 AND 9 AND minute < 5",
    "minute = 0 AND hour IN (6, 12, 18)",
    "dep_time < 500 AND arr_time < 800",
    "dep_time >= 2300 AND dest IN ('ATL', 'ORD', 'JFK')",
    "arr_time BETWEEN 1 AND 459 AND carrier = 'UA'",
    "month = 7 AND day = 4",
    "month = 11 AND day BETWEEN 25 AND 30 AND dep_delay > 10",
    "month = 12 AND day >= 20 AND (carrier = 'AA' OR carrier = 'US') AND arr_delay > 0",
    "month BETWEEN 6 AND 8 AND dest IN ('ANC', 'FAI') AND arr_delay > 15",
    "ts >= TIMESTAMP_NTZ '2014-07-03 12:00:00' AND ts < TIMESTAMP_NTZ '2014-07-06 00:00:00'",
    "ts BETWEEN TIMESTAMP_NTZ '2014-02-06 00:00:00' AND TIMESTAMP_NTZ '2014-02-09 00:00:00' AND origin = 'PDX'",
    "ts IS NULL",
    "flight < 100 AND carrier = 'AS'",
    "flight BETWEEN 2000 AND 2999 AND arr_delay > 60",
    "tailnum LIKE 'N5%AS' AND dep_delay > 90",
    "tailnum IS NULL OR tailnum = ''",
)
"""What somebody at an airport might want to be told of."""


Part = tuple[list[str], pa.Table]
"""Rules, and the rows that they are for."""


@dataclass
class Result:
    """One rule set and all that was measured on it; `rows` are those of every part."""

    name: str
    rules: int
    conjunctions: int
    rows: int
    matches: float
    measured: dict[str, Measured]


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS), metavar="SET")
    names = [*ENGINES, AUTO]
    parser.add_argument("--engines", nargs="+", default=names, choices=names, metavar="ENGINE")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one run of one system, about")
    parser.add_argument("--json", type=Path, help="file for all figures")
    options = parser.parse_args(arguments)
    data = Path(os.environ.get("DELTATAG_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not data.is_dir():
        sys.exit(f"There are no published data sets in {data}; DELTATAG_DATA can name another folder.")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(f"rule sets of people: one core; {machine()}")
    warm_up(options.engines)
    results: list[Result] = []
    for name in options.sets:
        print(name, file=sys.stderr, flush=True)
        results.append(measure(name, SETS[name](data), options.engines, options.repeat, options.seconds))
        if options.json:
            options.json.write_text(json.dumps([asdict(each) for each in results], indent=1))
    systems = [*(name for name in names if name in options.engines), WITNESS]
    rows = [
        (each.name, f"{each.rules:,}", f"{each.conjunctions:,}", f"{each.rows:,}", f"{each.matches:.3g}",
         *speed_cells(each.measured, systems), each.measured[ARROW].told)
        for each in results
    ]  # fmt: skip
    header = ("rule set", "rules", "conjunctions", "rows", "matches a row", *systems, *SPEED_HEADER, ARROW)
    print_table(f"Rows per CPU second, medians of {options.repeat} runs in turn; {machine()}", header, rows)


def measure(name: str, parts: Sequence[Part], engines: Sequence[str], repeat: int, seconds: float) -> Result:
    """Compiles, compares and times all systems on a rule set."""
    measured: dict[str, Measured] = {}
    compiled = {engine: _compile(engine, parts, measured) for engine in dict.fromkeys(("scan", AUTO, *engines))}
    codes = [each.codes(table)[0] for each, (_, table) in zip(compiled["scan"], parts, strict=True)]
    conjunctions = [_conjunctions(each) for each in compiled["scan"]]
    matchers = {engine: [each.index.match for each in by_part] for engine, by_part in compiled.items()}
    matches = _compare(matchers, codes, exact=True)
    witnesses = [Witness.build(c, each[:, :LEAST_ROWS]) for c, each in zip(conjunctions, codes, strict=True)]
    measured[WITNESS] = Measured(WITNESS, WITNESS, nbytes=sum(each.nbytes for each in witnesses))
    matchers[WITNESS] = [each.match for each in witnesses]
    _compare({"scan": matchers["scan"], WITNESS: matchers[WITNESS]}, codes, exact=False)
    tasks: dict[str, Task] = {
        system: partial(_mean_seconds, matchers[system], codes) for system in dict.fromkeys((*engines, AUTO, WITNESS))
    }
    tasks[ARROW] = partial(_arrow_seconds, compiled[AUTO], [table for _, table in parts])
    measured[ARROW] = Measured(ARROW, AUTO)
    rows = parts[0][1].num_rows
    for system, task in tasks.items():
        fit_rows(measured[system], task, seconds, rows)
    time_in_turn(measured, tasks, repeat)
    rules = sum(len(texts) for texts, _ in parts)
    return Result(
        name, rules, sum(len(c.target) - int(c.disjunction_start[-1]) for c in conjunctions), rows, matches, measured
    )


def _compile(engine: str, parts: Sequence[Part], measured: dict[str, Measured]) -> list[ri.CompiledRules]:
    """All parts compiled, and how long that took."""
    started = time.process_time()
    compiled = [
        ri.compile_rules(list(enumerate(texts)), table.schema, engine=engine, sample=table.select)
        for texts, table in parts
    ]
    seconds = time.process_time() - started
    for each in compiled:
        if each.rejects.num_rows or each.derived:
            sys.exit(f"Some rules need Spark or did not compile: {each.rejects.to_pylist()[:3]}, {each.derived[:3]}")
    nbytes = sum(array.nbytes for each in compiled for array in each.index.arrays.values())
    chosen = ", ".join(dict.fromkeys(each.engine for each in compiled))
    reason = str(compiled[0].stats["engine_reason"])
    measured[engine] = Measured(engine, chosen, reason, build_seconds=seconds, nbytes=nbytes)
    return compiled


def _conjunctions(compiled: ri.CompiledRules) -> Conjunctions:
    arrays = compiled.index.arrays
    return Conjunctions(**{name: arrays[name] for name in Conjunctions.__dataclass_fields__})


def _compare(matchers: Mapping[str, Sequence[Matcher]], codes: Sequence[np.ndarray], exact: bool) -> float:
    """Matches a row in the first rows of every part, the same from all systems, also in their order where `exact`; ends
    the program where they are not."""
    total = 0
    for number, each in enumerate(codes):
        part = np.ascontiguousarray(each[:, :LEAST_ROWS])
        offsets, ordinals = matchers["scan"][number](part)
        total += len(ordinals)
        for name, by_part in matchers.items():
            found = by_part[number](part)
            counts = np.bincount(found[1], minlength=1), np.bincount(ordinals, minlength=1)
            same = np.array_equal(found[1], ordinals) if exact else np.array_equal(*counts)
            if not same or not np.array_equal(found[0], offsets):
                sys.exit(f"{name} and scan differ on part {number}.")
    return total / float(sum(min(LEAST_ROWS, each.shape[1]) for each in codes))


def _mean_seconds(matchers: Sequence[Matcher], codes: Sequence[np.ndarray], rows: int, passes: int) -> float:
    """CPU seconds of a part, from codes."""
    seconds = [match_seconds(match, each, rows, passes) for match, each in zip(matchers, codes, strict=True)]
    return sum(seconds) / len(seconds)


def _arrow_seconds(compiled: Sequence[ri.CompiledRules], tables: Sequence[pa.Table], rows: int, passes: int) -> float:
    """CPU seconds of a part, from an Arrow table."""
    taken = 0.0
    for each, table in zip(compiled, tables, strict=True):
        part = table.slice(0, rows)
        started = time.process_time()
        for _ in range(passes):
            each.match(part)
        taken += time.process_time() - started
    return taken / len(tables)


def trees(data: Path) -> list[Part]:
    """Every path of two decision trees over KDD99's connections, one with the best splits and one with random ones."""
    from sklearn.tree import DecisionTreeClassifier  # which takes a second to import

    frame = _connections(data)
    learnt = frame.unique(maintain_order=True).head(LEARNT_ROWS)
    features = [feature for name in frame.columns if name != "label" for feature in _features(learnt, name)]
    matrix = np.stack([values for values, _ in features], axis=1)
    rules: list[str] = []
    for splitter in ("best", "random"):
        tree = DecisionTreeClassifier(splitter=splitter, max_leaf_nodes=LEAVES, random_state=SEED)
        tree.fit(matrix, learnt["label"].to_numpy())
        rules += _paths(tree.tree_, [condition for _, condition in features])
    return [(rules, frame.drop("label").to_arrow())]


def associations(data: Path) -> list[Part]:
    """Two to four values that KDD99's connections often have together, as a miner of item sets finds them."""
    frame = _connections(data).drop("label")
    learnt = frame.unique(maintain_order=True).head(LEARNT_ROWS)
    items = [item for name in frame.columns for item in _items(learnt, name)]
    held = np.stack([holds for holds, _ in items])
    random = np.random.default_rng(SEED)
    found: set[str] = set()
    while len(found) < ASSOCIATIONS:
        of_row = np.flatnonzero(held[:, random.integers(0, held.shape[1])])
        chosen = np.sort(random.choice(of_row, min(len(of_row), int(random.integers(2, 5))), replace=False))
        if RULE_SHARE[0] <= held[chosen].all(axis=0).mean() <= RULE_SHARE[1]:
            found.add(" AND ".join(items[item][1] for item in chosen))
    return [(sorted(found), frame.to_arrow())]


def sql_tests(data: Path) -> list[Part]:
    """The predicates of SQLite's sqllogictest, a part for each of its tables, most of which have ten rows; here rows
    draw each column's values anew."""
    random = np.random.default_rng(SEED)
    parts: list[Part] = []
    with gzip.open(data / "sqllogictest" / "where_predicates.jsonl.gz", "rt") as lines:
        for line in lines:
            table: dict[str, Any] = json.loads(line)
            columns = {}
            for name, values in zip(table["columns"], zip(*table["rows"], strict=True), strict=True):
                kinds = {type(value) for value in values if value is not None}
                kind = pa.float64() if float in kinds else pa.string() if str in kinds else pa.int32()
                columns[name] = pa.array(values, kind).take(pa.array(random.integers(0, len(values), SQL_ROWS)))
            parts.append(([query["where"] for query in table["queries"]], pa.table(columns)))
    return parts


def flights(data: Path) -> list[Part]:
    """Fifty rules by hand over the flights of the Pacific Northwest in 2014."""
    frame = pl.read_parquet(data / "pnwflights14" / "flights.parquet")
    return [(list(FLIGHT_RULES), frame.sample(fraction=1, shuffle=True, seed=SEED).to_arrow())]


SETS: dict[str, Callable[[Path], list[Part]]] = {
    "trees": trees,
    "associations": associations,
    "sql_tests": sql_tests,
    "flights": flights,
}


def _connections(data: Path) -> pl.DataFrame:
    """Some of KDD99's connections, in random order."""
    both = pl.concat([pl.read_parquet(data / "kdd99" / f"{name}.parquet") for name in KDD99])
    return both.sample(CONNECTIONS, shuffle=True, seed=SEED)


Condition = Callable[[float, bool], str]
"""A threshold, and whether the feature is at most it -> SQL."""


def _features(frame: pl.DataFrame, name: str) -> Iterator[tuple[np.ndarray, Condition]]:
    """What a tree sees of a column: numbers as they are, of texts whether it is this one or that."""
    if frame[name].dtype != pl.String:
        whole = frame[name].dtype.is_integer()
        yield (
            frame[name].to_numpy().astype(np.float32),
            lambda at, below: f"{name} {'<=' if below else '>'} {int(np.floor(at)) if whole else f'{at!r}D'}",
        )
        return
    for word in sorted(frame[name].unique()):
        yield (frame[name] == word).to_numpy().astype(np.float32), partial(_is_not, name, word)


def _is_not(name: str, word: str, threshold: float, below: bool) -> str:
    return f"{name} {'<>' if below else '='} '{word}'"


def _paths(tree: Any, conditions: Sequence[Condition]) -> Iterator[str]:
    """The conditions on the way to every leaf."""
    waiting: list[tuple[int, tuple[str, ...]]] = [(0, ())]
    while waiting:
        node, above = waiting.pop()
        left, right = tree.children_left[node], tree.children_right[node]
        if left == right:
            yield " AND ".join(above)
            continue
        condition, threshold = conditions[tree.feature[node]], float(tree.threshold[node])
        waiting.append((left, (*above, condition(threshold, True))))
        waiting.append((right, (*above, condition(threshold, False))))


def _items(frame: pl.DataFrame, name: str) -> Iterator[tuple[np.ndarray, str]]:
    """The frequent values of a column: which rows [rows] bool have it, and the condition that they do."""
    column = frame[name]
    for value in column.unique().sort().to_list():
        holds = (column == value).to_numpy()
        if ITEM_SHARE[0] <= holds.mean() <= ITEM_SHARE[1]:
            literal = f"'{value}'" if isinstance(value, str) else f"{value!r}D" if isinstance(value, float) else value
            yield holds, f"{name} = {literal}"


if __name__ == "__main__":
    main()
