"""Kills tagging at random moments and shows that no row is lost or doubled: `python tests/end_to_end/killing.py 50`.

A source grows and rules are edited while runs over it are killed with SIGKILL: the driver, its JVM, a Python
worker, or all at once. Whoever was not killed lives on and may still commit, beside the next run.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import polars as pl
from deltalake import write_deltalake

from tests.java import SHORT_LIVED
from tests.lakes import rules_table

ROOT = Path(__file__).resolve().parents[2]
STREAM = "events"
SETTINGS = f"""
[lake]
root = "lake"
[spark]
"spark.master" = "local[2]"
"spark.driver.memory" = "1g"
"spark.driver.extraJavaOptions" = "{SHORT_LIVED}"
"spark.sql.shuffle.partitions" = "2"
[streams.{STREAM}]
source = "source"
key = ["id"]
max_bytes_per_batch = 16384
"""
RUN = """
import sys
from pipelines.compile import compile_scopes
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
workspace = Workspace.open("deltatag.toml")
workspace.spark
print("ready", flush=True)
compile_scopes(workspace)
print(tag_stream(workspace, "events"), flush=True)
"""
TARGETS = ("driver", "jvm", "worker", "all")


class Lake:
    """A growing source with rules over it, and runs that can be killed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.chance = random.Random(seed)
        self.rows = 0
        self.killed: Counter[str] = Counter()
        (folder / "deltatag.toml").write_text(SETTINGS)
        subprocess.run([sys.executable, "-m", "deltatag", "init", str(folder)], cwd=ROOT, check=True)
        self.append()
        self.edit_rules()

    def append(self) -> None:
        """Two more files of rows; every thirteenth row has no key."""
        for _ in range(2):
            count = self.chance.randint(1, 400)
            seq = pl.Series("seq", range(self.rows, self.rows + count))
            rows = pl.DataFrame({"seq": seq, "id": [None if n % 13 == 5 else n for n in seq], "x": seq % 50})
            rows.write_delta(self.folder / "source", mode="append")
            self.rows += count

    def edit_rules(self) -> None:
        """Write all rules anew, with other thresholds."""
        limits = [self.chance.randint(0, 49) for _ in range(3)]
        table = rules_table((f"r{n}", STREAM, f"x >= {x}") for n, x in enumerate(limits))
        write_deltalake(self.folder / "lake" / "rules", table, mode="overwrite")

    def start(self) -> subprocess.Popen[str]:
        """A run in a process group of its own; returns once its session is up."""
        with (self.folder / "runs.log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", RUN],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), "DELTATAG_SCRATCH": str(self.folder / "scratch")},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            process.kill()
            raise RuntimeError(f"a run did not start: see {self.folder / 'runs.log'}")
        return process

    def kill_one(self, seconds: float) -> None:
        """Start a run and kill a part of it within so many seconds."""
        process = self.start()
        target = self.chance.choice(TARGETS)
        time.sleep(self.chance.uniform(0, seconds))
        if process.poll() is None:
            self.killed[target] += 1
            kill(process, target, self.chance)
        # Spark tells the driver of a worker that died, and the run ends by itself, unless there was none to kill.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=30)
        finish_group(process, self.chance.random() < 0.5)

    def run_to_the_end(self) -> None:
        """One run that nobody kills."""
        process = self.start()
        output, _ = process.communicate(timeout=1200)
        assert process.returncode == 0, output

    def read(self, name: str) -> pl.DataFrame:
        """A table of the lake."""
        return pl.read_delta(self.folder / "lake" / name)

    def check(self) -> None:
        """Every row once, with the rules of the version that it names; the three tables agree."""
        tagged, refused = self.read(f"{STREAM}_tagged"), self.read(f"quarantine_{STREAM}")
        matches = self.read(f"{STREAM}_matches")
        assert sorted([*tagged["seq"], *refused["seq"]]) == list(range(self.rows)), "rows lost or doubled"
        assert refused["seq"].to_list().count(None) == 0
        assert all(seq % 13 == 5 for seq in refused["seq"]), "a sound row in quarantine"
        pairs = []
        for version in tagged["rules_version"].unique():
            rules = pl.read_delta(self.folder / "lake" / "rules", version=version)
            limits = {row["rule_id"]: int(row["expression"].split()[-1]) for row in rules.to_dicts()}
            for row in tagged.filter(pl.col("rules_version") == version).to_dicts():
                expected = sorted(rule for rule, limit in limits.items() if row["x"] >= limit)
                assert row["rule_ids"] == expected, row
                pairs += [(row["id"], rule, version) for rule in expected]
        assert Counter(matches.select("id", "rule_id", "rules_version").rows()) == Counter(pairs), "matches disagree"
        runs = self.read("runs").sort("batch")
        assert runs["batch"].to_list() == list(range(runs.height))
        assert set(runs["state"]) == {"done"}
        assert (runs["rows"].sum(), runs["quarantined"].sum()) == (self.rows, refused.height)
        assert runs["matches"].sum() == matches.height


def kill(process: subprocess.Popen[str], target: str, chance: random.Random) -> None:
    """SIGKILL to one part of a run: its driver, its JVM, one of its Python workers, or all of them."""
    if target == "driver":
        process.kill()
        return
    members = group_members(process.pid)
    chosen = {
        "jvm": [pid for pid, command in members.items() if "java" in command.split("\0")[0]],
        "worker": [
            pid for pid, command in members.items() if "pyspark.daemon" in command or "pyspark/daemon" in command
        ],
        "all": list(members),
    }[target]
    for pid in chosen if target == "all" else chance.sample(chosen, min(1, len(chosen))):
        end(pid)


def group_members(group: int) -> dict[int, str]:
    """The command lines of a process group, and of the workers below it that made a group of their own."""
    found: dict[int, str] = {}
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            if os.getsid(int(path.name)) == group:
                found[int(path.name)] = (path / "cmdline").read_text()
        except (OSError, UnicodeDecodeError):
            continue
    return found


def end(pid: int) -> None:
    """SIGKILL, if the process still lives."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def finish_group(process: subprocess.Popen[str], wait: bool) -> None:
    """Let what is left of a run go on for a while, beside the next run, or end it at once."""
    if process.stdout is not None:
        process.stdout.close()
    if not wait:
        for pid in group_members(process.pid):
            end(pid)
        process.wait(timeout=60)


def show(folder: Path, kills: int, seed: int = 1, seconds: float = 6.0) -> Lake:
    """Kill so many runs, then let one end, and check; AssertionError tells what was lost or doubled."""
    lake = Lake(folder, seed)
    for number in range(kills):
        lake.kill_one(seconds)
        lake.append()
        if number % 3 == 1:
            lake.edit_rules()
    lake.run_to_the_end()
    lake.check()
    return lake


def main(arguments: Sequence[str]) -> None:
    """Kill as often as the first argument says, in a temporary folder."""
    import tempfile

    kills = int(arguments[0]) if arguments else 50
    with tempfile.TemporaryDirectory() as folder:
        lake = show(Path(folder), kills, seed=int(arguments[1]) if len(arguments) > 1 else 1)
        print(f"{sum(lake.killed.values())} kills ({dict(lake.killed)}), {lake.rows} rows: none lost, none doubled")


if __name__ == "__main__":
    main(sys.argv[1:])
