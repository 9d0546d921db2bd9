"""Lint over many rules with planted mistakes of every kind: is each found, is what is told true, and how long it takes.

    python -m benchmarks.lint [--rules 100000] [--planted 1000] [--sample 1000] [--json FILE]

Nothing is told unless each planted mistake was found, and each of the sampled findings holds on all cells of its rules:
on every combination of their constants, of what lies between them, and of NULL.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import rules_index as ri
from benchmarks.report import machine, print_table
from rules_index.implication.lint import LINT_KINDS

SEED = 3
SCHEMA = pa.schema(
    [
        ("account", pa.int64()),
        ("origin", pa.string()),
        ("delay", pa.int32()),
        ("distance", pa.int32()),
        ("hour", pa.int8()),
        ("wet", pa.bool_()),
    ]
)
ORIGINS = 400
PLANTED = {
    "rejected": ["account = {0} AND dellay > {1}"],
    "contradiction": ["account = {0} AND delay > {2} AND delay < {1}"],
    "tautology": ["delay > {1} OR delay <= {2} OR delay IS NULL OR account = {0}"],
    "null_comparison": ["account = {0} AND (delay > {1} OR hour = NULL)"],
    "duplicate": ["account = {0} AND delay > {1}", "delay >= 1 + {1} AND {0} = account"],
    "implied": ["account = {0} AND delay > {2} AND wet", "account = {0} AND delay > {1}"],
    "implied_by_union": [
        "account = {0} AND delay BETWEEN {1} AND {2}",
        "account = {0} AND delay < {2} - 5",
        "account = {0} AND delay > {1} + 5",
    ],
    "redundant_alternative": ["account = {0} AND delay > {1} OR account = {0} AND delay > {2} AND hour = 7"],
    "unreachable_alternative": ["account = {0} AND wet OR account = {0} AND delay > {2} AND delay <= {1}"],
}
"""Rules of each kind; the finding is the first one's. {0} is an account of their own, {1} and {2} are delays, of which
the second is at least 20 above."""
_CONSTANTS = re.compile(r"(\w+) (?:(?:[<>]|<=|>=|=|<>) (-?\d+)|BETWEEN (-?\d+) AND (-?\d+))|(-?\d+) = (\w+)")


@dataclass(frozen=True)
class Planted:
    """Rules, and of each finding that was planted among them (rule id, kind) and the ids of the others."""

    rules: list[tuple[int, str]]
    findings: dict[tuple[int, str], list[int]]


def planted(rules: int, each: int, seed: int = SEED) -> Planted:
    """So many rules with `each` findings of every kind, in any order."""
    choice = np.random.default_rng(seed)
    count = each * sum(map(len, PLANTED.values()))
    if count > rules:
        raise ValueError(f"{each} findings of every kind take {count} rules.")
    ids = choice.permutation(rules).tolist()
    texts: list[str] = []
    findings: dict[tuple[int, str], list[int]] = {}
    for kind, _ in itertools.product(PLANTED, range(each)):
        least = int(choice.integers(-30, 200))
        numbers = (len(texts), least, least + int(choice.integers(20, 90)))
        at = len(texts)
        texts += [_worked_out(text.format(*numbers)) for text in PLANTED[kind]]
        findings[ids[at], kind] = sorted(ids[at + 1 : len(texts)])
    texts += [_other(choice, rules + place) for place in range(rules - len(texts))]
    return Planted(sorted(zip(ids, texts, strict=True)), findings)


def _worked_out(text: str) -> str:
    """A text with its sums of two numbers as numbers."""
    return re.sub(r"(-?\d+) ([+-]) (\d+)", lambda found: str(int(found[1]) + int(found[2] + found[3])), text)


def _other(choice: np.random.Generator, account: int) -> str:
    """A rule that is in order by itself: most name an account of their own, others are ranges that may overlap."""
    delay, distance, hour, origin = choice.integers((0, 100, 0, 0), (300, 4000, 24, ORIGINS)).tolist()
    if choice.random() < 0.7:
        return f"account = {account} AND (delay > {delay} OR distance <= {distance}) AND hour <> {hour}"
    return f"origin = 'A{origin}' AND distance BETWEEN {distance} AND {distance + 300} AND delay > {delay}"


def missing(found: pa.Table, given: Planted) -> list[tuple[int, str]]:
    """The planted findings that were not told, or not of these others."""
    told = {(each["rule_id"], each["kind"]): each["other_ids"] for each in found.to_pylist()}
    wrong = []
    for (rule, kind), others in given.findings.items():
        # of two rules that are the same the first is told about
        first, *rest = sorted((rule, *others)) if kind == "duplicate" else (rule, *others)
        if told.get((first, kind)) != rest:
            wrong.append((rule, kind))
    return wrong


# Brute force


def cells(texts: Sequence[str]) -> pa.Table:
    """Rows with every combination of values that some rules tell apart, and NULL; what they do not name is NULL."""
    constants: dict[str, set[int]] = {}
    for each in _CONSTANTS.finditer(" ".join(texts)):
        name, *values, other = each.groups()
        constants.setdefault(name or other, set()).update(int(value) for value in values if value)
    pools: list[list[Any]] = []
    for field in SCHEMA:
        found = constants.get(field.name, set())
        values: Sequence[Any] = sorted({value + step for value in found for step in (-1, 0, 1)})
        if field.name == "wet":
            values = (False, True)
        elif field.name == "origin":
            values = ["", *sorted(set(re.findall(r"'(\w+)'", " ".join(texts))))]
        pools.append([*values, None])
    columns = zip(*itertools.product(*pools), strict=True)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def truth(rules: Sequence[str], rows: pa.Table) -> np.ndarray:
    """Where each rule is TRUE: [rules, rows] bool."""
    compiled = ri.compile_rules(list(enumerate(rules)), SCHEMA, engine="scan")
    found = np.zeros((len(rules), rows.num_rows), bool)
    offsets, ordinals, _ = compiled.match_ordinals(rows)
    found[compiled.ids.to_numpy()[ordinals], np.repeat(np.arange(rows.num_rows), np.diff(offsets))] = True
    return found


def is_false(each: Mapping[str, Any], texts: Mapping[int, str]) -> bool:
    """Whether a finding, a row of `ri.lint`'s table, does not hold on some cell."""
    rule, others = texts[each["rule_id"]], [texts[other] for other in each["other_ids"]]
    if each["kind"] == "rejected":
        return ri.compile_rules([(0, rule)], SCHEMA).rejects.num_rows == 0
    changed = []
    if each["text"] is not None:
        # without the part that is meant the rule is TRUE where it was
        begin, end = each["position"], each["position"] + len(each["text"])
        changed = [rule[:begin] + "FALSE" + rule[end:]]
    mine, *rest = truth([rule, *others, *changed], cells([rule, *others]))
    together = np.logical_or.reduce([np.zeros_like(mine), *rest])
    holds = {
        "contradiction": not mine.any(),
        "tautology": mine.all(),
        "duplicate": all((other == mine).all() for other in rest),
        "implied": (mine <= together).all(),
        "implied_by_union": (mine <= together).all(),
    }
    return not holds.get(each["kind"], all((other == mine).all() for other in rest))


