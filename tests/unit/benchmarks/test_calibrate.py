"""The costs by which engines are chosen: fitted to the times of plans that are kept beside the script."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from benchmarks.calibrate import __main__ as calibrate
from benchmarks.calibrate import fit, matches
from benchmarks.kinds import KINDS
from benchmarks.report import median
from rules_index.index.planner.access_plan import Planner, expectations
from rules_index.index.planner.costs import Costs, measured_costs


def test_the_costs_in_use_are_fitted_to_the_measurements_that_are_kept() -> None:
    _, alone, plans = calibrate.kept()
    assert asdict(measured_costs()) == pytest.approx(asdict(fit.fitted(alone, plans)), rel=0.01)
    assert len({(plan.kind, plan.rules) for plan in plans}) >= 20
    behind = fit.behind(measured_costs(), plans)
    assert median(behind) == 1 and np.mean(np.array(behind) < 1.15) > 0.85


def test_costs_by_which_plans_were_timed_are_found_again() -> None:
    _, alone, plans = calibrate.kept()
    draw = np.random.default_rng(1)
    names = sorted({name for plan in plans for name in plan.steps})
    true = replace(alone, **{name: getattr(alone, name) * draw.uniform(0.5, 2) for name in names})
    timed = [replace(plan, nanoseconds=fit.expected(true, plan)) for plan in plans]
    costs = fit.fitted(alone, timed)
    ratios = np.array([fit.expected(costs, plan) / plan.nanoseconds for plan in timed])
    before = np.array([fit.expected(alone, plan) / plan.nanoseconds for plan in timed])
    assert np.abs(np.log(ratios)).mean() < 0.03 < 0.2 < np.abs(np.log(before)).mean()
    assert median(fit.behind(costs, timed)) == 1 and max(fit.behind(costs, timed)) < 1.05


def test_a_step_that_no_plan_has_keeps_its_own_time() -> None:
    _, alone, _ = calibrate.kept()
    plan = matches.Measured("ranges", 10, 1.0, "scanning", "bitmaps", 200.0, {"scan_ns": 10.0 / alone.scan_ns})
    costs = fit.fitted(alone, [plan])
    assert asdict(replace(costs, scan_ns=alone.scan_ns)) == pytest.approx(asdict(alone))
    assert fit.expected(costs, plan) > 150


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_plan_is_expected_to_take_the_sum_of_its_steps(kind: str) -> None:
    conjunctions, codes = KINDS[kind].make(2_000, KINDS[kind].rate(2_000, 0.5), 1 << 14, 3).coded()
    sample = np.ascontiguousarray(codes[:, ::4], np.int32)
    costs = Costs(**{name: cost or 0.1 for name, cost in asdict(measured_costs()).items()})
    planner = Planner(expectations(conjunctions, np.arange(2_000), sample, counted=True), costs)
    choices = dict(matches.choices(planner))
    assert "scanning" in choices and len(choices) > 1
    for choice in choices.values():
        scan_method = planner.scanning.best
        whole = Planner(planner.expected, costs, scan_method).cost(choice)
        steps = matches.steps(planner, choice, scan_method)
        assert sum(getattr(costs, name) * often for name, often in steps.items()) == pytest.approx(whole, rel=0.01)
        assert min(steps.values()) >= 0


def test_what_is_kept_is_read_as_it_was_written() -> None:
    measured_on, alone, plans = calibrate.kept()
    assert matches.of_text(matches.as_text(measured_on, alone, plans)) == (measured_on, alone, plans)
