"""Measures what the steps of the matching kernel cost, and keeps it where engines are chosen by it.

    python -m benchmarks.calibrate [--repeat 15] [--kept] [--write] [--plots FOLDER]

Each step is timed alone (`steps`), and so are whole matches of many plans, of rule sets that are in no other benchmark
(`matches`). A plan is expected to take the sum of its steps, how often a row has each times what it costs; the costs
are those that come nearest to the times of the plans and stray least from the times of the steps (`fit`). With --write
the measurements replace those kept in `measurements.json`, and the costs those in rules_index/index/planner/costs.json;
with --kept nothing is measured, the costs are fitted to the measurements that are kept. Ratios between the steps
decide, so a slower machine of the same kind needs no figures of its own.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from benchmarks.calibrate import fit, matches, steps
from benchmarks.report import machine, median, print_table
from rules_index.index.planner import Costs

KEPT = Path(__file__).with_name("measurements.json")
COSTS_FILE = Path(__file__).parents[2] / "rules_index" / "index" / "planner" / "costs.json"


def main(arguments: list[str] | None = None) -> None:
    """Measure, fit, print and, where asked to, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--kept", action="store_true", help="fit the costs to the measurements that are kept")
    parser.add_argument("--write", action="store_true", help="replace the kept measurements and costs.json")
    parser.add_argument("--plots", type=Path, help="folder for plans.png")
    options = parser.parse_args(arguments)
    measured_on, alone, plans = kept() if options.kept else measure(options.repeat)
    costs = fit.fitted(alone, plans)
    tell(alone, costs, plans)
    if options.plots:
        plot(options.plots / "plans.png", costs, plans)
    if options.write:
        if not options.kept:
            KEPT.write_text(matches.as_text(measured_on, alone, plans), "utf-8")
        COSTS_FILE.write_text(as_text(measured_on, costs), "utf-8")


def measure(repeat: int) -> tuple[str, Costs, list[matches.Measured]]:
    """On this machine: its name, the steps alone, and plans."""
    print(f"calibrate: one core; {machine()}", flush=True)
    return machine(), steps.measure(repeat), matches.measure(repeat)


def kept() -> tuple[str, Costs, list[matches.Measured]]:
    """The same, as kept."""
    return matches.of_text(KEPT.read_text("utf-8"))


def as_text(measured_on: str, costs: Costs) -> str:
    """The contents of costs.json, four digits of each cost."""
    rounded = {name: float(f"{cost:.4g}") for name, cost in asdict(costs).items()}
    return json.dumps({"measured_on": measured_on, "nanoseconds": rounded}, indent=2) + "\n"


def tell(alone: Costs, costs: Costs, plans: list[matches.Measured]) -> None:
    """Prints the costs of the steps, and beside the times of the plans what they are expected to take."""
    each = zip(asdict(alone).items(), asdict(costs).values(), strict=True)
    rows = [(name, f"{before:.4f}", f"{after:.4f}") for (name, before), after in each]
    print_table("Nanoseconds of one core", ("step", "alone", "fitted"), rows)
    expected = [fit.expected(costs, plan) for plan in plans]
    lines = [
        (plan.kind, f"{plan.rules:,}", f"{plan.matches:.3g}", plan.plan, plan.scan_method, f"{plan.nanoseconds:.1f}",
         f"{time:.1f}", f"{time / plan.nanoseconds:.2f}")
        for plan, time in zip(plans, expected, strict=True)
    ]  # fmt: skip
    header = ("kind", "rules", "matches", "plan", "scanned by", "ns a row", "expected", "ratio")
    print_table("Plans", header, lines)
    behind = fit.behind(costs, plans)
    print(
        f"\nThe plan expected to be fastest takes {median(behind):.2f} times as long as the fastest one in the middle,"
    )
    print(f"{max(behind):.2f} times at most, of {len(behind)} rule sets with several plans.")


def plot(path: Path, costs: Costs, plans: list[matches.Measured]) -> None:
    """What plans took, and what they are expected to take."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 6))
    names = dict.fromkeys(plan.plan for plan in plans)
    for name in names:
        some = [plan for plan in plans if plan.plan == name]
        axes.scatter(
            [plan.nanoseconds for plan in some], [fit.expected(costs, plan) for plan in some], s=14, label=name
        )
    ends = [min(plan.nanoseconds for plan in plans), max(plan.nanoseconds for plan in plans)]
    for factor, style in ((1.0, "-"), (1.15, ":"), (1 / 1.15, ":")):
        axes.plot(ends, [factor * end for end in ends], style, color="grey", linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="nanoseconds a row, measured", ylabel="expected")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    print(f"plot: {path}")


if __name__ == "__main__":
    main()