def main(arguments: list[str] | None = None) -> None:
    """Plant, look, compare, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rules", type=int, default=100_000)
    parser.add_argument("--planted", type=int, default=1_000, help="findings of each kind")
    parser.add_argument("--sample", type=int, default=1_000, help="findings that are compared with brute force")
    parser.add_argument("--json", type=Path, help="file for all figures")
    options = parser.parse_args(arguments)
    print(f"lint: {machine()}")
    given = planted(options.rules, options.planted)
    # what Numba compiles is compiled before
    ri.lint(planted(len(PLANTED) * 3, 1).rules, SCHEMA)
    started = time.perf_counter(), time.process_time()
    found = ri.lint(given.rules, SCHEMA)
    seconds, cpu = time.perf_counter() - started[0], time.process_time() - started[1]
    if wrong := missing(found, given):
        raise SystemExit(
            f"{len(wrong)} of {len(given.findings)} planted findings were not told, the first: {wrong[0]}."
        )
    chosen = np.random.default_rng(SEED).permutation(found.num_rows)[: options.sample]
    texts = dict(given.rules)
    false = [each for each in found.take(pa.array(chosen)).to_pylist() if is_false(each, texts)]
    if false:
        raise SystemExit(f"{len(false)} of {len(chosen)} findings do not hold, the first: {false[0]}.")
    told, plan = Counter(found["kind"].to_pylist()), Counter(kind for _, kind in given.findings)
    held = f"{len(chosen):,} of {found.num_rows:,} findings held on all cells"
    title = f"{options.rules:,} rules, {seconds:.1f} s ({cpu:.1f} s CPU); {held}"
    print_table(title, ("kind", "planted", "told"), [(kind, plan[kind], told[kind]) for kind in LINT_KINDS])
    if options.json:
        options.json.write_text(json.dumps({"seconds": seconds, "cpu": cpu, "planted": plan, "told": told}, indent=1))


if __name__ == "__main__":
    main()
