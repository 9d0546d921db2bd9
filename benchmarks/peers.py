"""The same rules in Polars, in DuckDB and in a compiled program, each in the form that suits it best.

Unless they are called lists, they give the number of matches per rule and nothing else, which spares them the lists
of rule ids per row that deltatag makes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

from benchmarks.workload import ACCOUNT, COLUMNS, PREDICATES, VALUES, Workload, names

Answer = tuple[np.ndarray, float]
"""Matches per rule [rules] int64, and the CPU seconds that matching took: a busy machine does not lengthen them."""

RULES_AT_ONCE = 1_000
"""Rules in one statement of DuckDB: planning more at once takes longer than running them in turn."""


def polars_expressions(workload: Workload) -> Answer:
    """Every rule as a Boolean expression that Polars sums; all rows at once, or planning takes longer than running."""
    frame = pl.DataFrame(pl.from_arrow(workload.table()))
    rules = [expression.sum() for expression in _polars_rules(workload)]
    started = time.process_time()
    counts = frame.select(rules).to_numpy()[0].astype(np.int64)
    return counts, time.process_time() - started


def polars_lists(workload: Workload) -> Answer:
    """Every rule as a Boolean expression whose rows are gathered, and these as lists of rules per row."""
    frame = pl.DataFrame(pl.from_arrow(workload.table()))
    rules = [expression.arg_true().implode() for expression in _polars_rules(workload)]
    started = time.process_time()
    found = frame.select(rules)
    pairs = pl.DataFrame({"rule": range(len(rules)), "row": [column[0] for column in found.get_columns()]}).explode(
        "row"
    )
    lists = pairs.drop_nulls().group_by("row").agg(pl.col("rule").sort())
    seconds = time.process_time() - started
    return np.bincount(lists["rule"].explode().to_numpy(), minlength=len(workload)), seconds


def _polars_rules(workload: Workload) -> Iterator[pl.Expr]:
    for number, (attributes, low, high) in enumerate(
        zip(workload.attributes.tolist(), workload.low.tolist(), workload.high.tolist(), strict=True)
    ):
        predicates = []
        for attribute, least, most in zip(attributes, low, high, strict=True):
            column = pl.col(f"c{attribute}")
            if least == most:
                predicates.append(column == least)
                continue
            if least > 0:
                predicates.append(column >= least)
            if most < VALUES - 1:
                predicates.append(column <= most)
        yield pl.all_horizontal(predicates).alias(str(number))


def duckdb_expressions(workload: Workload) -> Answer:
    """Every rule as a sum of zeros and ones, a thousand in a statement; faster here than filtered counts."""
    with _duckdb(workload) as connection:
        texts = workload.texts()
        counts: list[int] = []
        started = time.process_time()
        for start in range(0, len(texts), RULES_AT_ONCE):
            sums = ", ".join(f"sum(({text})::INT)" for text in texts[start : start + RULES_AT_ONCE])
            counts += connection.execute(f"SELECT {sums} FROM events").fetchall()[0]
        return np.array(counts, np.int64), time.process_time() - started


def duckdb_join(workload: Workload) -> Answer:
    """The rules of an account workload as a table that is joined on the account; the ranges filter."""
    found, seconds = _duckdb_join(workload, "SELECT rule, count(*) AS matches FROM joined GROUP BY rule")
    return _counts(workload, found["rule"], found["matches"]), seconds


def duckdb_join_lists(workload: Workload) -> Answer:
    """The same join, gathered into a list of rules per row."""
    query = "SELECT row, list(rule ORDER BY rule) AS rules FROM joined GROUP BY row"
    found, seconds = _duckdb_join(workload, query)
    rules = [rule for each in found["rules"] for rule in each]
    return np.bincount(np.array(rules, np.int64), minlength=len(workload)), seconds


def _duckdb_join(workload: Workload, query: str) -> tuple[dict[str, np.ndarray], float]:
    with _duckdb(workload) as connection:
        connection.register("bounds", _bounds_table(workload))
        connection.execute("CREATE TABLE rules AS SELECT * FROM bounds")
        # a rule's other columns have the widest bounds
        ranges = " AND ".join(f"e.c{i} BETWEEN r.low{i} AND r.high{i}" for i in range(COLUMNS) if i != ACCOUNT)
        joined = f"SELECT rule, e.rowid AS row FROM events e JOIN rules r ON e.c{ACCOUNT} = r.account AND {ranges}"
        started = time.process_time()
        found = connection.execute(f"WITH joined AS ({joined}) {query}").fetchnumpy()
        return found, time.process_time() - started


def polars_join(workload: Workload) -> Answer:
    """The same join in Polars."""
    found, seconds = _polars_join(workload, lambda joined: joined.group_by("rule").len())
    return _counts(workload, found["rule"].to_numpy(), found["len"].to_numpy()), seconds


def polars_join_lists(workload: Workload) -> Answer:
    """The same join, gathered into a list of rules per row."""
    found, seconds = _polars_join(workload, lambda joined: joined.group_by("row").agg(pl.col("rule").sort()))
    return np.bincount(found["rule"].explode().to_numpy(), minlength=len(workload)), seconds


def _polars_join(workload: Workload, gather: Callable[[pl.LazyFrame], pl.LazyFrame]) -> tuple[pl.DataFrame, float]:
    frame = pl.DataFrame(pl.from_arrow(workload.table())).with_row_index("row")
    rules = pl.DataFrame(pl.from_arrow(_bounds_table(workload)))
    columns = [i for i in range(COLUMNS) if i != ACCOUNT]
    ranges = [pl.col(f"c{i}").is_between(pl.col(f"low{i}"), pl.col(f"high{i}")) for i in columns]
    started = time.process_time()
    joined = frame.lazy().join(rules.lazy(), left_on=f"c{ACCOUNT}", right_on="account").filter(*ranges)
    found = gather(joined).collect()
    return found, time.process_time() - started


def _bounds_table(workload: Workload) -> pa.Table:
    """rule, account and, for every other column, the bounds low<i> and high<i>, the widest where a rule has none."""
    low = np.zeros((len(workload), COLUMNS), np.int32)
    high = np.full((len(workload), COLUMNS), VALUES - 1, np.int32)
    np.put_along_axis(low, workload.attributes, workload.low, axis=1)
    np.put_along_axis(high, workload.attributes, workload.high, axis=1)
    columns = {"rule": np.arange(len(workload), dtype=np.int32), "account": np.ascontiguousarray(low[:, ACCOUNT])}
    for i in range(COLUMNS):
        if i != ACCOUNT:
            columns |= {f"low{i}": np.ascontiguousarray(low[:, i]), f"high{i}": np.ascontiguousarray(high[:, i])}
    return pa.table(columns)


def _counts(workload: Workload, rules: np.ndarray, matches: np.ndarray) -> np.ndarray:
    counts = np.zeros(len(workload), np.int64)
    counts[rules] = matches
    return counts


def _duckdb(workload: Workload) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.register("given", workload.table())
    connection.execute(f"CREATE TABLE events AS SELECT {', '.join(names())} FROM given")
    return connection


class Witness:
    """`witness.c`: postings of each rule's rarest predicate, the others verified row by row; values of one byte."""

    def __init__(self, folder: Path) -> None:
        """Builds the program in `folder`; `reason` says why there is none."""
        source = Path(os.environ.get("DELTATAG_BENCH") or Path(__file__).parents[2] / "shared" / "bench") / "witness.c"
        self.folder = folder
        self.program = folder / "witness"
        self.reason: str | None = None
        if not source.is_file():
            self.reason = f"there is no {source.name} in {source.parent}; DELTATAG_BENCH can name another folder"
        elif shutil.which("gcc") is None:
            self.reason = "there is no gcc to build witness.c with"
        else:
            command = ["gcc", "-O3", "-march=native", "-w", "-o", str(self.program), str(source)]
            subprocess.run(command, check=True, capture_output=True)

    def run(self, workload: Workload) -> tuple[int, int, float]:
        """The number of matches, the sum over them of rule number + 1, and the CPU seconds of the best of three."""
        order = np.argsort(workload.high - workload.low, axis=1, kind="stable")
        parts = (np.take_along_axis(each, order, 1) for each in (workload.attributes, workload.low, workload.high))
        rules = np.stack(list(parts), axis=2).astype(np.int32)
        assert rules.shape[1] == PREDICATES
        name, rows = workload.name, len(workload.rows)
        workload.rows.astype(np.uint8).tofile(self.folder / f"events_{name}.u8")
        rules.tofile(self.folder / f"rules_{name}_{len(workload)}.i32")
        command = [str(self.program), str(self.folder), name, str(len(workload)), str(rows)]
        answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        return answer["matches"], answer["checksum"], rows / answer["ev_s"]
