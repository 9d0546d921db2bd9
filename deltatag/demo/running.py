"""Runs deltatag for the demonstration: the Dagster job of the code location, in this process."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import dagster as dg

    from pipelines.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a run: seconds, how many of its checks passed, how many there are, and the assets that it wrote."""

    name: str
    seconds: float
    passed: int
    checks: int
    assets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """One run: its steps in order, warnings of checks, and a paragraph for each failed step."""

    steps: tuple[Step, ...]
    warnings: tuple[str, ...]
    failures: Mapping[str, str]
    seconds: float


class Runner:
    """Runs the job over one workspace; its records are kept in a folder that `dagster dev` can show."""

    def __init__(self, workspace: Workspace, home: Path, verbose: bool) -> None:
        """home: the folder of the records; verbose: show Dagster's log."""
        self.workspace = workspace
        self.home = home
        self.verbose = verbose

    def run(self) -> RunOutcome:
        """Check, compile, tag and join what is due, once."""
        from assets.headless import open_instance, run_once

        started = time.perf_counter()
        with open_instance(self.home) as instance:
            result = run_once(self.workspace, instance, quiet=not self.verbose)
            return _outcome(result, time.perf_counter() - started)

    def report(self) -> Path | None:
        """The first page of Data Docs; None if there is none."""
        from pipelines.pages import DATA_DOCS, page_folder

        page = page_folder(self.workspace.configuration, DATA_DOCS) / "index.html"
        return page if page.is_file() else None


def _outcome(result: dg.ExecuteInProcessResult, seconds: float) -> RunOutcome:
    passed: Counter[str] = Counter()
    checks: Counter[str] = Counter()
    assets: dict[str, list[str]] = {}
    warnings, steps, failures = [], [], {}
    for event in result.all_events:
        step = event.step_key or ""
        if event.event_type_value == "ASSET_CHECK_EVALUATION":
            evaluation = event.asset_check_evaluation_data
            checks[step] += 1
            passed[step] += evaluation.passed
            if not evaluation.passed and evaluation.severity.value == "WARN":
                warnings.append(f"{evaluation.check_name}: {evaluation.description}")
        elif event.is_step_materialization and event.asset_key is not None:
            assets.setdefault(step, []).append("/".join(event.asset_key.path))
        elif event.is_step_success:
            duration = event.step_success_data.duration_ms / 1000
            steps.append(Step(step, duration, passed[step], checks[step], tuple(assets.get(step, ()))))
        elif event.is_step_failure:
            failures[step] = _reason(event)
    if not result.success and not failures:
        failures["run"] = "The run failed before its first step."
    return RunOutcome(tuple(steps), tuple(warnings), failures, seconds)


def _reason(event: dg.DagsterEvent) -> str:
    """The innermost message of a failed step."""
    data = event.step_failure_data
    if data.user_failure_data is not None and data.user_failure_data.description:
        return str(data.user_failure_data.description)
    error = data.error
    while error is not None and error.cause is not None:
        error = error.cause
    return error.message if error is not None else "It failed without a message."
