"""Criteria that the claims of several papers share: who is ahead, by how much, and how a number grows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import geometric_mean

from benchmarks.papers.experiment import Claim, Row
from benchmarks.report import short


def pairs(rows: Sequence[Row], one: str, other: str, where: Callable[[Row], bool] | None = None) -> list[float]:
    """`other` / `one` of the rows that have both."""
    chosen = [row for row in rows if where is None or where(row)]
    both = [(row.get(one), row.get(other)) for row in chosen]
    return [b / a for a, b in both if _number(a) and _number(b) and a > 0]


def next_best(
    rows: Sequence[Row], own: str, others: Sequence[str], where: Callable[[Row], bool] | None = None
) -> list[float]:
    """The least of the others over one's own, row by row."""
    ratios = []
    for row in rows:
        known = [row[name] for name in others if _number(row.get(name))]
        if known and _number(row.get(own)) and row[own] > 0 and (where is None or where(row)):
            ratios.append(min(known) / row[own])
    return ratios


def less_by(
    paper: str, own: str, others: Sequence[str], percent: float, where: Callable[[Row], bool] | None = None
) -> Claim:
    """Own time is below that of the next best by a percentage: met where the geometric mean of the factors is at least
    half the paper's gain, `1 / (1 - percent / 100)`, and own is ahead."""
    gain = 1 / (1 - percent / 100)
    wanted = 1 + (gain - 1) / 2

    def judge(rows: Sequence[Row]) -> tuple[bool, str]:
        ratios = next_best(rows, own, others, where)
        if not ratios:
            return False, "no such rows"
        mean = geometric_mean(ratios)
        told = f"the next best takes {mean:.2f} x as long ({min(ratios):.2f} to {max(ratios):.2f})"
        return mean >= wanted, told

    return Claim(paper, f"next best / {own} at least {wanted:.2f} (half the paper's gain), geometric mean", judge)


def below(
    paper: str, own: str, others: Sequence[str], where: Callable[[Row], bool] | None = None, least: float = 1.0,
    share: float = 1.0,
) -> Claim:  # fmt: skip
    """Own number is below each of the others' by a factor on (a share of) all rows."""

    def judge(rows: Sequence[Row]) -> tuple[bool, str]:
        met, told = True, []
        for other in others:
            ratios = pairs(rows, own, other, where)
            good = sum(ratio >= least for ratio in ratios)
            met &= bool(ratios) and good >= share * len(ratios)
            spread = f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else "not measured"
            told.append(f"{other} / {own} {spread}")
        return met, "; ".join(told)

    on = "every row" if share == 1 else f"{share:.0%} of the rows"
    return Claim(paper, f"{', '.join(others)} at least {least:g} x {own} on {on}", judge)


def between(paper: str, low: float, high: float, figure: Callable[[Sequence[Row]], float], what: str) -> Claim:
    """A number computed from the rows lies between two bounds."""

    def judge(rows: Sequence[Row]) -> tuple[bool, str]:
        value = figure(rows)
        return low <= value <= high, f"{what} {short(value)}"

    bounds = (
        f"at most {high:g}" if low == -math.inf else f"at least {low:g}" if high == math.inf else f"{low:g} to {high:g}"
    )
    return Claim(paper, f"{what}: {bounds}", judge)


def growth(rows: Sequence[Row], name: str, where: Callable[[Row], bool] | None = None) -> float:
    """The last number over the first one."""
    values = [row[name] for row in rows if _number(row.get(name)) and (where is None or where(row))]
    return values[-1] / values[0] if len(values) > 1 and values[0] else math.nan


def spread(rows: Sequence[Row], name: str, where: Callable[[Row], bool] | None = None) -> float:
    """The greatest number over the least one."""
    values = [row[name] for row in rows if _number(row.get(name)) and (where is None or where(row))]
    return max(values) / min(values) if values and min(values) > 0 else math.nan


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not math.isnan(value)
