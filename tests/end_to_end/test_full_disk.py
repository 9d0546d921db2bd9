"""A disk that is full at any write of a command: a sentence tells of it, and the next run loses and doubles no row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cases import soak_rest

ROOT = Path(__file__).resolve().parents[2]
ROWS = 5_000
PROGRAM = """
import contextlib, io, json, os, random, resource, shutil, subprocess, sys
from pathlib import Path
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltatag.__main__ import main

kind, rows, cases = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
disk = Path("disk")
disk.mkdir()
if kind == "full":
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)], check=True)
draw = random.Random(1)
times = pa.array([n * 1_000_000 for n in range(rows)], pa.timestamp("us", "UTC"))
numbers = {name: pa.array([draw.randrange(1 << 40) for _ in range(rows)]) for name in "xy"}
for stream in "st":
    write_deltalake(stream, pa.table({"id": pa.array(range(rows)), "at": times, **numbers}))
Path("deltatag.toml").write_text('''
[lake]
root = "disk/lake"
runner = "local"
[streams.s]
source = "s"
key = ["id"]
event_time = "at"
[streams.t]
source = "t"
event_time = "at"
[joins.j]
streams = ["s", "t"]
on = ["id"]
window = "0 s"
''')

def deltatag(*arguments):
    told, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(errors):
        status = main(list(arguments))
    return status, errors.getvalue()

def held(name, columns):
    rows = DeltaTable(f"disk/lake/{name}").to_pyarrow_table(columns=columns).to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=repr)

def committed(name):
    log = Path(f"disk/lake/{name}/_delta_log")
    made = log.exists() and any(log.glob("*.json"))
    return {os.path.abspath(path) for path in DeltaTable(f"disk/lake/{name}").file_uris()} if made else set()

x, y = (numbers[name].to_pylist() for name in "xy")
matched = [(f"s{n}", place) for place in range(rows) for n in range(100) if x[place] % (n + 2) == 1]
joined = [place for place in range(rows) if any(x[place] % (n + 2) == 1 and y[place] > n for n in range(100))]

def without_space(free, command):
    if kind == "limit":
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (free, before[1]))
        try:
            return deltatag(*command)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    found = os.statvfs(disk)
    filler = disk / "filler"
    filler.write_bytes(bytes(max(found.f_bavail * found.f_frsize - free, 0)))
    try:
        return deltatag(*command)
    finally:
        filler.unlink()

for command, free in cases:
    shutil.rmtree("disk/lake", ignore_errors=True)
    assert deltatag("init")[0] == 0
    rules = [f"('s{n}', 's', 'x % {n + 2} = 1'), ('j{n}', 'j', 's.x % {n + 2} = 1 AND t.y > {n}')" for n in range(100)]
    status, told = deltatag("sql", "INSERT INTO rules (rule_id, scope, expression) VALUES " + ", ".join(rules))
    assert status == 0, told
    if command == "tag":
        assert deltatag("compile")[0] == 0
    status, told = without_space(free, [command])
    known = set().union(*map(committed, ("s_tagged", "s_matches", "j_tagged")))
    files = {str(path.absolute()) for path in Path("disk/lake").glob("[sj]_*/*.parquet")}
    again, errors = deltatag("run")
    print(json.dumps({
        "command": command, "free": free, "status": status, "told": told, "again": again, "errors": errors,
        "left": len(files - known),
        "tagged": sorted(row[0] for row in held("s_tagged", ["id"])) == list(range(rows)),
        "matches": held("s_matches", ["rule_id", "id"]) == sorted(matched, key=repr),
        "joined": sorted(row[0]["id"] for row in held("j_tagged", ["s"])) == joined,
    }))
sys.stdout.flush()
os._exit(0)  # a library's thread that panicked may abort what else is done at the end
"""


def outcomes(kind: str, cases: list[tuple[str, int]], folder: Path) -> list[dict[str, Any]]:
    """What the program tells of each command and number of bytes."""
    program = [sys.executable, "-c", PROGRAM, kind, str(ROWS), json.dumps(cases)]
    if kind == "full":
        program = ["unshare", "--user", "--map-root-user", "--mount", *program]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DELTATAG_SCRATCH": str(folder / "scratch")}
    done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["command"], each["free"]) for each in found] == [tuple(case) for case in cases]
    return found


def may_mount() -> bool:
    """Whether this user may mount a file system of its own."""
    command = ["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def check(found: list[dict[str, Any]], reason: str) -> None:
    for each in found:
        assert each["status"] == 1, each
        for line in each["told"].splitlines():
            assert line.startswith("deltatag: ") and f": {reason}. Nothing is lost: free some space" in line, each
            assert "disk/lake/" in line or "the table " in line or "The index of " in line, each
        assert each["told"] and each["left"] == 0, each
        assert (each["again"], each["errors"]) == (0, ""), each
        assert each["tagged"] and each["matches"] and each["joined"], each


FULL = [
    ("tag", 0),
    ("run", 0),
    ("compile", 12_000),
    ("tag", 4_096),
    ("tag", 60_000),
    ("run", 150_000),
    ("run", 300_000),
]


@pytest.mark.skipif(not may_mount(), reason="this user may not mount a file system")
@pytest.mark.parametrize("cases", soak_rest(1, [FULL, [("run", free) for free in range(8_192, 500_000, 40_000)]]))
def test_a_full_disk(cases: list[tuple[str, int]], tmp_path: Path) -> None:
    check(outcomes("full", cases, tmp_path), "no space is left on the disk")


def test_a_limit_of_the_size_of_files(tmp_path: Path) -> None:
    found = outcomes("limit", [("tag", 20_000), ("run", 500)], tmp_path)
    check(found, "a file would be larger than this process may write")
