"""The papers' experiments run, their systems answer alike, and each has a verdict; the baselines equal brute force."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.baselines.counting import KIndex, Sift
from benchmarks.baselines.expressions import Events, Expressions, Scan
from benchmarks.baselines.fixed_orders import fixed_orders
from benchmarks.baselines.gryphon import Gryphon
from benchmarks.baselines.is_list import IsList
from benchmarks.baselines.join_orders import JoinFirst, SelectionFirst
from benchmarks.baselines.propagation import Propagation
from benchmarks.baselines.ticket_routing import ticket_routing
from benchmarks.papers import asc_data, be_tree_runs, begen, disjunctive_runs
from benchmarks.papers.document import document, verdict_of
from benchmarks.papers.experiment import Claim, DifferentAnswersError, Experiment, Paper, Progress, judged, run, stored
from benchmarks.papers.papers import PAPERS
from rules_index.index.boxes import Boxes
from tests.cases import SOAK

EXPERIMENTS = [(paper, experiment) for paper in PAPERS for experiment in paper.experiments]
IDS = [f"{paper.key}-{experiment.slug}" for paper, experiment in EXPERIMENTS]
WORDS = {"reproduced", "partly", "not reproduced"}
WANTED = {
    "be_tree": {
        *(f"Figure {n}" for n in (4, 5, 6, 7, 9, 10, 11, 12, 13)),
        "Figure 8a-b",
        "Figure 8c-d",
        "Table 4",
        "Table 5",
    },
    "asc": {f"Figure {n}" for n in range(6, 10)},
    "cei": {f"Figure {n}" for n in range(14, 20)},
    "pdfa": {f"Figure {n}" for n in range(8, 14)},
    "disjunctive": {*(f"Figure {n}" for n in range(9, 19)), "Table 7", "Table 8", "Section 6.2"},
}
FEW = {"be_tree": "Figure 5", "asc": "Figure 6", "cei": "Figure 17", "pdfa": "Figure 11", "disjunctive": "Figure 18"}


def test_every_figure_and_table_has_an_experiment() -> None:
    assert {paper.key: {each.name for each in paper.experiments} for paper in PAPERS} == WANTED


@pytest.mark.parametrize(
    ("paper", "experiment"),
    [
        pytest.param(*each, id=name, marks=pytest.mark.slow if each[0].key in ("be_tree", "pdfa") else [])
        for each, name in zip(EXPERIMENTS, IDS, strict=True)
    ],
)
def test_experiment_runs_and_is_judged(paper: Paper, experiment: Experiment, tmp_path: Path) -> None:
    if not SOAK and FEW[paper.key] != experiment.name:
        pytest.skip("one experiment of each paper is run")
    result = run(tmp_path, paper, experiment, "tiny")
    assert result["rows"] and all(experiment.varied in row for row in result["rows"])
    known = stored(tmp_path, paper, experiment)
    verdict = verdict_of(experiment, known)
    assert verdict.word in WORDS
    assert len(verdict.told) == len(experiment.claims) > 0
    assert (tmp_path / paper.key / f"{experiment.slug}.png").stat().st_size > 1_000
    text = document((paper,), tmp_path)
    assert f"| {experiment.name} | " in text and f"**{verdict.word}**" in text
    # what is there with the same parameters is not run again
    changed = known | {"rows": [row | {"told": "kept"} for row in known["rows"]]}
    (tmp_path / paper.key / f"{experiment.slug}.json").write_text(json.dumps(changed))
    assert run(tmp_path, paper, experiment, "tiny")["rows"][0]["told"] == "kept"


def test_document_has_a_verdict_for_every_experiment_without_any_figures(tmp_path: Path) -> None:
    text = document(PAPERS, tmp_path)
    for _, experiment in EXPERIMENTS:
        assert f"| {experiment.name} | " in text
    assert text.count("**not run**") == len(EXPERIMENTS)


def test_verdict_follows_from_the_rows() -> None:
    def at_least(bound: float) -> Claim:
        return Claim("", "", lambda rows: (rows[0]["a"] >= bound, ""))

    def word(*bounds: float) -> str:
        claims = tuple(at_least(bound) for bound in bounds)
        return judged(Experiment("", "", "", (), "", lambda _: [], {}, claims), [{"a": 2}]).word

    assert [word(1, 2), word(1, 3), word(3)] == ["reproduced", "partly", "not reproduced"]


def test_systems_that_differ_are_not_timed() -> None:
    class Wrong:
        def match(self, events: Events) -> tuple[np.ndarray, np.ndarray]:
            return np.zeros(len(events.attribute) + 1, np.int64), np.empty(0, np.int32)

    given, events = begen.Workload(n=100, dimensions=20, mp=0.1).draw()
    with pytest.raises(DifferentAnswersError, match="wrong"):
        be_tree_runs.require_equal({"SCAN": Scan(given), "wrong": Wrong()}, events)


def brute_force(given: Expressions, events: Events) -> list[list[int]]:
    """The expressions of each event, by Python's sets."""
    accepted = []
    for predicate in range(len(given.attribute)):
        which = given.which[predicate]
        spans = [(given.low[predicate], given.high[predicate])]
        if which >= 0:
            spans = given.intervals[given.set_start[which] : given.set_start[which + 1]].tolist()
        accepted.append({value for low, high in spans for value in range(low, high + 1)})
    found = []
    for attributes, values in zip(events.attribute.tolist(), events.value.tolist(), strict=True):
        event = {a: v for a, v in zip(attributes, values, strict=True) if a >= 0}
        found.append(
            [
                key
                for key in range(len(given.start) - 1)
                if all(
                    event.get(int(given.attribute[at])) in accepted[at]
                    for at in range(given.start[key], given.start[key + 1])
                )
            ]
        )
    return found


