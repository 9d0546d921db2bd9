"""How the demonstration runs deltatag."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deltatag.demo.printing import Narrator
from pipelines.workspace import Workspace


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """One run: `lines` for people, `failures` with a paragraph for each thing that failed, seconds."""

    lines: list[str] = field(default_factory=list)
    failures: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0


class Runner:
    def __init__(self, workspace: Workspace, home: Path, verbose: bool) -> None:
        self.workspace = workspace

    def run(self, narrator: Narrator) -> RunOutcome:
        from pipelines.run import OpenGates, run_due

        started = time.perf_counter()
        report = run_due(self.workspace, OpenGates())
        return RunOutcome([], report.failures, time.perf_counter() - started)

    def places(self, folder: Path) -> list[tuple[str, str]]:
        return []

    def dagster_command(self, folder: Path) -> str:
        return ""
