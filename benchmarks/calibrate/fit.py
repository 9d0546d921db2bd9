"""Costs of steps that tell the times of plans: least squares of logarithms, held near the steps' own times."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict

import numpy as np

from benchmarks.calibrate.matches import NAMES, Measured
from rules_index.index.planner import Costs

TRUST = 0.05
"""What a step's own time weighs beside a plan's: alone, in near caches and with nothing around it, it takes half or
twice what it takes in a match, and the time of a plan is right within a seventh."""
FAR = 0.3
"""Logarithms of times farther off than this count for less than their squares: now and then the host or the allocation
of memory makes a time three times as long."""
ROUNDS = 200
LEAST = 1e-5
"""Nanoseconds that a step takes at least, so that it has a logarithm."""


def expected(costs: Costs, plan: Measured) -> float:
    """Nanoseconds a row that a plan is expected to take."""
    return sum(getattr(costs, name) * often for name, often in plan.steps.items())


def fitted(alone: Costs, plans: list[Measured]) -> Costs:
    """The costs by which plans are expected to take what they took. Of a rule set's plans the slower ones count less:
    there it does not matter how slow they are."""
    often = np.array([[plan.steps.get(name, 0.0) for name in NAMES] for plan in plans])
    times = np.array([plan.nanoseconds for plan in plans])
    fastest = {key: min(plan.nanoseconds for plan in each) for key, each in _by_rule_set(plans).items()}
    weight = np.sqrt([fastest[_rule_set(plan)] / plan.nanoseconds for plan in plans])
    at = start = np.log(np.maximum(LEAST, list(asdict(alone).values())))
    damping = 1.0
    far, slopes = _residuals(at, start, often, times, weight)
    # Levenberg and Marquardt's way
    for _ in range(ROUNDS):
        step = np.linalg.solve(slopes.T @ slopes + damping * np.eye(len(at)), -slopes.T @ far)
        tried, tried_slopes = _residuals(at + step, start, often, times, weight)
        if tried @ tried < far @ far:
            at, far, slopes, damping = at + step, tried, tried_slopes, damping / 3
        else:
            damping *= 4
    return Costs(**dict(zip(NAMES, np.exp(at).tolist(), strict=True)))


def _residuals(
    logs: np.ndarray, start: np.ndarray, often: np.ndarray, times: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What is to be small in squares [plans + steps], and its slopes [plans + steps, steps], at the logarithms of some
    costs [steps]: how far the times of plans are from those told, and the costs from where they start."""
    # what lists made from bitmaps spare is taken off: never all of it
    told = np.maximum(often @ np.exp(logs), 0.01 * times)
    off, slopes = _bounded(np.log(told / times))
    far = np.concatenate([weight * off, np.sqrt(TRUST) * (logs - start)])
    slopes = (weight * slopes / told)[:, None] * often * np.exp(logs)
    return far, np.concatenate([slopes, np.sqrt(TRUST) * np.eye(len(logs))])


def _bounded(off: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers whose squares grow like those given up to `FAR`, and beyond only as they themselves do (a pseudo-Huber
    loss); and their slopes."""
    slant = np.sqrt(1 + (off / FAR) ** 2)
    # 2 (slant - 1) without its cancellation
    factor = np.sqrt(2 / (slant + 1))
    return off * factor, 1 / (slant * factor)


def behind(costs: Costs, plans: list[Measured]) -> list[float]:
    """Of every rule set with several plans how many times as long as the fastest the one takes that is expected to be
    fastest."""
    several = [each for each in _by_rule_set(plans).values() if len(each) > 1]
    chosen = [min(each, key=lambda plan: expected(costs, plan)) for each in several]
    return [
        plan.nanoseconds / min(other.nanoseconds for other in each) for plan, each in zip(chosen, several, strict=True)
    ]


def _by_rule_set(plans: list[Measured]) -> dict[tuple[str, int, float], list[Measured]]:
    of = defaultdict(list)
    for plan in plans:
        of[_rule_set(plan)].append(plan)
    return of


def _rule_set(plan: Measured) -> tuple[str, int, float]:
    return plan.kind, plan.rules, plan.matches