@pytest.mark.parametrize(
    "system", [Scan, Sift, KIndex, Propagation, Gryphon, lambda given: be_tree_runs.Tree(given, False, 5)]
)
@pytest.mark.parametrize("operators", ["Min", "Low", "Med", "High"])
@pytest.mark.parametrize("law", ["uniform", "Zipf"])
def test_expression_baselines_equal_brute_force(system: Callable[[Expressions], Any], operators: str, law: str) -> None:
    for seed in range(10 if SOAK else 2):
        draw = np.random.default_rng(seed)
        event = int(draw.integers(1, 9))
        workload = begen.Workload(
            n=int(draw.integers(1, 200)),
            dimensions=int(draw.integers(event, 20)),
            cardinality=int(draw.integers(2, 12)),
            subscription=int(draw.integers(1, event + 1)),
            event=event,
            operators=operators,
            mp=0.1,
            law=law,
            seed=seed,
        )
        given, events = workload.draw()
        # one attribute is missing, and others have been changed, in some events
        attribute, value = events.attribute.copy(), events.value.copy()
        attribute[::3, 0] = -1
        value[1::2] = draw.integers(0, workload.cardinality, value[1::2].shape)
        events = Events(attribute, value)
        offsets, keys = system(given).match(events)
        found = [sorted(keys[a:b].tolist()) for a, b in pairwise(offsets)]
        assert found == brute_force(given, events), (operators, law, seed)


def test_derived_expressions_hold_for_their_events() -> None:
    workload = begen.Workload(n=500, dimensions=40, operators="High", mp=0.1)
    given, events = workload.draw()
    found = brute_force(given, events)
    assert sum(map(len, found)) >= 500
    assert len({key for keys in found for key in keys}) == 500


def test_interval_skip_list_equals_brute_force() -> None:
    draw = np.random.default_rng(3)
    for _ in range(20):
        a = draw.integers(0, 60, draw.integers(1, 40))
        b = a + draw.integers(1, 20, len(a))
        x = np.concatenate([np.arange(0, 82), draw.uniform(0, 82, 50)])
        offsets, keys = IsList(a, b).search_many(x)
        found = [sorted(keys[i:j].tolist()) for i, j in pairwise(offsets)]
        assert found == [np.flatnonzero((a <= value) & (value < b)).tolist() for value in x]


def test_fixed_orders_and_ticket_routing_equal_brute_force() -> None:
    given = asc_data.queries(10, 5, 2)
    data = asc_data.skewed(400)
    constructs, (codes,) = asc_data.constructs_of(given, [data])
    costs = [
        constructs.cost(codes, constructs.order(np.array(order, np.int32)))["constructs_evaluated"]
        for order in permutations(constructs.attributes.tolist())
    ]
    assert fixed_orders(constructs, codes) == {"best": min(costs), "worst": max(costs)}
    matches, visits = ticket_routing(constructs, codes)
    assert np.array_equal(matches, asc_data.matches_of(given, data))
    assert min(costs) * 0.8 <= visits <= max(costs)


@pytest.mark.parametrize("system", [SelectionFirst, JoinFirst])
def test_unshared_joins_equal_brute_force(system: Any) -> None:
    draw = np.random.default_rng(5)
    for own in (1, 2, 3):
        queries, rows = 30, 12
        low = draw.integers(0, 12, (queries, 4))
        high = low + draw.integers(0, 8, low.shape)
        boxes = Boxes(
            np.full(4, 20, np.int32), np.arange(queries + 1) * 4, np.tile(np.arange(4, dtype=np.int32), queries),
            low.reshape(-1).astype(np.int32), high.reshape(-1).astype(np.int32),
        )  # fmt: skip
        kept, keys = draw.integers(0, 20, (rows, 4 - own), dtype=np.int32), draw.integers(0, 3, rows)
        joining = system(boxes, own, kept, keys)
        for _ in range(20):
            key, row = int(draw.integers(0, 3)), draw.integers(0, 20, own, dtype=np.int32)
            expected = {
                (other, query)
                for other in range(rows)
                if keys[other] == key
                for query in range(queries)
                if (low[query] <= np.append(row, kept[other])).all()
                and (np.append(row, kept[other]) <= high[query]).all()
            }
            assert {tuple(pair) for pair in joining.arrive(key, row).tolist()} == expected


def test_covering_boxes_have_the_selectivity_that_is_asked_for() -> None:
    for selectivity, overlap in ((0.01, 0.5), (0.5, 0.0), (1.0, 0.25)):
        boxes = disjunctive_runs.covering(3, 60, selectivity, overlap)
        assert len(boxes) == 60
        row = disjunctive_runs.throughput(boxes, 5_000, 1)
        assert row["held %"] == pytest.approx(100 * selectivity, abs=2.5)


def test_progress_tells_the_clock(capsys: pytest.CaptureFixture[str]) -> None:
    Progress("paper Figure 1")("half of it")
    assert "paper Figure 1: half of it" in capsys.readouterr().err
