"""Executors in processes of their own give the same tables as one process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = """
[lake]
root = "lake"
[spark]
"spark.master" = "{master}"
"spark.executorEnv.PYTHONPATH" = "{root}"
"spark.sql.shuffle.partitions" = "4"
[streams.a]
source = "../a"
event_time = "t"
[streams.b]
source = "../b"
event_time = "t"
[joins.near]
streams = ["a", "b"]
on = ["k"]
window = "20 s"
[joins.far]
streams = ["a", "b"]
on = ["k"]
window = {{ a = "0 s", b = "2 min" }}
"""
RULES = [
    ("low", "a", "v < 10"),
    ("sound", "a", "soundex(s) = soundex('s7')"),
    ("both", "near", "a.v < 20 AND b.v < 50"),
    ("order", "near", "a.v < b.v AND a.s = b.s"),
    ("seconds", "far", "timestampdiff(SECOND, b.t, a.t) = 90 AND a.v < 100"),
]


RUN = """
import polars as pl
from pipelines.compile import compile_scopes
from pipelines.compiling import changes
from pipelines.join import join_together
from pipelines.lake.index_store import newest_index
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from rules_index.compiling import update
from rules_index.index import shared_files
update.FEW_RULES, update.FOLDED_SHARE, shared_files.SHARED_BYTES = 0, 1, 0
changes.LEAST_RULES, changes.MOST_CHANGED = 1, 1
workspace = Workspace.open("deltatag.toml")
for added in ([], [("late", "a", "v > 990"), ("later", "near", "a.v > 900 AND b.v > 700")]):
    if added:
        rules = pl.DataFrame(added, ["rule_id", "scope", "expression"], orient="row")
        rules.write_delta("lake/rules", mode="append", delta_write_options={"schema_mode": "merge"})
    assert not [result.error for result in compile_scopes(workspace) if result.error]
assert all(newest_index(workspace.lake, name).shared_files for name in ("a", "near"))
tag_stream(workspace, "a")
assert not join_together(workspace, ["near", "far"])[1]
"""


def python(folder: Path, *arguments: str) -> None:
    """A process of its own in a folder."""
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Spark starts the executors by shell scripts")
def test_a_cluster_gives_the_same_tables(tmp_path: Path) -> None:
    draw = np.random.default_rng(8)
    for name in "ab":
        for _ in range(2):
            rows = 15_000
            # a third of all rows has one key
            key = np.where(draw.random(rows) < 0.33, 0, draw.integers(1, 3_000, rows))
            time = pl.Series(1_700_000_000_000_000 + draw.integers(0, 3_600, rows) * 1_000_000)
            values = {"v": draw.integers(0, 1_000, rows), "s": [f"s{number}" for number in draw.integers(0, 50, rows)]}
            frame = pl.DataFrame({"k": key, "t": time.cast(pl.Datetime("us", "UTC")), **values})
            frame.write_delta(tmp_path / name, mode="append")
    tables = {}
    for number, master in enumerate(("local[2]", "local-cluster[2,1,1024]")):
        folder = tmp_path / f"lake{number}"
        folder.mkdir()
        python(folder, "-m", "deltatag", "init")
        (folder / "deltatag.toml").write_text(SETTINGS.format(master=master, root=ROOT))
        rules = pl.DataFrame(RULES, ["rule_id", "scope", "expression"], orient="row")
        rules.write_delta(str(folder / "lake" / "rules"), mode="append", delta_write_options={"schema_mode": "merge"})
        python(folder, "-c", RUN)
        tables[master] = {name: read(folder, name) for name in ("a_tagged", "near_tagged", "far_tagged")}
    one, several = tables.values()
    for name, frame in one.items():
        assert frame.height > 100 and frame.equals(several[name]), name


def read(folder: Path, name: str) -> pl.DataFrame:
    """What was written but for its moment, in the order of the rows."""
    rows = pl.read_delta(str(folder / "lake" / name)).drop("tagged_at")
    return rows.with_columns(row=rows.map_rows(repr).to_series()).sort("row")
