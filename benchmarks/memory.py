"""Time and memory of one task in a process of its own. Linux only."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

MIB = 1 << 20
Result = TypeVar("Result")


def cost(task: Callable[[], Result]) -> tuple[Result, float, int]:
    """What a task gives, the CPU seconds it takes, and the bytes of memory it needs at most beside those there were."""
    before = _bytes("VmRSS")
    # what was needed for a moment so far counts no more
    Path("/proc/self/clear_refs").write_text("5")
    started = time.process_time()
    result = task()
    return result, time.process_time() - started, _bytes("VmHWM") - before


def _bytes(what: str) -> int:
    """Bytes that Linux tells of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


def cost_cells(module: str, arguments: Sequence[str], timeout: float) -> tuple[str, str, str]:
    """CPU seconds, MiB stored and MiB at most, which a module prints in a process of its own as JSON (seconds, bytes,
    bytes); or why they are not known."""
    command = [sys.executable, "-m", module, *arguments]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return f"more than {timeout:.0f} s", "-", "-"
    if ended.returncode:
        return (ended.stderr.strip().splitlines() or [f"status {ended.returncode}"])[-1], "-", "-"
    seconds, stored, most = json.loads(ended.stdout)
    return f"{seconds:.1f}", f"{stored / MIB:.0f}", f"{most / MIB:.0f}"
