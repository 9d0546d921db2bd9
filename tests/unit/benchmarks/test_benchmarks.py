"""The benchmarks compare like with like: same rules, same answers, and opponents that answer rightly."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import rules_index as ri
from benchmarks import (
    compile,
    engines,
    join_methods,
    measured,
    memory,
    peers,
    real,
    single_events,
    sizes,
    structures,
    transactions,
)
from benchmarks.baselines.witness import Witness
from benchmarks.kinds import KINDS, RuleSet
from rules_index.engines.asc.engine import Asc
from rules_index.engines.scan import Scan
from rules_index.index.conjunction_arrays import Conjunctions
from tests.cases import cases
from tests.unit.engines.random_conjunctions import SIZES, Draw

RULES, ROWS, SEED = 200, 1_000, 5


def drawn(kind: str, wanted: float = 1.0, rules: int = RULES) -> RuleSet:
    return KINDS[kind].make(rules, KINDS[kind].rate(rules, wanted), ROWS, SEED)


def by_row(found: tuple[np.ndarray, np.ndarray]) -> list[list[int]]:
    """Lists of ascending ordinals, a row each."""
    offsets, ordinals = found
    return [sorted(each.tolist()) for each in np.split(ordinals, offsets[1:-1])] if len(offsets) > 1 else []


@pytest.mark.parametrize("kind", KINDS)
def test_texts_and_arrays_of_a_kind_are_the_same_rules(kind: str) -> None:
    given = drawn(kind)
    compiled = ri.compile_rules(list(enumerate(given.texts())), given.table().schema, engine="asc")
    assert compiled.rejects.num_rows == 0
    conjunctions, codes = given.coded()
    found = Asc.build(conjunctions).match(codes)
    assert compiled.match(given.table()).to_pylist() == by_row(found)
    assert np.array_equal(np.bincount(found[1], minlength=RULES), given.brute_force())
    assert len(found[1]) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_gives_the_matches_a_row_that_were_asked_for(kind: str) -> None:
    rules = 1_000
    for wanted in (0.5, 1.0, 20.0):
        rate = KINDS[kind].rate(rules, wanted)
        assert KINDS[kind].least(rules) <= rate <= KINDS[kind].most(rules)
        assert drawn(kind, wanted, rules).brute_force().sum() / ROWS == pytest.approx(rate, rel=0.25)


def test_rates_that_cannot_be_had_are_planned_once() -> None:
    cells = list(engines.planned(["tuples", "equality"], [1_000], [0.1, 10, 100]))
    assert [(cell.kind, cell.rate, cell.names[2]) for cell in cells] == [
        ("tuples", 0.1, "nan"),
        ("tuples", 10, "nan"),
        ("equality", 0.1, "nan"),
        ("equality", 1, "nan (most)"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("sizes", SIZES)
def test_the_witness_agrees_with_brute_force(sizes: str) -> None:
    for seed in range(cases(240)):
        draw = Draw(seed, SIZES[sizes])
        conjunctions = draw.conjunctions()
        codes = draw.codes(int(draw.random.choice([0, 1, 63, 64, 65, 300])))
        witness = Witness.build(conjunctions, codes[:, :50])
        expected = by_row(Scan.build(conjunctions).match(codes))
        assert by_row(witness.match(codes)) == by_row(witness.match(codes)) == expected, seed


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_witness_agrees_with_brute_force_on_every_kind(kind: str) -> None:
    given = drawn(kind, 20.0, 3_000)
    conjunctions, codes = given.coded()
    witness = Witness.build(conjunctions, codes)
    assert np.array_equal(np.bincount(witness.match(codes)[1], minlength=3_000), given.brute_force())
    coarse = witness.postings.shift.max() > 0
    assert coarse == (kind == "thresholds")


def test_the_witness_files_sets_of_many_intervals_once_a_bucket() -> None:
    values = np.arange(0, 2_000, 3, dtype=np.int32)
    conjunctions = Conjunctions(
        sizes=np.array([2_000], np.int32),
        set_start=np.array([0, len(values)]),
        intervals=np.stack([values, values], axis=1),
        start=np.array([0, 1]),
        terms=np.array([[0, 0]], np.int32),
        target=np.zeros(1, np.int32),
        disjunction_start=np.zeros(1, np.int32),
    )
    codes = np.arange(2_000, dtype=np.int32)[None]
    witness = Witness.build(conjunctions, codes)
    assert len(witness.postings.rule) <= 8
    assert np.array_equal(np.diff(witness.match(codes)[0]), codes[0] % 3 == 0)


def test_the_witness_agrees_with_the_compiled_one(tmp_path: Path) -> None:
    compiled = peers.Witness(tmp_path)
    if compiled.reason:
        pytest.skip(compiled.reason)
    given = KINDS["ranges"].make(RULES, 5.0, measured.LEAST_ROWS, SEED)
    conjunctions, codes = given.coded()
    engines._write(compiled, given)
    answer = engines._run_compiled(compiled, given, measured.LEAST_ROWS, 1)
    _, ordinals = Witness.build(conjunctions, codes).match(codes)
    assert (answer["matches"], answer["checksum"]) == (len(ordinals), (ordinals.astype(np.int64) + 1).sum())


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> engines.Cell:
    """A cell that takes a moment."""
    monkeypatch.setattr(engines, "ROWS", measured.LEAST_ROWS)
    return engines.Cell("tuples", RULES, 1.0, 1.0)


def without_compiled(folder: Path) -> peers.Witness:
    compiled = peers.Witness.__new__(peers.Witness)
    compiled.folder, compiled.program, compiled.reason = folder, folder / "witness", "not wanted here"
    return compiled


def test_a_cell_is_measured_with_all_that_is_asked_for(cell: engines.Cell, tmp_path: Path) -> None:
    engines.measure(cell, ["asc", "auto"], without_compiled(tmp_path), 3, 0.001)
    assert set(cell.measured) >= {"asc", "auto", "witness"}
    for each in cell.measured.values():
        assert each.speed > 0 and each.nbytes > 0 and each.build_seconds >= 0
    auto = cell.measured["auto"]
    assert auto.reason
    assert auto.engine != "asc" or auto.speeds == cell.measured["asc"].speeds
    assert cell.matches == pytest.approx(1.0, rel=0.25)


@pytest.mark.parametrize("wrong", ["another rule", "another row"])
def test_a_wrong_answer_ends_the_run(
    cell: engines.Cell, wrong: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    right = Witness.match

    def match(self: Witness, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        offsets, ordinals = right(self, codes)
        if wrong == "another rule":
            return offsets, (ordinals + 1) % RULES
        return np.roll(offsets, 1), ordinals

    monkeypatch.setattr(Witness, "match", match)
    with pytest.raises(SystemExit, match="witness"):
        engines.measure(cell, ["asc"], without_compiled(tmp_path), 1, 0.001)


SMALL = ["--rules", "5", "--shares", "0.2", "--partners", "3", "--streams", "2", "3", "--rows", "90", "--repeat", "1"]


def test_the_methods_of_a_join_are_compared_in_what_they_find_and_cost(capsys: pytest.CaptureFixture[str]) -> None:
    join_methods.main(SMALL)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    header, *cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "--" not in line]
    assert [row[header.index("combinations")] for row in cells] == ["270", "810"]
    assert all(float(row[header.index(name)]) > 0 for row in cells for name in ("joined rows", "SECOND a row"))


def test_methods_that_find_other_joined_rows_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = join_methods.JoinIndex.match

    def match(self, sides, windows, *more, method="batch"):
        return right(self, sides, windows if method == "batch" else [0] * len(windows), *more, method=method)

    monkeypatch.setattr(join_methods.JoinIndex, "match", match)
    with pytest.raises(SystemExit, match="the methods differ"):
        join_methods.main(SMALL)


def test_an_engine_that_would_take_too_long_is_left_out_with_the_reason(
    cell: engines.Cell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(engines, "BUILD_SECONDS", 0.0)
    cell.rules = 2_000
    engines.measure(cell, ["asc", "auto"], without_compiled(tmp_path), 1, 0.001)
    assert "to build" in cell.measured["asc"].told
    assert cell.measured["auto"].speed > 0


def test_ratios_compare_the_best_engine_with_the_best_witness() -> None:
    speeds = {"asc": 4e6, "be_tree": 6e6, "auto": 3e6, "witness": 1e6, "witness.c": 2e6}
    told = {name: measured.Measured(name, name, speeds=[speed]) for name, speed in speeds.items()}
    told["scan"] = measured.Measured("scan", "scan", "90 s to build")
    cells = measured.speed_cells(told, [*told, "cei"])
    speeds_told = ["4 M", "6 M", "3 M", "1 M", "2 M", "90 s to build", "-"]
    assert cells == [*speeds_told, "auto", "3.00", "0.50", "0.75"]
    assert math.isnan(told["scan"].speed)


@pytest.mark.slow
def test_time_and_memory_of_a_task_are_told() -> None:
    """In a process of its own, as it is meant to be: this one may be giving memory back meanwhile."""
    task = "memory.cost(lambda: int(np.ones(64 << 20, np.uint8).sum()))"
    code = f"import numpy as np; from benchmarks import memory; print(*{task})"
    found, seconds, most = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert (int(found), int(most) > 60 << 20) == (64 << 20, True)
    assert 0 < float(seconds) < 10


@pytest.mark.slow
def test_engines_are_built_and_rules_compiled_in_processes_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    sizes.main(["--rules", "500", "--engines", "asc"])
    compile.main(["--rules", "500", "--kinds", "accounts"])
    told = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [cells[0].strip() for cells in told if not cells[0].startswith("-")] == ["engine", "asc", "kind", "accounts"]
    assert all(cell.strip().replace(".", "").isdigit() for row in (told[2], told[5]) for cell in row[1:])


def test_a_process_that_fails_is_told_with_its_reason() -> None:
    reason, *none = memory.cost_cells("benchmarks.nothing", (), 60)
    assert ("No module named" in reason, none) == (True, ["-", "-"])
    assert memory.cost_cells("benchmarks.sizes", ("--measure", "asc"), 0.01) == ("more than 0 s", "-", "-")


@pytest.mark.data
@pytest.mark.slow
def test_every_row_of_the_connections_has_one_leaf_of_each_tree(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real, "CONNECTIONS", 20_000)
    monkeypatch.setattr(real, "LEARNT_ROWS", 3_000)
    ((rules, table),) = real.trees(data_folder)
    assert matches(rules, table) == {2}


@pytest.mark.data
def test_the_rules_of_people_need_no_spark(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real, "CONNECTIONS", 20_000)
    monkeypatch.setattr(real, "LEARNT_ROWS", 3_000)
    monkeypatch.setattr(real, "ASSOCIATIONS", 200)
    for make in (real.associations, real.flights):
        ((rules, table),) = make(data_folder)
        assert len(set(rules)) == len(rules) in (50, 200)
        assert len(matches(rules, table)) > 1


def test_the_rules_over_transactions_need_no_spark_and_match_some_rows() -> None:
    rows = pa.concat_tables([transactions.rows_of(first, 20_000) for first in (0, 400_000)])
    compiled = ri.compile_rules(list(enumerate(transactions.RULES)), rows.schema)
    assert not compiled.rejects.num_rows and not compiled.derived
    assert set(compiled.match(rows).flatten().to_pylist()) == set(range(len(transactions.RULES)))
    assert not any(compiled.errors.values())


def matches(rules: list[str], table: pa.Table) -> set[int]:
    """The numbers of matches that rows have."""
    compiled = ri.compile_rules(list(enumerate(rules)), table.schema, engine="asc")
    assert (compiled.rejects.num_rows, compiled.derived) == (0, ())
    return set(np.diff(compiled.match(table).offsets.to_numpy()).tolist())


def test_single_events_say_what_they_lack(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("DELTATAG_BENCH", "/nowhere")
    assert single_events.main([]) == 1
    assert "DELTATAG_BENCH can name another folder" in capsys.readouterr().err


def test_structures_are_compared_on_equal_keys() -> None:
    boxes, rows = structures.boxes_of(150)
    compared = structures.compare_variants(boxes, np.ascontiguousarray(rows[:, :20]))
    assert [name for name, *_ in compared] == list(structures.variants(boxes))
    parts = structures.bytes_of(boxes)
    assert all(value > 0 for value in parts.values())
    adapted = structures.adaptation(boxes, rows[:, :40], (1.0,))
    assert set(adapted) == {"as it was built", "adapting, theta 1"}
