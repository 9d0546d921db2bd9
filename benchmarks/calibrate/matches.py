"""Whole matches of many plans: how long each takes, and how often a row has each of the kernel's steps in it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np

from benchmarks.calibrate.steps import nanoseconds
from benchmarks.kinds import KINDS
from rules_index.engines.asc.engine import Asc
from rules_index.index.build import SAMPLE_ROWS
from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.index.hybrid import Hybrid
from rules_index.index.layout import BLOCK_ROWS
from rules_index.index.planner.access_plan import CandidatePlan, Planner, access_plan, expectations, sampled
from rules_index.index.planner.costs import Costs, measured_costs

SEED = 23
RULES = (300, 2_000, 30_000, 300_000)
MATCHES = (0.03, 0.5, 5.0, 50.0)
"""Numbers of rules, and of matches a row, that the benchmark of the engines does not have."""
ROWS = 1 << 18
RUN_NANOSECONDS = 40e6
CHANGE = 0.01
"""How much a cost is changed, as a share of it, to tell how often a row has its step."""
NAMES = tuple(Costs.__dataclass_fields__)


@dataclass(frozen=True)
class Measured:
    """A plan that was timed: the rule set (of `kinds`), what the plan allows, how the kernel scans, nanoseconds a row,
    and how often a row has each step."""

    kind: str
    rules: int
    matches: float
    plan: str
    scan_method: str
    nanoseconds: float
    steps: dict[str, float]


def as_text(measured_on: str, alone: Costs, plans: list[Measured]) -> str:
    """JSON, a line for each plan."""
    rounded = {name: float(f"{cost:.4g}") for name, cost in asdict(alone).items()}
    lines = ",\n".join("  " + json.dumps(asdict(plan)) for plan in plans)
    head = json.dumps({"measured_on": measured_on, "alone": rounded}, indent=1)
    return f'{head[:-2]},\n "plans": [\n{lines}\n ]\n}}\n'


def of_text(text: str) -> tuple[str, Costs, list[Measured]]:
    """What `as_text` was given."""
    read = json.loads(text)
    return read["measured_on"], Costs(**read["alone"]), [Measured(**plan) for plan in read["plans"]]


def measure(repeat: int) -> list[Measured]:
    """All plans of all rule sets."""
    found: list[Measured] = []
    for name, kind in KINDS.items():
        for rules in RULES:
            for rate in dict.fromkeys(kind.rate(rules, wanted) for wanted in MATCHES):
                print(f"{name}, {rules:,} rules, {rate:.3g} matches a row", file=sys.stderr, flush=True)
                conjunctions, codes = kind.make(rules, rate, ROWS, SEED).coded()
                found += (
                    Measured(name, rules, float(f"{rate:.4g}"), *each) for each in _plans(conjunctions, codes, repeat)
                )
    return found


def _plans(c: Conjunctions, codes: np.ndarray, repeat: int) -> Iterator[tuple[str, str, float, dict[str, float]]]:
    """The plans of a rule set: scanning, and what is chosen where tables, sorted runs or both are allowed."""
    sample = np.ascontiguousarray(codes[:, :: max(1, codes.shape[1] // SAMPLE_ROWS)], np.int32)
    planner = Planner(expectations(c, sampled(c), sample, counted=True), measured_costs())
    seen: list[CandidatePlan] = []
    for name, candidate in choices(planner):
        if any(_same(candidate, other) for other in seen):
            continue
        seen.append(candidate)
        keyed = not candidate.scanned.all()
        engine = Hybrid(c, access_plan=access_plan(c, sample, planner, candidate)) if keyed else Asc.build(c)
        time, scan_method = _timed(engine, codes, repeat)
        yield name, scan_method, time, steps(planner, candidate, scan_method)


def choices(planner: Planner) -> Iterator[tuple[str, CandidatePlan]]:
    """Names and what becomes of the conjunctions; some may be the same."""
    yield "scanning", planner.scan_all()
    yield "tables", planner.choose(keyed=True, in_runs=False)
    yield "sorted runs", planner.choose(keyed=False, in_runs=True)
    yield "tables and sorted runs", planner.choose(keyed=True, in_runs=True)
    yield "tables, most", planner.choose(keyed=True, in_runs=False, eagerness=10.0)


def _same(one: CandidatePlan, other: CandidatePlan) -> bool:
    same = one.assignment.tables == other.assignment.tables and np.array_equal(
        one.assignment.table, other.assignment.table
    )
    return same and np.array_equal(one.sorted_by, other.sorted_by)


def _timed(engine: Asc | Hybrid, codes: np.ndarray, repeat: int) -> tuple[float, str]:
    """Nanoseconds a row, and how the kernel scans."""
    first = np.ascontiguousarray(codes[:, : 4 * BLOCK_ROWS])
    engine.match(first)
    rough = nanoseconds(1, engine.match, first) / first.shape[1]
    rows = min(codes.shape[1], max(4 * BLOCK_ROWS, int(RUN_NANOSECONDS / rough) // BLOCK_ROWS * BLOCK_ROWS))
    some = np.ascontiguousarray(codes[:, :rows])
    time = nanoseconds(repeat, engine.match, some) / rows
    return float(f"{time:.4g}"), engine.scan_method


def steps(planner: Planner, candidate: CandidatePlan, scan_method: str) -> dict[str, float]:
    """How often a row has each step: by how much the plan costs more where the step does, the plan being the same."""
    before = Planner(planner.expected, planner.costs, scan_method).cost(candidate)
    found = {}
    for name in NAMES:
        cost = getattr(planner.costs, name)
        more = CHANGE * (cost or 1.0)
        changed = Planner(planner.expected, replace(planner.costs, **{name: cost + more}), scan_method).cost(candidate)
        if abs(changed - before) > 1e-6 * before:
            found[name] = float(f"{(changed - before) / more:.4g}")
    return found
